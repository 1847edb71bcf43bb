"""Which parts of the queue's engine do not answer: for a while a relay of an outbox puts off what is for them."""

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


class Away:
    def __init__(self, part_of: Callable[[NewMessage], Hashable]) -> None:
        self._part_of = part_of
        self._rests: dict[Hashable, Rest] = {}  # of parts that have not answered since then
        self._told_at = 0.0  # by time.monotonic(): when the log said so
        self.left: OutcomeUnknown | Unavailable | None = None  # why some that others did not keep back were put off

    def begin(self) -> None:
        """Tell of what is put off from now on."""
        self.left = None

    def rest(self, kept: Sequence[Kept], ms: int) -> None:
        """Try nothing for so long at the parts that these are for, and for longer each time until they answer; unless there is
        only one part.
        """
        now = time.monotonic()
        for part in {self._part_of(new) for _, new in kept} - {None}:
            before = self._rests.get(part)
            if before is None or before.until <= now:
                pause = ms if before is None else max(ms, min(2 * before.pause, MOST))
                self._rests[part] = Rest(now + pause / 1000, pause)

    def answered(self, kept: Sequence[Kept]) -> None:
        """The parts that these are for."""
        if self._rests:
            for _, new in kept:
                self._rests.pop(self._part_of(new), None)

    def answering(self, kept: Sequence[Kept], ends: list[End]) -> Sequence[Kept]:
        """Without those whose part rests. The ends of these are added to the list."""
        now = time.monotonic()
        resting = {part: rest.until for part, rest in self._rests.items() if rest.until > now}
        if not resting:
            return kept
        there: list[Kept] = []
        for claimed, new in kept:
            until = resting.get(self._part_of(new))
            if until is None:
                there.append((claimed, new))
            else:
                ends.append(end_of(claimed, "release", SOON + round(1000 * (until - now))))
        return there

    def put_off(self, kept: Sequence[Kept], ends: list[End], error: OutcomeUnknown | Unavailable, ms: int) -> None:
        """None of the parts that these are for has answered. Raises if there is only one part."""
        self.rest(kept, ms)
        if self.answering(kept, ends):
            raise error
        self.tell(error, ms)

    def tell(self, error: OutcomeUnknown | Unavailable, ms: int) -> None:
        """Some are put off. The log says so at most once in so long."""
        told_at = time.monotonic()
        if self.left is None or told_at >= self._told_at + ms / 1000:
            self._told_at = told_at
            _log.warning("Some messages stay in the outbox, and are tried again: %s", error)
        self.left = error


def end_of(claimed: Claimed, verdict: Verdict = "done", delay: int = 0, error: str | None = None) -> End:
    return End(claimed.topic, claimed.id, claimed.token, verdict, delay, error)
