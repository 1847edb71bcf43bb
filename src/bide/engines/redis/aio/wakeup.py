# unasync: ../sync/wakeup.py
"""How a receiver sleeps until there may be something for it: three ways, by the option wake= of the URL.

The server looks at its sleepers' time limits ten times a second only: where it matters, the limit is our own.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import redis.exceptions as theirs

from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.client import Address, Wake
from bide.engines.redis.failures import LOST, translated
from bide.engines.redis.listener import AsyncListener
from bide.errors import EngineError
from bide.wakeable import AsyncSignal

SHORT = 0.002  # seconds: not worth a call
BEYOND = 2.0  # seconds after ours that the server's limit ends, should we not be there to end it
LATE = 0.5  # seconds that the server may take to see that its limit is over
AGAIN = 0.5  # seconds: a sleeper whose server is gone sleeps so long, and is then woken to see for itself
POLL = 0.25  # seconds between two looks
SLICE = 1.0  # seconds after which a listener sees that the engine was closed


class AsyncWakeup(ABC):
    def __init__(self, address: Address, shards: Sequence[AsyncShard]) -> None:
        self._address = address
        self._shards = shards
        self._closed = False

    async def wait(self, topics: Sequence[str], timeout: float, *, sharp: bool) -> None:
        """`sharp`: to the millisecond; otherwise as the server sees fit."""
        if timeout < SHORT:
            await AsyncSignal().wait(max(0.0, timeout))
            return
        end = time.monotonic() + timeout
        try:
            await self._sleep(topics, end, sharp)
        except theirs.NoPermissionError as error:
            raise translated(error, self._address.shown, self._address.secrets) from None
        except (*LOST, theirs.ResponseError, EngineError):
            await AsyncSignal().wait(max(0.0, min(end - time.monotonic(), AGAIN)))

    @abstractmethod
    async def _sleep(self, topics: Sequence[str], end: float, sharp: bool) -> None:
        """Until then, monotonic, or until there may be something; not much longer when the engine is closed meanwhile."""

    async def close(self) -> None:
        """Let all end that sleep."""
        self._closed = True


class AsyncBlocking(AsyncWakeup):
    """wake=list: blocked on the wake lists, which a token is pushed to. Each shard has a listener of its own."""

    def __init__(self, address: Address, shards: Sequence[AsyncShard]) -> None:
        super().__init__(address, shards)
        self._free: list[list[AsyncListener]] = []  # one for each shard
        self._blocked: set[tuple[AsyncShard, int]] = set()

    async def _sleep(self, topics: Sequence[str], end: float, sharp: bool) -> None:
        try:
            listeners = self._free.pop()
        except IndexError:
            listeners = [AsyncListener(shard.connections.server) for shard in self._shards]
        try:
            await self._block(listeners, topics, end, sharp)
        except BaseException:
            await self._drop(listeners)
            raise
        if self._closed:
            await self._drop(listeners)
        else:
            self._free.append(listeners)

    async def close(self) -> None:
        await super().close()
        away = set()
        for shard, number in list(self._blocked):
            try:
                if shard.connections not in away:
                    await shard.unblock(number)
            except EngineError:
                away.add(shard.connections)  # sleepers will see that, too
        while self._free:
            await self._drop(self._free.pop())

    async def _block(self, listeners: Sequence[AsyncListener], topics: Sequence[str], end: float, sharp: bool) -> None:
        blocked: list[tuple[AsyncShard, int]] = []
        try:
            for shard, listener in zip(self._shards, listeners, strict=True):
                blocked.append((shard, await listener.open()))
                self._blocked.add(blocked[-1])
                left = max(SHORT, end - time.monotonic())
                lists = map(f"{shard.prefix}w:".__add__, topics)
                await listener.ask("BLPOP", *lists, f"{left + BEYOND if sharp else left:.3f}")
            left = max(SHORT, end - time.monotonic())
            heard = await AsyncListener.hear(listeners, SHORT if self._closed else left if sharp else left + LATE)
            over = not sharp and time.monotonic() > end
            for (shard, number), listener in zip(blocked, listeners, strict=True):
                if over and listener not in heard:  # it ends by itself
                    heard += await AsyncListener.hear([listener], SHORT)
                while listener not in heard and not await shard.unblock(number):
                    heard += await AsyncListener.hear([listener], SHORT)  # it has overtaken what it is to end
                await listener.answer()
        finally:
            self._blocked.difference_update(blocked)

    @staticmethod
    async def _drop(listeners: Sequence[AsyncListener]) -> None:
        for listener in listeners:
            await listener.close()


class AsyncPolling(AsyncWakeup):
    """wake=poll, for servers that can't block: the lists are looked at four times a second."""

    async def _sleep(self, topics: Sequence[str], end: float, sharp: bool) -> None:
        while not self._closed:
            for shard in self._shards:
                if await shard.hear(topics):
                    return
            left = end - time.monotonic()
            if left <= 0:
                return
            await AsyncSignal().wait(min(left, POLL))


class AsyncExpiring(AsyncWakeup):
    """wake=expiry: subscribed to the expiry of keys, of which our shards' alarm keys concern us. One listener a server."""

    async def _sleep(self, topics: Sequence[str], end: float, sharp: bool) -> None:
        alarms = {f"{shard.prefix}alarm".encode() for shard in self._shards}
        listeners = [AsyncListener(server) for server in dict.fromkeys(shard.connections.server for shard in self._shards)]
        try:
            for listener in listeners:
                await listener.open("SUBSCRIBE", f"__keyevent@{self._address.db}__:expired")
            while not self._closed and (left := end - time.monotonic()) > 0:
                for listener in await AsyncListener.hear(listeners, min(left, SLICE)):
                    told = await listener.answer()
                    if isinstance(told, list) and told[-1] in alarms:
                        return
        finally:
            for listener in listeners:  # one that goes on listening would gather what nobody reads
                await listener.close()


WAKEUPS: Mapping[Wake, type[AsyncWakeup]] = {"list": AsyncBlocking, "poll": AsyncPolling, "expiry": AsyncExpiring}
