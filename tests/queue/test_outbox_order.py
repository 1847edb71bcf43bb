"""Random claims of an outbox, of which the queue takes some: of each key, what was sent first is handed on first."""

import contextlib
import random
from collections.abc import Hashable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bide.engines.base import Claimed, End, NewMessage
from bide.engines.each import keep_each
from bide.engines.sync import Engine
from bide.errors import BadMessage, BideError, OutcomeUnknown, QueueFull, Unavailable
from bide.queue.relay import Kept
from bide.queue.sync.handover import Handover
from bide.types import Sent

KEYS = (None, "a", "b", "c")
SIZES = (10, 10, 3_000, 9_000)
REASONS: tuple[type[BideError], ...] = (QueueFull, QueueFull, Unavailable, BadMessage)
PAUSES = (0.1, 1.0, 2.0, 5.0, 30.0)  # seconds


class Fickle:
    """A queue's engine: each of its parts takes all that a call has for it, or nothing."""

    def __init__(self, chance: random.Random, parts: int) -> None:
        self.capabilities = SimpleNamespace(idempotent=True)
        self.taken: list[NewMessage] = []
        self._chance = chance
        self._parts = parts
        self._failing = chance.choice((0.2, 0.5, 0.8))

    def part_of(self, new: NewMessage) -> Hashable:
        return None if self._parts == 1 else self._part(new)

    def _part(self, new: NewMessage) -> int:
        return KEYS.index(new.key) % self._parts

    def put(self, messages: Sequence[NewMessage], **_: Any) -> Sequence[Sent]:
        failing = {
            part: self._chance.choice(REASONS)("No.")
            for part in sorted({self._part(each) for each in messages})
            if self._chance.random() < self._failing
        }
        errors = [failing.get(self._part(each)) for each in messages]
        answers = [None if error else Sent("1", "t", 0, "created") for error in errors]
        self.taken += [each for each, error in zip(messages, errors, strict=True) if error is None]
        if any(answers) and failing:
            raise keep_each(OutcomeUnknown("Some failed.", answers=answers), errors)
        if failing:
            first = next(iter(failing.values()))
            raise keep_each(type(first)("All failed."), errors) if len(failing) > 1 else first
        return [each for each in answers if each is not None]


class Box:
    """What is in the outbox, with what was sent first at the beginning."""

    def __init__(self, chance: random.Random) -> None:
        self.waiting: dict[str, Kept] = {}
        self._chance = chance
        self._count = 0

    def send(self) -> None:
        self._count += 1
        id, key, body = f"{self._count:06}", self._chance.choice(KEYS), b"x" * self._chance.choice(SIZES)
        claimed = Claimed(id, "bide.outbox", body, {}, None, 0, 0, 1, 0, "token")
        self.waiting[id] = claimed, NewMessage("t", body, key=key)

    def claim(self, handover: Handover, ends: list[End]) -> list[Kept]:
        """As a relay does: what is behind one that rests waits for it."""
        all = list(self.waiting.values())
        there = {claimed.id for claimed, _ in handover.away.answering(all, ends)}
        behind, kept = set[str](), list[Kept]()
        for claimed, new in all:
            if claimed.id not in there and new.key is not None:
                behind.add(new.key)
            elif claimed.id in there and new.key not in behind:
                kept.append((claimed, new))
        return kept


@pytest.mark.parametrize("seed", range(300))
def test_what_was_sent_first_with_a_key_is_handed_on_first(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    now = 1_000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    engine, box = Fickle(chance, chance.choice((1, 1, 3))), Box(chance)
    handover = Handover(cast(Engine, engine), lambda *_: None)
    for _ in range(6):
        for _ in range(chance.randrange(1, 10)):
            box.send()
        ends: list[End] = []
        kept = box.claim(handover, ends)
        engine.taken = []
        with contextlib.suppress(BideError):  # the only part, or the only one that was asked, takes nothing
            handover.put(kept, ends, 0)
        places = {id(new): at for at, new in enumerate(engine.taken)}
        assert len(places) == len(engine.taken), "one was handed on twice"
        over = {end.id for end in ends if end.verdict != "release"}
        newest: dict[str, int] = {}
        for name, (_, new) in box.waiting.items():
            place = places.get(id(new))
            if new.key is None or (place is None and name in over):  # the last is a dead letter
                continue
            assert place is None or place > newest.get(new.key, -1), f"{name} was handed on before an earlier one of its key"
            newest[new.key] = len(places) if place is None else place
        box.waiting = {name: each for name, each in box.waiting.items() if name not in over and id(each[1]) not in places}
        now += chance.choice(PAUSES)
