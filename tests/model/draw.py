"""Random messages, instants, references and ends for the steps of a long history, chosen to meet the messages there are."""

from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from bide.engines.base import Claimed, End, NewMessage, Past, Ref, Verdict
from tests.model.runner import Runner

TOPICS = ("a", "b", "a.b-c_D", "rare")
KEYS = ("k", "l", "ключ:1", "m", "n")
DAY = 86_400_000
SPANS = (0, 0, 1, 2, 10, 63, 64, 1_000, 2_047, 2_048, 60_000, 65_536, 3_600_000, 4_194_304, DAY, 7 * DAY, 40 * DAY, 400 * DAY)


class Draw(Random):
    """A random generator that knows the messages there are."""

    def __init__(self, seed: str, runner: Runner) -> None:
        super().__init__(seed)
        self._runner = runner

    def message(self) -> NewMessage:
        operation = f"o{self.randrange(200)}" if self._runner.can.idempotent and self.random() < 0.15 else None
        new = NewMessage(
            self.choice(TOPICS),
            self.choice([b"", b"1", b"\x00\xff", b"{}" * 50, b"L" * 2_000, b"[]", b"[[2]]"]),
            delay=min(self.choice(SPANS), self._runner.can.max_delay),
            at=self.instant() if self.random() < 0.4 else None,
            key=self.choice(KEYS) if self._runner.can.keys and self.random() < 0.3 else None,
            if_exists=self.choice(["keep", "replace", "later", "merge", "merge", "error"]),
            level=self.level(),
            expires_in=self.choice([0, 1, 20, 2_000, 100_000, 9 * DAY]) if self.random() < 0.3 else None,
            max_attempts=self.choice([1, 2, 3, 3, 3, 9]),
            headers=self.choice([{}, {}, {"x": "y"}, {"ü": ""}]),
            operation=operation,
        )
        if self._runner.can.past and new.if_exists == "keep" and self.random() < 0.2:
            return replace(new, past=self.past(new.max_attempts))
        if new.if_exists == "merge":
            if new.key is None:
                return replace(new, if_exists="keep")
            body = self.choice([b"[1]", b'["' + b"L" * 700 + b'"]'])
            return replace(new, body=body, largest=self.choice([1_000, 5_000]))
        if new.key is None or new.if_exists == "replace" or self.random() < 0.5:
            return new
        if new.if_exists != "later":
            return replace(new, unique_for=self.choice([1, 50, 60_000, DAY]))
        return replace(new, max_wait=min(new.delay + self.choice([1, 50, 60_000, DAY]), 36_525 * DAY))

    def past(self, most: int) -> Past:
        """Attempts that leave one more, or a dead letter."""
        dead = self.random() < 0.3
        attempt = most if dead else self.randrange(most)
        return Past(attempt, self.choice([None, "it broke ∅"]), self.choice([[], [b"why"], [b"a" * 5_000, b"\0"]]), dead)

    def level(self) -> int:
        return self.choice([1, 1, 1, 1, 0, 2]) if self._runner.can.priority else 1

    def instant(self) -> int:
        """Often within a millisecond of the due time of another message."""
        alive = list(self._runner.expected.alive.values())
        if alive and self.random() < 0.6:
            return self.choice(alive[-40:]).due + self.choice([0, 0, 0, -1, 1])
        return self._runner.clock + self.choice(SPANS) - self.choice([0, 0, 1])

    def some_topics(self) -> list[str]:
        return self.sample(TOPICS, self.choice([1, 2, 4, 4]))

    def refs(self, count: int) -> list[Ref]:
        living, known = self._runner.expected.living(), list(self._runner.expected.messages)[-50:]
        found = [Ref(id) for id in self.choices(living, k=count)] if living else []
        if known and self.random() < 0.3:
            found.append(Ref(self.choice(known)))
        if self._runner.can.keys and self.random() < 0.4:
            found.append(Ref(topic=self.choice(TOPICS), key=self.choice(KEYS)))
        return found or [Ref("no such id")]

    def end(self, handed: Sequence[Claimed]) -> End:
        """The end of a delivery, mostly of one that is still held; now and then with a wrong token, topic or id."""
        held = [each for each in handed if self._runner.model.held(each)]
        each = self.choice(held if held and self.random() < 0.8 else handed)
        verdicts: list[Verdict] = ["done", "done", "retry", "retry", "release", "dead"]
        verdict, aside = self.choice(verdicts), self.random() < 0.5
        end = End(
            each.topic,
            each.id,
            each.token,
            verdict,
            self.choice(SPANS),
            self.choice([None, "it broke", "∅"]),
            verdict == "release" and aside,
            self.choice([None, each.began, self._runner.clock]),
            self.choice([None, b"%d" % self.randrange(1_000), b"R" * 1_000, b"L" * 8_192]),
            self.choice([None, None, 1, 3, 12]) if verdict == "retry" else None,
        )
        if self.random() < 0.9:
            return end
        wrong = self.choice(["token", "topic", "id"])
        other = next(topic for topic in TOPICS if topic != each.topic)
        return replace(end, **{wrong: {"token": each.token + "0", "topic": other, "id": "no such id"}[wrong]})
