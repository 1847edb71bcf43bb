# unasync: ../sync/handover.py
"""What a relay has claimed, on its way to the queue's engine: together if that takes it, and one by one if not."""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TypeAlias

from bide.engines.aio import AsyncEngine
from bide.engines.base import Claim, Claimed, End
from bide.engines.guard.hooks import BadHook
from bide.errors import BadBody, BadMessage, OutcomeUnknown, QueueFull, Unavailable, Unsupported
from bide.logs import Log
from bide.queue import outbox
from bide.queue.away import LATER, SOON, Away, Kept, Rests, end_of, large_of, put_aside
from bide.types import Sent

OFTEN = 30  # tries of what this release can't hand on; each next one is LATER by as much again
SURE = 300_000  # ms for which what is not confirmed is tried again: a try after ten minutes would send it a second time
LONGEST = 120_000  # ms between two of these tries
WHILE = 3 * SOON  # ms for which a part that is full is left alone by what it may have room for

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

    async def put(self, kept: Sequence[Kept], ends: list[End], now: int, *, single: bool = False) -> None:
        """Together; if that is refused, one by one, and those that can't be sent become dead letters of the outbox.

        What this engine can't take stays, for a relay to another one; and what a hook of this relay has spoilt.
        """
        if not kept:
            return
        left: list[Kept] = []
        try:
            how = {"brief": True} if self._has_parts(kept) else {}
            sent: Sequence[Sent] = await self._target.put([new for _, new in kept], **how)
        except OutcomeUnknown as error:
            if isinstance(error.__cause__, BadMessage):  # the one that is refused has taken others along
                await self._put_singly(kept, ends, now)
                return
            kept, sent = self._done(kept, ends, error, now, left)
        except Unavailable as error:
            self.away.put_off(kept, ends, error, LATER)
            return
        except (BadMessage, Unsupported, QueueFull) as error:
            full = isinstance(error, QueueFull) and self._has_parts(kept)
            if len(kept) > 1 or (full and not single):  # the part of these: others may have room
                await self._put_singly(kept, ends, now)
            elif isinstance(error, Unsupported | BadHook):
                ends.append(self._stays(kept[0][0], error))
            elif isinstance(error, BadMessage):
                ends.append(_refused_end(kept[0][0], error))
            else:
                raise
            return
        else:
            self._rests.answered(kept)
        await self._name(kept, sent, now)
        ends += [end_of(claimed) for claimed, _ in kept]
        await self._put_singly(left, ends, now)

    def _done(
        self, kept: Sequence[Kept], ends: list[End], error: OutcomeUnknown, now: int, left: list[Kept]
    ) -> tuple[Sequence[Kept], Sequence[Sent]]:
        """What was handed on of a batch, with its answers. The rest is put off, and keeps no others back: nor does what is
        sent to the same parts of the queue's engine, which rest for a while. If one is full, the rest is added to `left`.

        What was not confirmed is sent again, by the same operation, for as long as the queue's engine is sure to know it.
        """
        told = error.done or error.answers
        if not any(told):
            self.away.put_off(kept, ends, error, LATER)
            return [], []
        full = isinstance(error.__cause__, QueueFull) and self._target.capabilities.idempotent
        if not full:
            self.away.tell(error, LATER)
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
                self._rests.begin(each, error, LATER)
            if answer is not None or (done is not None and age >= SURE):
                handed_on.append((claimed, new))
                sent.append(done)
            elif done is not None or self.away.answering(each, ends):
                ends.append(end_of(claimed, "release", LATER if done is None else min(max(LATER, age), LONGEST)))
        return handed_on, sent

    async def _put_singly(self, kept: Sequence[Kept], ends: list[End], now: int) -> None:
        """One that stays, or finds no room, keeps back only later ones of its key, and as large ones of its part. Of several
        parts, one that has no room for any rests; but not for small ones.

        Raises QueueFull if there is only one part, and it has no room for some.
        """
        full: QueueFull | None = None
        room: dict[Hashable, int] = {}  # in parts that are full: for less than so many bytes
        refused: dict[Hashable, list[Kept]] = {}
        took = set[Hashable]()  # parts that have room for some
        stuck: set[outbox.Name] = set()
        for claimed, new in kept:
            each, name = (claimed, new), outbox.Name(new.topic, new.key)
            if self.away.answering([each], ends):
                if name in stuck:
                    ends.append(end_of(claimed, "release", SOON))
                    continue
                part, size = self._target.part_of(new), len(new.body)
                try:
                    if size >= room.get(part, size + 1):
                        refused[part].append(each)
                    else:
                        await self.put([each], ends, now, single=True)
                        if ends[-1].verdict != "release":
                            took.add(part)
                            continue
                except QueueFull as error:
                    full, room[part] = error, size
                    refused.setdefault(part, []).append(each)
            if name.key is not None:
                stuck.add(name)
        if full is None:
            return
        if None in room:
            raise full
        self.away.tell(full, LATER)
        for part, some in refused.items():
            if part not in took:
                self._rests.begin(some, full, LATER, large_of(len(new.body) for _, new in some))
            left = self.away.answering(some, ends)
            ends += put_aside([claimed for claimed, _ in left], WHILE, full=part in took)

    def _has_parts(self, kept: Sequence[Kept]) -> bool:
        """Whether the queue's engine has several, of which one that does not answer must not keep back what is for others."""
        return self._target.part_of(kept[0][1]) is not None

    def _stays(self, claimed: Claimed, error: Unsupported | BadHook) -> End:
        _log.warning("A message stays in the outbox: %s", error)
        self.for_others = True
        return end_of(claimed, "release", LATER * min(claimed.attempt, OFTEN))


def _refused_end(claimed: Claimed, error: BadMessage) -> End:
    _log.error("A message of the outbox was refused, and is a dead letter of it now: %s", error)
    return end_of(claimed, "dead", error=str(error))
