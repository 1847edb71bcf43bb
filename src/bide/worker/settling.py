"""Ends of deliveries on their way to the engine, which is told again and again until it has taken them."""

import asyncio

from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, End, Ended
from bide.errors import EngineError
from bide.logs import Log
from bide.queue.batching import AsyncBatching
from bide.worker.ending import LAST_WORDS, Ending
from bide.worker.retry import Retrying

_log = Log("bide.worker")


class Settling(AsyncBatching[End, Ended]):
    """What gathers while a call is under way goes into the next one. Leases are renewed meanwhile, and a caller that is
    cancelled leaves its end here.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(engine.settle)
        self._retrying = Retrying("end deliveries")
        self._singly = 0  # so many are brought one by one

    def __len__(self) -> int:
        """Ends that the engine has not answered."""
        return len(self._waiting) + len(self._under_way)

    def decided(self) -> list[End]:
        """Those ends, for whoever tells the engine in its place."""
        return [end for end, _ in [*self._under_way, *self._waiting]]

    async def drain(self, ending: Ending) -> int:
        """See all through, for as long as the stop has left; how many are left."""
        loop = asyncio.get_running_loop()
        until = loop.time() + max(LAST_WORDS, ending.left)
        while len(self) and (seconds := until - loop.time()) > 0:
            await ending.wait([self._begin()], seconds)
        return len(self)

    def drop(self) -> None:
        """Give up what is left: its leases end by themselves."""
        if self._caller is not None:
            self._caller.cancel()
        for _, answer in [*self._under_way, *self._waiting]:
            answer.cancel()

    async def _one_call(self, batch: list[tuple[End, "asyncio.Future[Ended]"]]) -> None:
        try:
            answers = await self._call([end for end, _ in batch])
        except EngineError as error:
            self._bring_again(batch)
            await self._retrying.lose(error)
            return
        except Exception:  # nobody foresaw it, and one of them may be the cause
            _log.exception("The engine broke down over the ends of %d messages", len(batch))
            if len(batch) > 1:
                self._bring_again(batch)
                self._size, self._singly = 1, len(batch)
                return
            answers = ["lost"]  # it is given up, and comes back when its lease ends
        except BaseException:  # the loop shuts down: what is left may be told in a drain
            self._bring_again(batch)
            raise
        self._retrying.regain()
        self._singly = max(0, self._singly - 1)
        self._size = 1 if self._singly else MAX_BATCH
        for (_, answer), ended in zip(batch, answers, strict=True):
            if not answer.done():
                answer.set_result(ended)

    def _stopped(self) -> None:
        """What is left waits for a drain."""

    def _bring_again(self, batch: list[tuple[End, "asyncio.Future[Ended]"]]) -> None:
        self._under_way = []
        self._waiting[:0] = batch
