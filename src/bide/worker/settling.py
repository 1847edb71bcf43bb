"""Ends of deliveries on their way to the engine: what gathers while a call is under way goes into the next one."""

import asyncio
from collections.abc import Callable

from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, End, Ended
from bide.errors import EngineError
from bide.logs import Log
from bide.worker.ending import LAST_WORDS, Ending
from bide.worker.handling import Handling
from bide.worker.retry import Retrying

_log = Log("bide.worker")


class Settling:
    """An end that the engine could not take is brought again until it does; its lease is renewed meanwhile."""

    def __init__(self, engine: AsyncEngine, settled: Callable[[Handling, End, Ended], None]) -> None:
        self._engine = engine
        self._settled = settled
        self._waiting: list[tuple[Handling, End]] = []
        self._under_way: list[tuple[Handling, End]] = []
        self._singly = 0  # so many are brought one by one
        self._caller: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Ends that the engine has not answered."""
        return len(self._waiting) + len(self._under_way)

    def decided(self) -> list[End]:
        """Those ends, for whoever tells the engine in its place."""
        return [end for _, end in [*self._under_way, *self._waiting]]

    def add(self, handling: Handling, end: End) -> None:
        self._waiting.append((handling, end))
        if self._caller is None:
            self._caller = asyncio.get_running_loop().create_task(self._work())

    async def drain(self, ending: Ending) -> int:
        """See all through, for as long as the stop has left; how many are left."""
        loop = asyncio.get_running_loop()
        until = loop.time() + max(LAST_WORDS, ending.left)
        while len(self) and (seconds := until - loop.time()) > 0:
            if self._caller is None:
                self._caller = loop.create_task(self._work())
            await ending.wait([self._caller], seconds)
        return len(self)

    def drop(self) -> None:
        """Give up what is left: its leases end by themselves."""
        if self._caller is not None:
            self._caller.cancel()

    async def _work(self) -> None:
        patience = Retrying("end deliveries")
        try:
            while self._waiting:
                size = 1 if self._singly else MAX_BATCH
                batch = self._waiting[:size]
                del self._waiting[:size]
                self._singly = max(0, self._singly - 1)
                self._under_way = batch
                try:
                    answers = await self._engine.settle([end for _, end in batch])
                except EngineError as error:
                    self._bring_again(batch)
                    await patience.lose(error)
                    continue
                except (asyncio.CancelledError, KeyboardInterrupt):  # the loop shuts down: what is left may be told in a drain
                    self._bring_again(batch)
                    raise
                except Exception:  # nobody foresaw it, and one of them may be the cause
                    _log.exception("The engine broke down over the ends of %d messages", len(batch))
                    answers = self._apart(batch)
                patience.regain()
                self._under_way = []
                for (handling, end), answer in zip(batch, answers, strict=True):
                    self._settled(handling, end, answer)
        finally:
            self._caller = None

    def _bring_again(self, batch: list[tuple[Handling, End]]) -> None:
        self._waiting[:0] = batch
        self._under_way = []

    def _apart(self, batch: list[tuple[Handling, End]]) -> list[Ended]:
        """Have each brought for itself; one that was is given up, and comes back when its lease ends."""
        if len(batch) == 1:
            return ["lost"]
        self._bring_again(batch)
        self._singly = len(batch)
        batch.clear()
        return []
