"""Which parts of the queue's engine do not answer: for a while a relay of an outbox puts off what is for them."""

import math
import time
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeAlias

from bide.engines.base import Claimed, End, NewMessage, Verdict
from bide.errors import OutcomeUnknown, Unavailable
from bide.logs import Log

Kept: TypeAlias = tuple[Claimed, NewMessage]

SOON = 500  # ms after a rest
MOST = 60_000  # ms of a rest, which grows as long as the part stays away

_log = Log("bide.outbox")


class Rest(NamedTuple):
    until: float  # by time.monotonic()
    pause: int  # ms
    why: str


class Rests:
    """Of the parts that have not answered, for all relays of a queue."""

    def __init__(self, part_of: Callable[[NewMessage], Hashable]) -> None:
        self._part_of = part_of
        self._all: dict[Hashable, Rest] = {}

    def begin(self, kept: Sequence[Kept], error: OutcomeUnknown | Unavailable, ms: int) -> None:
        """Try nothing for so long at the parts that these are for, and for longer each time until they answer; unless there is
        only one part.
        """
        now = time.monotonic()
        for part in {self._part_of(new) for _, new in kept} - {None}:
            before = self._all.get(part)
            if before is None or before.until <= now:
                pause = ms if before is None else max(ms, min(2 * before.pause, MOST))
                self._all[part] = Rest(now + pause / 1000, pause, str(error))

    def answered(self, kept: Sequence[Kept]) -> None:
        """The parts that these are for."""
        if self._all:
            for _, new in kept:
                self._all.pop(self._part_of(new), None)

    def of(self, kept: Sequence[Kept], now: float) -> list[Rest | None]:
        """Of the part that each of these is for."""
        resting = {part: rest for part, rest in list(self._all.items()) if rest.until > now}
        return [resting.get(self._part_of(new)) for _, new in kept] if resting else [None] * len(kept)


class Away:
    """What one relay puts off, since the part that it is for does not answer."""

    def __init__(self, rests: Rests) -> None:
        self._rests = rests
        self._told_at = -math.inf  # by time.monotonic(): when the log said so
        self.left: OutcomeUnknown | Unavailable | None = None  # why some were put off

    def answering(self, kept: Sequence[Kept], ends: list[End]) -> Sequence[Kept]:
        """Without those whose part rests. The ends of these are added to the list."""
        now = time.monotonic()
        there: list[Kept] = []
        for each, rest in zip(kept, self._rests.of(kept, now), strict=True):
            if rest is None:
                there.append(each)
                continue
            ends.append(end_of(each[0], "release", SOON + round(1000 * (rest.until - now))))
            if self.left is None:
                self.left = Unavailable(f"Some messages stay in the outbox, and are tried again later: {rest.why}")
        return there

    def put_off(self, kept: Sequence[Kept], ends: list[End], error: OutcomeUnknown | Unavailable, ms: int) -> None:
        """None of the parts that these are for has answered. Raises if there is only one part."""
        self._rests.begin(kept, error, ms)
        if self.answering(kept, ends):
            raise error
        self.tell(error, ms)

    def tell(self, error: OutcomeUnknown | Unavailable, ms: int) -> None:
        """Some are put off. The log says so at most once in so long."""
        now = time.monotonic()
        if now >= self._told_at + ms / 1000:
            self._told_at = now
            _log.warning("Some messages stay in the outbox, and are tried again: %s", error)
        self.left = error


def end_of(claimed: Claimed, verdict: Verdict = "done", delay: int = 0, error: str | None = None) -> End:
    return End(claimed.topic, claimed.id, claimed.token, verdict, delay, error)
