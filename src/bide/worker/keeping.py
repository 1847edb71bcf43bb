"""What handlers returned is kept before the engine is told that their messages are done: a crash in between runs them again."""

import asyncio
from collections.abc import Callable

from bide.engines.aio import AsyncEngine
from bide.engines.base import Ref
from bide.engines.results import Arrival, Kept
from bide.errors import BideError, EngineError
from bide.logs import Log
from bide.queue.aio.opened import AsyncOpened
from bide.queue.batching import AsyncBatching
from bide.queue.envelope import Envelope
from bide.queue.run.aio.keep import AsyncKeepStep
from bide.queue.run.message import Handling
from bide.queue.tasks.outcome import DONE, RELEASED, Outcome
from bide.worker.retry import Retrying

_log = Log("bide.worker")
SLOW = 0.5  # seconds that a message whose result is on its way keeps its place, where the engine has several parts
TIDY = 30.0  # seconds between two looks for results whose time is over


class Keeping:
    def __init__(self, opened: AsyncOpened, envelope: Envelope, gives_way: Callable[[Handling], None]) -> None:
        self._engine: AsyncEngine = opened.engine
        self._keeping = opened.keeping
        self._step = AsyncKeepStep(opened.engine, envelope)
        self._gives_way = gives_way
        self._batches: AsyncBatching[Kept, list[Arrival]] = AsyncBatching(
            self._step.fulfil, lambda each: self._engine.part_of(Ref(each.id))
        )
        self._arrivals: AsyncBatching[Arrival, None] = AsyncBatching(
            self._step.arrive, lambda each: self._engine.part_of(Ref(each.dependent))
        )
        self._retrying = Retrying("keep results")

    async def keep(self, handling: Handling, lasts: int) -> Outcome | None:
        """What becomes of a message whose handler has returned, once that is kept. It is tried until the engine takes it."""
        delivery = handling.delivery
        part, watch = self._engine.part_of(Ref(delivery.id)), None
        if part is not None:
            watch = asyncio.get_running_loop().call_later(SLOW, self._gives_way, handling)
        try:
            kept = await self._step.kept(handling, lasts)
            while kept is not None:
                try:
                    for each in [self._arrivals.begin(arrival) for arrival in await self._batches.add(kept)]:
                        await each  # if one of them fails, all is repeated
                except EngineError as error:
                    await self._retrying.lose(error, part)
                else:
                    self._retrying.regain(part)
                    break
            return DONE
        except asyncio.CancelledError:  # the lease was lost, or the worker stops: the handler runs again elsewhere
            return None if handling.why == "lost" else RELEASED
        except Exception:
            _log.exception("The engine broke down over the result of message %s, which is not kept", delivery.id)
            return DONE
        finally:
            if watch is not None:
                watch.cancel()

    async def look(self) -> None:
        """For ever: remove what is over."""
        while True:
            try:
                await self._keeping.tidy()
            except BideError as error:
                _log.debug("Could not look for results whose time is over: %s", error)
            except Exception:  # of an engine that somebody has plugged in: the next look may do
                _log.exception("The engine broke down over a look for results whose time is over")
            await asyncio.sleep(TIDY)

    def drop(self) -> None:
        """Give up what is left: these handlers run again."""
        self._batches.drop()
        self._arrivals.drop()
