# unasync: ../sync/wakeup.py
"""Sleeping until somebody pushes a token for one of the topics, or time is up.

The server looks at its sleepers' time limits ten times a second only: where it matters, the limit is our own. Where the
server can't block (wake=poll) the lists are looked at four times a second; with wake=expiry the expiry of a key is
listened for.
"""

import time
from collections.abc import Sequence
from typing import TypeVar

import redis.exceptions as theirs

from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.failures import LOST, translated
from bide.engines.redis.listener import AsyncListener
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.server import AsyncServer
from bide.errors import EngineError
from bide.signals import AsyncSignal

T = TypeVar("T")
SHORT = 0.002  # seconds: not worth a call
BEYOND = 2.0  # seconds after ours that the server's limit ends, should we not be there to end it
LATE = 0.5  # seconds that the server may take to see that its limit is over
AGAIN = 0.5  # seconds: a sleeper whose server is gone sleeps so long, and is then woken to see for itself
POLL = 0.25  # seconds between two looks
SLICE = 1.0  # seconds after which a listener sees that the engine was closed


class AsyncWakeup:
    def __init__(self, namespace: Namespace, shards: Sequence[AsyncShard]) -> None:
        self._namespace = namespace
        self._shards = shards
        self._server = AsyncServer(namespace.address)
        self._free: list[AsyncListener] = []
        self._blocked: set[int] = set()
        self._closed = False

    async def wait(self, topics: Sequence[str], timeout: float, *, sharp: bool) -> None:
        """`sharp`: to the millisecond; otherwise as the server sees fit."""
        if timeout < SHORT:
            await AsyncSignal().wait(max(0.0, timeout))
            return
        end = time.monotonic() + timeout
        how = self._namespace.address.wake
        if how == "poll":
            await self._poll(topics, end)
            return
        try:
            listener = self._free.pop()
        except IndexError:
            listener = AsyncListener(self._server)
        try:
            if how == "list":
                await self._listen(listener, topics, end, sharp)
            else:
                await self._expect(listener, end)
        except theirs.NoPermissionError as error:
            await listener.close()
            raise translated(error, self._server.shown, self._server.secrets) from None
        except (*LOST, theirs.ResponseError, EngineError):
            await listener.close()
            await AsyncSignal().wait(max(0.0, min(end - time.monotonic(), AGAIN)))
        except BaseException:
            await listener.close()
            raise
        else:
            if self._closed or how == "expiry":  # one that goes on listening would gather what nobody reads
                await listener.close()
            else:
                self._free.append(listener)

    def abandon(self) -> None:
        """Close without the event loop, which is closed."""
        self._server.sever()

    async def close(self) -> None:
        self._closed = True
        for number in list(self._blocked):
            try:
                await self._unblock(number)
            except EngineError:
                break  # the server is away, and sleepers will see that
        while self._free:
            await self._free.pop().close()

    async def _listen(self, listener: AsyncListener, topics: Sequence[str], end: float, sharp: bool) -> None:
        """Blocked on the wake lists."""
        lists = [f"{shard.prefix}w:{topic}" for shard in self._shards for topic in topics]
        number = await listener.open()
        self._blocked.add(number)
        try:
            left = max(SHORT, end - time.monotonic())
            await listener.ask("BLPOP", *lists, f"{left + BEYOND if sharp else left:.3f}")
            limit = left if sharp else left + LATE
            while not await listener.hears(SHORT if self._closed else limit):
                if await self._unblock(number):
                    break
                limit = SHORT  # it has overtaken what it is to end
            await listener.answer()
        finally:
            self._blocked.discard(number)

    async def _expect(self, listener: AsyncListener, end: float) -> None:
        """Subscribed to expiries, of which our shards' alarm keys concern us."""
        alarms = {f"{shard.prefix}alarm".encode() for shard in self._shards}
        await listener.open("SUBSCRIBE", f"__keyevent@{self._namespace.address.db}__:expired")
        while not self._closed and (left := end - time.monotonic()) > 0:
            if await listener.hears(min(left, SLICE)):
                told = await listener.answer()
                if isinstance(told, list) and told[-1] in alarms:
                    return

    async def _poll(self, topics: Sequence[str], end: float) -> None:
        while not self._closed:
            try:
                for shard in self._shards:
                    if await shard.hear(topics):
                        return
            except EngineError:
                await AsyncSignal().wait(max(0.0, min(end - time.monotonic(), AGAIN)))
                return
            left = end - time.monotonic()
            if left <= 0:
                return
            await AsyncSignal().wait(min(left, POLL))

    async def _unblock(self, number: int) -> bool:
        """False when it was not blocked, or not yet."""
        return bool(await self._shards[0].calls.command("CLIENT", "UNBLOCK", number))
