"""Keeps the leases of a worker process that can't: a handler may hold Python's lock for longer than a lease."""

import asyncio
import time

from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, Hold
from bide.errors import EngineError
from bide.logs import Log
from bide.worker.claim_log import ClaimLog

_log = Log("bide.supervisor")
LOOKS_A_LEASE = 10
PATIENCE = 10  # leases without a sign of life
SOONEST = 0.02  # seconds between two looks


class LeaseKeeper:
    """Looks at the claim log of one process.

    While its heartbeat goes, the process renews what it holds. When that is late, the leases are renewed from here, for
    so many leases and no longer: then the process is taken for frozen. Looks are counted, and no time is measured, so
    that a pause of the whole machine counts for nothing.
    """

    def __init__(self, claim_log: ClaimLog, lease_ms: int) -> None:
        self._claim_log = claim_log
        self._lease_ms = lease_ms
        self._lease = lease_ms / 1000
        self._kept: dict[str, float] = {}  # claims, and when each was first seen here, or renewed from here
        self._holds: dict[str, list[Hold]] = {}  # what they hold, as far as that was asked for
        self._signs = (0.0, 0.0)
        self._silent = 0  # looks since the last sign of life, or since it holds nothing

    async def until_frozen(self, engine: AsyncEngine) -> None:
        """Renew where that is needed, until the process has been silent for too long."""
        while self._silent < PATIENCE * LOOKS_A_LEASE:
            await asyncio.sleep(max(SOONEST, self._lease / LOOKS_A_LEASE))
            late = self._late()
            if late:
                await self._try_to_renew(engine, late)

    def _late(self) -> list[str]:
        """Claims whose leases should have been renewed by now."""
        now, signs, claims = time.monotonic(), self._claim_log.signs(), self._claim_log.requests()
        self._silent = self._silent + 1 if claims and signs == self._signs else 0
        self._signs = signs
        self._kept = {claim: self._kept.get(claim, now) for claim in claims}
        self._holds = {claim: holds for claim, holds in self._holds.items() if claim in self._kept}
        _, beat = signs
        return [claim for claim, kept in self._kept.items() if now - max(kept, beat) > self._lease / 2]

    async def _try_to_renew(self, engine: AsyncEngine, claims: list[str]) -> None:
        """Whatever the engine raises: without this watch a frozen process would keep its messages for ever."""
        try:
            await self._renew(engine, claims)
        except BaseException as error:
            own = asyncio.current_task()
            if isinstance(error, KeyboardInterrupt | GeneratorExit) or (own is not None and own.cancelling()):
                raise
            _log.warning(
                "The leases of a worker process could not be renewed for it, which is tried again: %s",
                error,
                exc_info=None if isinstance(error, EngineError) else error,
            )

    async def _renew(self, engine: AsyncEngine, claims: list[str]) -> None:
        for claim in claims:
            if not self._holds.get(claim):
                found = await engine.claim([], 1, self._lease_ms, request=claim)
                self._holds[claim] = [Hold(each.topic, each.id, each.token) for each in found.messages]
        holds = [hold for claim in claims for hold in self._holds[claim]]
        for first in range(0, len(holds), MAX_BATCH):
            await engine.extend(holds[first : first + MAX_BATCH], self._lease_ms)
        self._kept.update(dict.fromkeys(claims, time.monotonic()))
