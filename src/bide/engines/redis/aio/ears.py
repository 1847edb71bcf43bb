# unasync: ../sync/ears.py
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
from bide.engines.redis.ear import AsyncEar
from bide.engines.redis.failures import LOST, translated
from bide.engines.redis.server import AsyncServer
from bide.engines.redis.space import Space
from bide.errors import EngineError
from bide.signals import AsyncSignal

T = TypeVar("T")
SHORT = 0.002  # seconds: not worth a call
BEYOND = 2.0  # seconds after ours that the server's limit ends, should we not be there to end it
LATE = 0.5  # seconds that the server may take to see that its limit is over
AGAIN = 0.5  # seconds: a sleeper whose server is gone sleeps so long, and is then woken to see for itself
POLL = 0.25  # seconds between two looks
SLICE = 1.0  # seconds after which a listener sees that the engine was closed


class AsyncEars:
    def __init__(self, space: Space, shards: Sequence[AsyncShard]) -> None:
        self._space = space
        self._shards = shards
        self._server = AsyncServer(space.address)
        self._free: list[AsyncEar] = []
        self._blocked: set[int] = set()
        self._closed = False

    async def wait(self, topics: Sequence[str], timeout: float, *, sharp: bool) -> None:
        """`sharp`: to the millisecond; otherwise as the server sees fit."""
        if timeout < SHORT:
            await AsyncSignal().wait(max(0.0, timeout))
            return
        end = time.monotonic() + timeout
        how = self._space.address.wake
        if how == "poll":
            await self._poll(topics, end)
            return
        try:
            ear = self._free.pop()
        except IndexError:
            ear = AsyncEar(self._server)
        try:
            if how == "list":
                await self._listen(ear, topics, end, sharp)
            else:
                await self._expect(ear, end)
        except theirs.NoPermissionError as error:
            await ear.close()
            raise translated(error, self._server.shown, self._server.secrets) from None
        except (*LOST, theirs.ResponseError, EngineError):
            await ear.close()
            await AsyncSignal().wait(max(0.0, min(end - time.monotonic(), AGAIN)))
        except BaseException:
            await ear.close()
            raise
        else:
            if self._closed or how == "expiry":  # one that goes on listening would gather what nobody reads
                await ear.close()
            else:
                self._free.append(ear)

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

    async def _listen(self, ear: AsyncEar, topics: Sequence[str], end: float, sharp: bool) -> None:
        """Blocked on the wake lists."""
        lists = [f"{shard.prefix}w:{topic}" for shard in self._shards for topic in topics]
        number = await ear.open()
        self._blocked.add(number)
        try:
            left = max(SHORT, end - time.monotonic())
            await ear.ask("BLPOP", *lists, f"{left + BEYOND if sharp else left:.3f}")
            patience = left if sharp else left + LATE
            while not await ear.hears(SHORT if self._closed else patience):
                if await self._unblock(number):
                    break
                patience = SHORT  # it has overtaken what it is to end
            await ear.answer()
        finally:
            self._blocked.discard(number)

    async def _expect(self, ear: AsyncEar, end: float) -> None:
        """Subscribed to expiries, of which our shards' alarm keys concern us."""
        alarms = {f"{shard.prefix}alarm".encode() for shard in self._shards}
        await ear.open("SUBSCRIBE", f"__keyevent@{self._space.address.db}__:expired")
        while not self._closed and (left := end - time.monotonic()) > 0:
            if await ear.hears(min(left, SLICE)):
                told = await ear.answer()
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
