# unasync: ../sync/handover.py
"""What a relay has claimed, on its way to the queue's engine: all together, and in halves what is refused together."""

import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import TypeAlias

from bide.core.amounts import plural
from bide.engines.aio import AsyncEngine
from bide.engines.base import Claim, Claimed, End
from bide.engines.each import error_of_each
from bide.engines.guard.hooks import BadHook
from bide.errors import BadBody, BadMessage, BideError, OutcomeUnknown, QueueFull, Unsupported
from bide.logs import Log
from bide.queue import outbox
from bide.queue.away import LATER, NO_DOUBT, SILENCE, SOON, Away, Kept, Rests, end_of, small_first
from bide.types import Sent

OFTEN = 30  # tries of what this release can't hand on; each next one is LATER by as much again
SURE = 300_000  # ms for which what is not confirmed is tried again: a try after ten minutes would send it a second time
LONGEST = 120_000  # ms between two of these tries
AT_MOST = 1.5  # seconds for further calls, once a message has its end; what has none then is tried again soon
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
        self._tries = Counter[str]()  # of what can't be handed on, by its id
        self.away: Away = Away(self._rests)
        self.cut_short: bool = False  # whether there was no time to try all that the last call of put was given
        self.for_others: bool = False  # whether there was something that this release can't hand on

    def read(self, claim: Claim, ends: list[End]) -> list[Kept]:
        """What is to be handed on. The ends of all others are added to the list."""
        kept: list[Kept] = []
        self.away.claimed(claim.messages)
        for each in sorted(claim.messages, key=lambda each: each.id):
            try:
                new = outbox.handed_on(each, claim.now, once=self._target.capabilities.idempotent)
            except Unsupported as error:
                ends += self._stay([each], error)
            except BadBody as error:
                ends.append(_refused_end(each, error))
            else:
                if new is None:
                    ends.append(end_of(each))
                else:
                    kept.append((each, new))
        return kept

    async def put(self, kept: Sequence[Kept], ends: list[End], now: int) -> None:
        """One batch after the other, until each message has its end or the time is over: then the rest is tried again soon."""
        company = dict[str, int]()  # how many are sent together at most, by the id of what was refused together
        patience = until = math.inf
        while (some := self._next(kept, ends, company)) and time.monotonic() < until:
            before = len(ends)
            await self._put(some, ends, now, company)
            patience = min(patience, time.monotonic() + AT_MOST)
            if len(ends) > before:
                until = patience
        ended = {end.id for end in ends}
        left = [end_of(claimed, "release", SOON) for claimed, _ in kept if claimed.id not in ended]
        ends += left
        self.cut_short = bool(left)
        for end in ends:
            if end.verdict != "release":
                self._tries.pop(end.id, None)

    def _next(self, kept: Sequence[Kept], ends: list[End], company: dict[str, int]) -> Sequence[Kept]:
        """Of those that have no end yet: all that is sure to find an answer and room, as far as is known; else what may find no
        answer; else one that may find no room. What stays keeps back later ones of its key.
        """
        verdicts = {end.id: end.verdict for end in ends}
        sure, silent, full = list[Kept](), list[Kept](), list[Kept]()
        stuck, doubts = set[outbox.Name](), dict[outbox.Name, int]()
        for each in kept:
            claimed, new = each
            name, verdict = outbox.Name(new.topic, new.key), verdicts.get(claimed.id)
            if verdict is None and name in stuck:
                ends.append(end_of(claimed, "release", SOON))
            elif verdict is None and self.away.answering([each], ends):
                doubt = max(self._rests.doubt(each), doubts.get(name, NO_DOUBT))
                (sure if doubt == NO_DOUBT else silent if doubt == SILENCE else full).append(each)
                if new.key is not None:  # a later one is not sent before an earlier one
                    doubts[name] = doubt
            elif verdict in (None, "release") and new.key is not None:
                stuck.add(name)
        some = sure or silent or small_first(full)[:1]
        if not company or not some:
            return some
        most = company.get(some[0][0].id, 0)
        together = list(takewhile(lambda each: company.get(each[0].id, 0) == most, some))
        return together[: most or len(together)]

    async def _put(self, kept: Sequence[Kept], ends: list[End], now: int, company: dict[str, int]) -> None:
        """Once. What is to be tried again at once has no end after that."""
        before = len(ends)
        done: list[tuple[Kept, Sent]] = []
        failed: dict[int, tuple[BideError, list[Kept]]] = {}
        for each, (sent, error) in zip(kept, await self._ask(kept), strict=True):
            if sent is not None:
                self._rests.answered([each])
                if error is None or not self._unconfirmed(each, error, ends, now):
                    done.append((each, sent))
            elif error is not None:
                failed.setdefault(id(error), (error, []))[1].append(each)
        await self._name([each for each, _ in done], [sent for _, sent in done], now)
        ends += [end_of(claimed) for (claimed, _), _ in done]
        lost = [(error, some) for error, some in failed.values() if not self._refused(some, error, ends, company)]
        for error, some in lost:
            if isinstance(error, QueueFull):
                self._rests.fill(some[0], error, WHILE)
            else:
                self._rests.begin(some, error, SOON)
            if self.away.answering(some, ends) and len(ends) == before:  # there is only one part
                raise error

    async def _ask(self, kept: Sequence[Kept]) -> Sequence[tuple[Sent | None, BideError | None]]:
        """What became of each."""
        # a part that does not answer must not keep back what is for others
        how = {} if self._target.part_of(kept[0][1]) is None else {"brief": True}
        try:
            return [(sent, None) for sent in await self._target.put([new for _, new in kept], **how)]
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

    def _refused(self, some: Sequence[Kept], error: BideError, ends: list[End], company: dict[str, int]) -> bool:
        """Whether that is why these were not handed on, and not that nobody answered or has room. What is refused by itself
        becomes a dead letter of the outbox.

        What this engine can't take stays, for a relay to another one; and what a hook of this relay has spoiled.
        """
        claimed = [each for each, _ in some]
        if isinstance(error, QueueFull) and not self._target.capabilities.idempotent:
            raise error
        if isinstance(error, BadHook):
            ends += self._stay([claimed[at] for at in error.spoiled], error)
        elif isinstance(error, BadMessage | Unsupported | QueueFull) and len(some) > 1:
            company |= dict.fromkeys([each.id for each in claimed], (len(some) + 1) // 2)
            if isinstance(error, QueueFull):
                self._rests.suspect(some, error)
        elif isinstance(error, Unsupported):
            ends += self._stay(claimed, error)
        elif isinstance(error, BadMessage):
            ends += [_refused_end(each, error) for each in claimed]
        else:
            return False
        return True

    def _stay(self, claimed: Sequence[Claimed], error: Unsupported | BadHook) -> list[End]:
        _log.warning("%s of the outbox can't be handed on by this relay: %s", plural(len(claimed), "message"), error)
        self.for_others = True
        self._tries.update(each.id for each in claimed)
        return [end_of(each, "release", LATER * min(self._tries[each.id], OFTEN)) for each in claimed]


def _refused_end(claimed: Claimed, error: BadMessage) -> End:
    _log.error("A message of the outbox was refused, and is a dead letter of it now: %s", error)
    return end_of(claimed, "dead", error=str(error))
