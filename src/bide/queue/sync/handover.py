# Generated from ../aio/handover.py by tools/unasync.py; change that file instead.
"""What a relay has claimed, on its way to the queue's engine."""

import math
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from bide.core.formats import plural
from bide.engines.base import Claim, Claimed, End
from bide.engines.each import error_of_each
from bide.engines.guard.hooks import BadHook
from bide.engines.sync import Engine
from bide.errors import BadBody, BadMessage, BideError, OutcomeUnknown, QueueFull, Unsupported
from bide.logs import Log
from bide.queue import outbox
from bide.queue.relay import LATER, SOON, Away, Halves, Kept, Lately, Rests, end_of
from bide.types import Sent
from bide.wakeable import Signal

OFTEN = 30  # tries of what this release can't hand on; each next one is LATER by as much again
SURE = 300_000  # ms for which what is not confirmed is tried again: a try after ten minutes would send it a second time
LONGEST = 120_000  # ms between two of these tries
AT_MOST = 1.5  # seconds for further calls, once a message has its end; what has none then is tried again soon
WHILE = 3 * SOON  # ms until it is tried again whether there is room; a server that has refused a large one may need as long

Name: TypeAlias = Callable[[Sequence[Kept], Sequence[Sent], int], None]

_log = Log("bide.outbox")


class Handover:
    """Of one relay. The ends of all that it is given, in the outbox, are added to a list."""

    def __init__(self, target: Engine, name: Name) -> None:
        """`name`: remembers which ids messages have in the queue."""
        self._target = target
        self._name = name
        self._rests = Rests(target.part_of)
        self._tries = Lately[int]()  # of what can't be handed on
        self._staying: list[BideError] = []  # why, of what the log has not told yet
        self.away: Away = Away(self._rests)
        self.again_soon: bool = False  # whether the last call of put has released some only for a moment
        self.for_others: bool = False  # whether there was something that this release can't hand on

    def read(self, claim: Claim, ends: list[End]) -> list[Kept]:
        """What is to be handed on. The ends of all others are added to the list."""
        kept: list[Kept] = []
        self.away.claimed(claim.messages)
        for each in sorted(claim.messages, key=lambda each: each.id):
            try:
                new = outbox.handed_on(each, claim.now, once=self._target.capabilities.idempotent)
            except Unsupported as error:
                ends.append(self._stay(each, error))
            except BadBody as error:
                ends.append(_refused_end(each, error))
            else:
                if new is None:
                    ends.append(end_of(each))
                else:
                    kept.append((each, new))
        self._tell_what_stays()
        return kept

    def put(self, kept: Sequence[Kept], ends: list[End], now: int) -> None:
        """One batch after the other, until each message has its end or the time is over: then the rest is tried again soon."""
        halves = Halves(kept, self._rests, self.away)
        self.again_soon = False
        patience = until = math.inf
        while (some := halves.next(ends)) and time.monotonic() < until:
            if patience < math.inf:
                Signal().wait(0)  # the last call may have let nothing else run
            before = len(ends)
            self._put(some, ends, now, halves)
            patience = min(patience, time.monotonic() + AT_MOST)
            if len(ends) > before:
                until = patience
        ended = {end.id for end in ends}
        left = [end_of(claimed, "release", SOON) for claimed, _ in kept if claimed.id not in ended]
        ends += left
        self.again_soon = self.again_soon or bool(left)
        self._tries.forget(end.id for end in ends if end.verdict != "release")

    def _put(self, kept: Sequence[Kept], ends: list[End], now: int, halves: Halves) -> None:
        """Once. What is to be tried again at once has no end after that."""
        before = len(ends)
        done: list[tuple[Kept, Sent]] = []
        unknown: list[BideError] = []
        failed: dict[int, tuple[BideError, list[Kept]]] = {}
        for each, (sent, error) in zip(kept, self._ask(kept), strict=True):
            if sent is not None:
                self._rests.answered([each])
                if error is None or not self._unconfirmed(each, error, ends, now):
                    done.append((each, sent))
            elif isinstance(error, OutcomeUnknown) and not self._target.capabilities.idempotent:
                unknown.append(error)  # it may be there: it is neither sent again at once nor free to be cancelled
                ends.append(self.away.put_off(each[0], error, SOON))
            elif error is not None:
                failed.setdefault(id(error), (error, []))[1].append(each)
        self._name([each for each, _ in done], [sent for _, sent in done], now)
        ends += [end_of(claimed) for (claimed, _), _ in done]
        lost = [(error, some) for error, some in failed.values() if not self._refused(some, error, ends, halves)]
        self._tell_what_stays()
        for error, some in lost:
            if isinstance(error, QueueFull):
                self._rests.fill(some[0], error, WHILE)
            else:
                self._rests.begin(some, error, SOON)
            if self.away.answering(some, ends) and len(ends) == before:  # there is only one part
                raise error
        if unknown and len(ends) == before + len(unknown):
            raise unknown[0]
        self.again_soon = self.again_soon or bool(unknown)

    def _ask(self, kept: Sequence[Kept]) -> Sequence[tuple[Sent | None, BideError | None]]:
        """What became of each."""
        # a part that does not answer must not keep back what is for others
        how = {} if self._target.part_of(kept[0][1]) is None else {"brief": True}
        try:
            return [(sent, None) for sent in self._target.put([new for _, new in kept], **how)]
        except BideError as error:
            known: Sequence[Sent | None] = (error.done or error.answers) if isinstance(error, OutcomeUnknown) else ()
            return list(zip(known or [None] * len(kept), error_of_each(error, len(kept)), strict=True))

    def _unconfirmed(self, each: Kept, error: BideError, ends: list[End], now: int) -> bool:
        """Whether it is sent again, by the same operation. It is for as long as the queue's engine is sure to know that."""
        claimed, _ = each
        age = 0 if claimed.began is None else now - claimed.began
        self._rests.begin([each], error, LATER)
        if age < SURE:
            ends.append(self.away.put_off(claimed, error, min(max(LATER, age), LONGEST)))
        return age < SURE

    def _refused(self, some: Sequence[Kept], error: BideError, ends: list[End], halves: Halves) -> bool:
        """Whether that is why these were not handed on, and not that nobody answered or has room. What is refused by itself
        becomes a dead letter of the outbox.

        What this engine can't take stays, for a relay to another one; and what a hook of this relay has spoiled.
        """
        if isinstance(error, QueueFull) and not self._target.capabilities.idempotent:
            raise error
        if isinstance(error, BadMessage | Unsupported | QueueFull) and len(some) > 1:
            halves.refused(some)
            if isinstance(error, QueueFull):
                self._rests.suspect(some, error)
        elif isinstance(error, Unsupported | BadHook):
            ends.append(self._stay(some[0][0], error))
        elif isinstance(error, BadMessage):
            ends.append(_refused_end(some[0][0], error))
        else:
            return False
        return True

    def _stay(self, claimed: Claimed, error: Unsupported | BadHook) -> End:
        self._staying.append(error)
        delay = LATER * min(self._tries.get(claimed.id, 0) + 1, OFTEN)
        self._tries.note(claimed.id, delay // LATER, delay)
        return end_of(claimed, "release", delay)

    def _tell_what_stays(self) -> None:
        if self._staying:
            many = plural(len(self._staying), "message")
            _log.warning("%s of the outbox can't be handed on by this relay: %s", many, self._staying[0])
            self.for_others = True
            self._staying = []


def _refused_end(claimed: Claimed, error: BadMessage) -> End:
    _log.error("A message of the outbox was refused, and is a dead letter of it now: %s", error)
    return end_of(claimed, "dead", error=str(error))
