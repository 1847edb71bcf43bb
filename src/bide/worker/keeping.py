"""What handlers returned is kept before the engine is told that their messages are done: a crash in between runs them again."""

import asyncio
from collections.abc import Sequence

from bide.engines.aio import AsyncEngine
from bide.engines.base import Ref
from bide.engines.results import Kept
from bide.errors import BideError, EngineError
from bide.logs import Log
from bide.queue.aio.opened import AsyncOpened
from bide.queue.batching import AsyncBatching
from bide.queue.deliveries import returned_of
from bide.queue.envelope import Envelope
from bide.queue.results import encoded
from bide.queue.tasks.outcome import DONE, RELEASED, Outcome
from bide.worker.handling import Handling
from bide.worker.retry import Retrying

_log = Log("bide.worker")
TIDY = 30.0  # seconds between two looks for results whose time is over


class Keeping:
    def __init__(self, opened: AsyncOpened, envelope: Envelope) -> None:
        self._engine: AsyncEngine = opened.engine
        self._keeping = opened.keeping
        self._envelope = envelope
        self._batches: AsyncBatching[Kept, None] = AsyncBatching(self._fulfil)
        self._retrying = Retrying("keep results")

    async def keep(self, handling: Handling, lasts: int) -> Outcome | None:
        """What becomes of a message whose handler has returned, once that is kept. It is tried until the engine takes it."""
        delivery = handling.delivery
        if handling.alarm is not None:
            handling.alarm.cancel()  # the handler was in time
        try:
            if handling.ended and await self._goes_on(delivery.id):
                return DONE
            value = encoded(self._envelope, returned_of(handling.present()), handling.task.name, delivery.id)
            while True:
                try:
                    await self._batches.add(Kept(delivery.id, lasts, value, delivery.claimed.token))
                except EngineError as error:
                    await self._retrying.lose(error)
                else:
                    self._retrying.regain()
                    return DONE
        except asyncio.CancelledError:  # the lease was lost, or the worker stops: the handler runs again elsewhere
            return None if handling.why == "lost" else RELEASED
        except Exception:
            _log.exception("The engine broke down over the result of message %s, which is not kept", delivery.id)
            return DONE

    async def _goes_on(self, id: str) -> bool:
        """Whether the handler has ended its delivery by itself, and not because its work is done."""
        [stored] = await self._engine.get([Ref(id)])
        return stored is not None

    async def _fulfil(self, kept: Sequence[Kept]) -> Sequence[None]:
        await self._keeping.fulfil(kept)
        return [None] * len(kept)

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
        if self._batches.caller is not None:
            self._batches.caller.cancel()
