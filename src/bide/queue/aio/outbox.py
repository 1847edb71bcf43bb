# unasync: ../sync/outbox.py
"""The outbox: sends that are committed with the caller's own work, and then handed to the queue's engine, at least once."""

from collections.abc import Sequence

from bide.engines.aio import AsyncEngine
from bide.engines.base import SWEEP, Claimed, End, NewMessage, Verdict
from bide.errors import BadMessage, EngineError
from bide.logs import Log
from bide.queue import outbox
from bide.types import Sent
from bide.wakeable import AsyncSignal

AT_ONCE = 100  # messages
LEASE = 30_000  # ms after which another one hands on what a dead one had taken
SOON, LATER = 500, 10_000  # ms until the next try while the queue's engine is away

_log = Log("bide.outbox")


class AsyncOutbox:
    """`store`: the engine of the caller's database. Any number of programs may hand its messages on."""

    def __init__(self, store: AsyncEngine, target: AsyncEngine) -> None:
        self.store: AsyncEngine = store
        self._target = target
        self._pause = SOON

    async def put(self, messages: Sequence[NewMessage], *, connection: object) -> list[Sent]:
        await self.store.open()
        kept = await self.store.put([outbox.kept(new) for new in messages], connection=connection)
        return outbox.answers(messages, kept)

    async def hand_on(self) -> int:
        """Hand on what has been committed, a bounded number. Raises when the queue's engine does not take it."""
        await self.store.open()
        claimed = (await self.store.claim([outbox.TOPIC], AT_ONCE, LEASE)).messages
        if not claimed:
            await self.store.tend()
            return 0
        try:
            ends = await self._put(claimed)
        except EngineError:
            await self.store.settle([_end(each, "release", self._pause) for each in claimed])
            raise
        await self.store.settle(ends)
        return len(claimed)

    async def _put(self, claimed: Sequence[Claimed]) -> list[End]:
        """Together; if one is refused, one by one, and that one becomes a dead letter of the outbox."""
        try:
            await self._target.put([outbox.handed_on(each) for each in claimed])
        except BadMessage as error:
            if len(claimed) == 1:
                _log.error("A message of the outbox was refused, and is a dead letter of it now: %s", error)
                return [_end(claimed[0], "dead", error=str(error))]
            return [end for each in claimed for end in await self._put([each])]
        return [_end(each) for each in claimed]

    async def run(self) -> None:
        """Hand on what comes, for ever."""
        while True:
            try:
                while await self.hand_on():
                    self._pause = SOON
                await self.store.wait([outbox.TOPIC], SWEEP)
            except EngineError as error:
                _log.warning("Messages stay in the outbox, and are tried again in %.1f s: %s", self._pause / 1000, error)
                await AsyncSignal().wait(self._pause / 1000)
                self._pause = min(2 * self._pause, LATER)

    async def close(self) -> None:
        await self.store.close()


def _end(claimed: Claimed, verdict: Verdict = "done", delay: int = 0, error: str | None = None) -> End:
    return End(claimed.topic, claimed.id, claimed.token, verdict, delay, error)
