# unasync: ../sync/handover.py
"""What a relay has claimed, on its way to the queue's engine: together if that takes it, and one by one if not."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from bide.engines.aio import AsyncEngine
from bide.engines.base import Claim, Claimed, End
from bide.engines.guard.hooks import BadHook
from bide.errors import BadBody, BadMessage, OutcomeUnknown, QueueFull, Unavailable, Unsupported
from bide.logs import Log
from bide.queue import outbox
from bide.queue.away import LATER, SILENCE, SOON, Away, Kept, Rests, end_of, small_first
from bide.types import Sent

OFTEN = 30  # tries of what this release can't hand on; each next one is LATER by as much again
SURE = 300_000  # ms for which what is not confirmed is tried again: a try after ten minutes would send it a second time
LONGEST = 120_000  # ms between two of these tries
AT_MOST = 1.5  # seconds for what is sent one by one; the rest is tried again soon
WHILE = 3 * SOON  # ms until it is tried again whether there is room; a server that has refused a large one may need as long

Name: TypeAlias = Callable[[Sequence[Kept], Sequence[Sent], int], Awaitable[None]]

_log = Log("bide.outbox")


class AsyncHandover:
    """Of one relay. The ends of all that it is given, in the outbox, are added to a list."""

    def __init__(self, target: AsyncEngine, name: Name) -> None:
        """`name`: remembers which ids messages have in the queue."""
        self._target = target
        self._name = name
        self._rests = Rests(target.part_of)
        self.away: Away = Away(self._rests)
        self._until = 0.0  # by time.monotonic(): no more is sent one by one
        self.for_others: bool = False  # whether there was something that this release can't hand on

    def read(self, claim: Claim, ends: list[End]) -> list[Kept]:
        """What is to be handed on. The ends of all others are added to the list."""
        kept: list[Kept] = []
        for each in sorted(claim.messages, key=lambda each: each.id):
            try:
                new = outbox.handed_on(each, claim.now, once=self._target.capabilities.idempotent)
            except Unsupported as error:
                ends.append(self._stays(each, error))
            except BadBody as error:
                ends.append(_refused_end(each, error))
            else:
                if new is None:
                    ends.append(end_of(each))
                else:
                    kept.append((each, new))
        return kept

    async def put(self, kept: Sequence[Kept], ends: list[End], now: int) -> None:
        """Together, but for what may find no answer, and what may find no room: of that one is tried before others are sent."""
        left, stuck = list(kept), set[outbox.Name]()
        self._until = time.monotonic() + AT_MOST
        while left and time.monotonic() < self._until:
            sure, silent, full = self._parted(left, ends, stuck)
            some = sure or silent or full[:1]
            left = [*(silent if sure else ()), *(full if sure or silent else full[1:])]
            await self._put(some, ends, now, stuck)
            self._stick(some, ends, stuck)
        ends += [end_of(claimed, "release", SOON) for claimed, _ in left]

    def _parted(
        self, left: Sequence[Kept], ends: list[End], stuck: set[outbox.Name]
    ) -> tuple[list[Kept], list[Kept], list[Kept]]:
        """What is sure to find an answer and room, as far as is known; what may find no answer; what may find no room."""
        sure, silent, full = list[Kept](), list[Kept](), list[Kept]()
        if not self._rests and not stuck:
            return list(left), [], []
        doubtful: dict[outbox.Name, int] = {}  # a later one of a key is not sent before an earlier one
        for each in left:
            name = _name(each)
            if name in stuck:
                ends.append(end_of(each[0], "release", SOON))
            elif not self.away.answering([each], ends):
                self._stick([each], ends, stuck)
            elif doubts := [doubt for doubt in (self._rests.doubt(each), doubtful.get(name)) if doubt is not None]:
                (silent if max(doubts) == SILENCE else full).append(each)
                if name.key is not None:
                    doubtful[name] = max(doubts)
            else:
                sure.append(each)
        return sure, silent, small_first(full)

    def _stick(self, some: Sequence[Kept], ends: Sequence[End], stuck: set[outbox.Name]) -> None:
        """What stays keeps back later ones of its key."""
        gone = {end.id for end in ends if end.verdict != "release"}
        stuck |= {_name(each) for each in some if each[1].key is not None and each[0].id not in gone}

    async def _put(self, kept: Sequence[Kept], ends: list[End], now: int, stuck: set[outbox.Name]) -> None:
        """If they are refused, one by one, and those that can't be sent become dead letters of the outbox.

        What this engine can't take stays, for a relay to another one; and what a hook of this relay has spoilt.
        """
        if not kept:
            return
        left: list[Kept] = []
        try:
            # a part that does not answer must not keep back what is for others
            how = {} if self._target.part_of(kept[0][1]) is None else {"brief": True}
            sent: Sequence[Sent] = await self._target.put([new for _, new in kept], **how)
        except OutcomeUnknown as error:
            if isinstance(error.__cause__, BadMessage):  # the one that is refused has taken others along
                await self._put_singly(kept, ends, now, stuck)
                return
            kept, sent = self._done(kept, ends, error, now, left)
        except Unavailable as error:
            self.away.put_off(kept, ends, error)
            return
        except (BadMessage, Unsupported, QueueFull) as error:
            if isinstance(error, QueueFull) and not self._target.capabilities.idempotent:
                raise
            if len(kept) > 1:
                if isinstance(error, QueueFull):
                    self._rests.suspect(kept)
                await self._put_singly(kept, ends, now, stuck)
            elif isinstance(error, QueueFull):
                self._rests.fill(kept[0], error, WHILE)
                self.away.tell(error)
                self.away.answering(kept, ends)
            elif isinstance(error, Unsupported | BadHook):
                ends.append(self._stays(kept[0][0], error))
            else:
                ends.append(_refused_end(kept[0][0], error))
            return
        else:
            self._rests.answered(kept)
        await self._name(kept, sent, now)
        ends += [end_of(claimed) for claimed, _ in kept]
        self._rests.suspect(left)
        await self._put_singly(left, ends, now, stuck)

    def _done(
        self, kept: Sequence[Kept], ends: list[End], error: OutcomeUnknown, now: int, left: list[Kept]
    ) -> tuple[Sequence[Kept], Sequence[Sent]]:
        """What was handed on of a batch, with its answers. The rest is put off, and keeps no others back: nor does what is
        sent to the same parts of the queue's engine, which rest for a while. If one is full, the rest is added to `left`.

        What was not confirmed is sent again, by the same operation, for as long as the queue's engine is sure to know it.
        """
        told = error.done or error.answers
        if not any(told):
            self.away.put_off(kept, ends, error)
            return [], []
        full = isinstance(error.__cause__, QueueFull) and self._target.capabilities.idempotent
        if not full:
            self.away.tell(error)
        handed_on: list[Kept] = []
        sent: list[Sent] = []
        answers = error.answers or [None] * len(kept)
        for (claimed, new), answer, done in zip(kept, answers, told, strict=True):
            each = [(claimed, new)]
            if full and done is None:
                left += each
                continue
            age = 0 if claimed.began is None else now - claimed.began
            if done is not None:
                self._rests.answered(each)
            if answer is None:
                self._rests.begin(each, error, SOON if done is None else LATER)
            if answer is not None or (done is not None and age >= SURE):
                handed_on.append((claimed, new))
                sent.append(done)
            elif done is not None or self.away.answering(each, ends):
                ends.append(end_of(claimed, "release", LATER if done is None else min(max(LATER, age), LONGEST)))
        return handed_on, sent

    async def _put_singly(self, kept: Sequence[Kept], ends: list[End], now: int, stuck: set[outbox.Name]) -> None:
        """One that stays, or finds no room, keeps back only later ones of its key, and as large ones of its part."""
        for each in small_first(kept):
            name = _name(each)
            if self.away.answering([each], ends):
                if name in stuck or time.monotonic() > self._until:
                    ends.append(end_of(each[0], "release", SOON))
                else:
                    await self._put([each], ends, now, stuck)
                    if ends[-1].verdict != "release":
                        continue
            if name.key is not None:
                stuck.add(name)

    def _stays(self, claimed: Claimed, error: Unsupported | BadHook) -> End:
        _log.warning("A message stays in the outbox: %s", error)
        self.for_others = True
        return end_of(claimed, "release", LATER * min(claimed.attempt, OFTEN))


def _name(each: Kept) -> outbox.Name:
    return outbox.Name(each[1].topic, each[1].key)


def _refused_end(claimed: Claimed, error: BadMessage) -> End:
    _log.error("A message of the outbox was refused, and is a dead letter of it now: %s", error)
    return end_of(claimed, "dead", error=str(error))
