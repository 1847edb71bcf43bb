"""Lets tests that were written for engines that answer at once run on an engine whose messages take a moment to arrive.

A broker tells nobody how many messages a topic has, and hands out what has arrived. So a claim may get less than is due.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from msgspec.structs import replace

from bide.core.times import Dues
from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, Claim, Claimed, End, Ended, Hold, NewMessage, Swept, Tended
from bide.types import Sent, State
from tests.rabbitmq.ledger import Ledger

PATIENCE = 10.0  # seconds for what is due to arrive, on a busy machine
MOMENT = 0.05  # seconds in which what is not due should not arrive
TURN = 0.005  # seconds from one look to the next


class Patient:
    """Passes every verb on, keeps a ledger of the answers, and so knows what a claim should get, and waits for that.

    A claim for which nothing is due is tried twice, a moment apart: what comes early, or a second time, would be seen.
    """

    def __init__(self, engine: AsyncEngine, ledger: Ledger, *, moment: float = MOMENT, patience: float = PATIENCE) -> None:
        self._engine = engine
        self._ledger = ledger
        self._moment = moment
        self._patience = patience

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def put(self, messages: Sequence[NewMessage], *, now: int | None = None, **how: Any) -> list[Sent]:
        self._ledger.at(now)
        sent = await self._engine.put(messages, now=now, **how)
        self._ledger.put(messages, sent)
        return sent

    async def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        ledger = self._ledger
        ledger.at(now)
        got: list[Claimed] = []
        again, expected = not topics or ledger.holds(request), ledger.due(topics)
        patience, turn = (self._patience, TURN) if expected else (self._moment, self._moment)
        deadline = time.monotonic() + patience
        tries = 1 if expected or not self._moment else 2  # at least, however slow the machine is
        while True:
            tries -= 1
            claim = await self._engine.claim(topics, limit - len(got), lease, request=request, now=now)
            ledger.claimed(claim.messages, lease, request)
            got += claim.messages
            left = ledger.due(topics)  # less than before, also when somebody else has taken them
            missing = bool(left) and len(got) < limit
            unfair = not missing and _unfair(got, left)
            whole = not missing and not unfair and bool(got or expected)
            if again or whole or (tries <= 0 and time.monotonic() >= deadline):
                return replace(claim, messages=got)
            if unfair or request is not None:  # who names a claim gets the same messages again, and no others
                await self._give_back(got, now)
                got = []
            await asyncio.sleep(turn)

    async def _give_back(self, messages: Sequence[Claimed], now: int | None) -> None:
        if messages:
            await self.settle([End(each.topic, each.id, each.token, "release") for each in messages], now=now)

    async def settle(self, ends: Sequence[End], *, now: int | None = None, **how: Any) -> list[Ended]:
        self._ledger.at(now)
        answers = await self._engine.settle(ends, now=now, **how)
        self._ledger.settled(ends, answers)
        return answers

    async def extend(self, holds: Sequence[Hold], lease: int, *, now: int | None = None, **how: Any) -> list[bool]:
        self._ledger.at(now)
        answers = await self._engine.extend(holds, lease, now=now, **how)
        self._ledger.extended(holds, answers, lease)
        return answers

    async def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        self._ledger.at(now)
        did = await self._engine.tend(budget, ended_by=ended_by, now=now)
        self._ledger.tended(did, ended_by)
        return did

    async def requeue(
        self,
        topic: str,
        ids: Sequence[str] | None = None,
        *,
        delay: int = 0,
        over: int = 0,
        limit: int = MAX_BATCH,
        now: int | None = None,
    ) -> Swept:
        self._ledger.at(now)
        swept = await self._engine.requeue(topic, ids, delay=delay, over=over, limit=limit, now=now)
        self._ledger.requeued(topic, ids, swept.count, Dues(delay, over, limit))
        return swept

    async def purge(self, topic: str, state: State, ids: Sequence[str] | None = None, **how: Any) -> Swept:
        swept = await self._engine.purge(topic, state, ids, **how)
        if state == "dead":
            self._ledger.purged(topic, ids, swept.count)
        return swept


def patient(engine: AsyncEngine, ledger: Ledger, **how: float) -> AsyncEngine:
    """The engine, with patience."""
    return cast(AsyncEngine, Patient(engine, ledger, **how))


def _unfair(got: Sequence[Claimed], left: Counter[str]) -> bool:
    """Whether a topic gave two messages, and another one none of those that are due."""
    given = Counter(each.topic for each in got)
    return max(given.values(), default=0) > 1 and not given.keys() >= left.keys()
