"""Places in gates that are given back, and who is called then."""

import asyncio
from collections.abc import Hashable, Iterable, Sequence

from bide.engines.aio import AsyncEngine
from bide.engines.base import Ref
from bide.engines.gates import Called, Held
from bide.errors import BideError, EngineError
from bide.logs import Log
from bide.queue.aio.calling import PROGRAM, call, called_back, recall, told_of
from bide.queue.batching import Collector, Line
from bide.queue.beats import Places
from bide.queue.heartbeat import Heartbeat
from bide.worker.retry import Retrying

_log = Log("bide.worker")
LOOK = 2.0  # seconds between two looks for places whose holders have died, where messages wait for them
TIDY = 60.0  # and elsewhere: rates that nobody has used for a while, and locks of programs that died, are forgotten then
SOON = (0.02, 0.1, 0.5)  # seconds: a message that is on its way aside is called again


class Leaving(Collector[Held]):
    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__()
        self._engine = engine
        self._retrying = Retrying("give places back")
        self._calling = Calling(engine, self)

    def leave(self, heartbeat: Heartbeat, places: Places) -> None:
        """They are renewed no longer."""
        held = places.held
        heartbeat.remove_all((places, each) for each in held)
        self.put_all(held)

    def put_all(self, held: Iterable[Held]) -> None:
        for each in held:
            self.put(each)

    def part_of(self, entry: Held) -> Hashable:
        return self._engine.gates.part_of(entry.gate)

    async def one_call(self, line: Line[Held], batch: list[Held]) -> None:
        try:
            left = await self._engine.gates.leave(batch)
        except EngineError as error:
            line.bring_again(batch)
            await self._retrying.lose(error, line.part)
            return
        self._retrying.regain(line.part)
        for each in left.called:
            if not each.waiter.startswith(PROGRAM):
                self._calling.put(each)

    async def look(self, every: float) -> None:
        """For ever: pass on what others have left behind."""
        while True:
            await asyncio.sleep(every)
            try:
                while (await recall(self._engine)).more:
                    pass
            except BideError as error:
                _log.debug("Could not look for places that were left behind: %s", error)
            except Exception:  # of an engine that somebody has plugged in: the next look may do
                _log.exception("The engine broke down over a look for places that were left behind")

    async def emptied(self) -> None:
        while self.busy or self._calling.busy:  # the turn of a message that is gone is given back in its turn
            await super().emptied()
            await self._calling.emptied()

    def drop(self) -> None:
        super().drop()
        self._calling.drop()


class Calling(Collector[Called]):
    """Messages whose turn has come, which wait aside: each is in a part of the engine that need not be that of the gate."""

    def __init__(self, engine: AsyncEngine, leaving: Leaving) -> None:
        super().__init__()
        self._engine = engine
        self._leaving = leaving
        self._retrying = Retrying("call messages whose turn has come")
        self._calls: set[asyncio.Task[None]] = set()

    def part_of(self, entry: Called) -> Hashable:
        return self._engine.part_of(Ref(entry.waiter))

    async def one_call(self, line: Line[Called], batch: list[Called]) -> None:
        try:
            results = await self._engine.reschedule(called_back(batch))
        except EngineError as error:
            line.bring_again(batch)
            await self._retrying.lose(error, line.part)
            return
        self._retrying.regain(line.part)
        running, gone = told_of(batch, results)
        self._leaving.put_all(gone)
        if running:
            calls = asyncio.get_running_loop().create_task(self._call_again(running))
            self._calls.add(calls)
            calls.add_done_callback(self._calls.discard)

    async def _call_again(self, running: Sequence[Called]) -> None:
        """Messages that were on their way aside when their turn came. If this fails, they are recalled in time."""
        try:
            for wait in SOON:
                await asyncio.sleep(wait)
                running = await call(self._engine, running)
                if not running:
                    return
        except BideError as error:
            _log.debug("Messages could not be called, and will be recalled: %s", error)

    def drop(self) -> None:
        super().drop()
        for each in self._calls:
            each.cancel()
