"""Messages that an engine may remove before tend reports it: expired ones, and dead letters that are too old or too many."""

from bide.engines.base import Ref
from tests.model.expected import Expected, Message, check_oldest, insist


class Leaving:
    def __init__(self, expected: Expected, *, dead_for: int, dead_max: int) -> None:
        self.expected = expected
        self.dead_for = dead_for
        self.dead_max = dead_max
        self.faded: dict[str, str] = {}  # expired, not yet counted by tend: topics by id
        self.met: set[str] = set()  # of them, those that another verb may have removed

    def fade(self, message: Message) -> None:
        self.faded[message.id] = message.topic

    def meet(self, topic: str) -> None:
        """A verb has read the topic, and may have removed its expired messages."""
        self.met.update(id for id, where in self.faded.items() if where == topic)

    def meet_one(self, ref: Ref) -> None:
        """A verb has read this message, and may have removed it if it has expired."""
        if ref.id and ref.id in self.faded:
            self.met.add(ref.id)
        self.meet(ref.topic or "")

    def fading(self, now: int) -> bool:
        """Whether there are expired messages that tend has not removed: stats and scan may still show them."""
        now = max(now, self.expected.now)
        return bool(self.faded) or any(each.pending and each.too_late(now) for each in self.expected.alive.values())

    def expired(self, told: int) -> None:
        """`told`: how many tend says that it has removed; other verbs have removed the rest."""
        most = len(self.faded)
        insist(most - len(self.met) <= told <= most, f"tend: {told} expired, not {most} less {len(self.met)} at most.")
        self.faded.clear()
        self.met.clear()

    def overfull(self, now: int) -> list[Message]:
        """Dead letters that are too old or too many: an engine may drop them before tend is called."""
        now = max(now, self.expected.now)
        found: list[Message] = []
        for topic in {each.topic for each in self.expected.alive.values()}:
            dead = sorted(self.expected.of(topic, "dead"), key=lambda each: each.died)
            old = sum(now - each.died >= self.dead_for for each in dead)
            found += dead[: max(old, len(dead) - self.dead_max)]
        return found

    def may_be_dropped(self, message: Message) -> bool:
        """The engine may choose among messages that died in the same millisecond."""
        last = max((each.died for each in self.overfull(self.expected.now) if each.topic == message.topic), default=-1)
        return message.stage == "dead" and message.died <= last

    def dropped(self, told: int, left: set[str] | None) -> None:
        """`told`: how many dead letters tend says that it has dropped. `left`: those that a scan shows afterwards."""
        due = self.overfull(self.expected.now)
        if left is not None:
            dead = [each for each in self.expected.alive.values() if each.stage == "dead"]
            gone = [each for each in dead if each.id not in left]
            check_oldest("tend", due, gone)
            due = gone
        for message in due:
            self.expected.drop(message, message.died + self.dead_for)
        insist(told <= len(due), f"tend: {told} dead ones dropped, expected {len(due)} at most.")
