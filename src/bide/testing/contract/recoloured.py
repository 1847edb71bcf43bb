"""A sync engine as an async one, so that one suite tests both."""

import asyncio
from typing import Any

from bide.engines.aio import AsyncEngine
from bide.engines.base import Capabilities, Claim, Ended, Scanned, Stored, Swept, Tended
from bide.engines.sync import Engine
from bide.types import CancelResult, RescheduleResult, Sent, Stats


class Recoloured(AsyncEngine):
    """Every verb runs in a thread, so verbs that are awaited together run as concurrent threads."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.capabilities: Capabilities = engine.capabilities

    async def open(self, *asked: Any, **options: Any) -> None:
        await asyncio.to_thread(self.engine.open, *asked, **options)

    async def close(self, *asked: Any, **options: Any) -> None:
        await asyncio.to_thread(self.engine.close, *asked, **options)

    async def put(self, *asked: Any, **options: Any) -> list[Sent]:
        return await asyncio.to_thread(self.engine.put, *asked, **options)

    async def claim(self, *asked: Any, **options: Any) -> Claim:
        return await asyncio.to_thread(self.engine.claim, *asked, **options)

    async def settle(self, *asked: Any, **options: Any) -> list[Ended]:
        return await asyncio.to_thread(self.engine.settle, *asked, **options)

    async def extend(self, *asked: Any, **options: Any) -> list[bool]:
        return await asyncio.to_thread(self.engine.extend, *asked, **options)

    async def cancel(self, *asked: Any, **options: Any) -> list[CancelResult]:
        return await asyncio.to_thread(self.engine.cancel, *asked, **options)

    async def reschedule(self, *asked: Any, **options: Any) -> list[RescheduleResult]:
        return await asyncio.to_thread(self.engine.reschedule, *asked, **options)

    async def tend(self, *asked: Any, **options: Any) -> Tended:
        return await asyncio.to_thread(self.engine.tend, *asked, **options)

    async def wait(self, *asked: Any, **options: Any) -> None:
        await asyncio.to_thread(self.engine.wait, *asked, **options)

    async def get(self, *asked: Any, **options: Any) -> list[Stored | None]:
        return await asyncio.to_thread(self.engine.get, *asked, **options)

    async def scan(self, *asked: Any, **options: Any) -> Scanned:
        return await asyncio.to_thread(self.engine.scan, *asked, **options)

    async def stats(self, *asked: Any, **options: Any) -> Stats:
        return await asyncio.to_thread(self.engine.stats, *asked, **options)

    async def requeue(self, *asked: Any, **options: Any) -> Swept:
        return await asyncio.to_thread(self.engine.requeue, *asked, **options)

    async def purge(self, *asked: Any, **options: Any) -> Swept:
        return await asyncio.to_thread(self.engine.purge, *asked, **options)

    async def pause(self, *asked: Any, **options: Any) -> None:
        await asyncio.to_thread(self.engine.pause, *asked, **options)
