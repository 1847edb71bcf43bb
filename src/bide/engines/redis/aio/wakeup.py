# unasync: ../sync/wakeup.py
"""How a receiver sleeps until there may be a message for it: one strategy for each value of the URL's option wake=.

The server checks the timeouts of blocked clients ten times a second only. Where milliseconds matter, the timeout is ours.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import redis.exceptions as theirs

from bide.engines.base import SWEEP
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.aio.shards import AsyncShards
from bide.engines.redis.client import Endpoint, Wake
from bide.engines.redis.failures import BRIEF, LOST, lacking, translated
from bide.engines.redis.presence import HASTE
from bide.engines.redis.server import AsyncListener
from bide.errors import EngineError
from bide.wakeable import AsyncSignal

SHORT = 0.002  # seconds: not worth a call
BEYOND = 2.0  # seconds after our timeout that the server's ends, in case we are gone
LATE = 0.5  # seconds that the server may take to notice its timeout
AGAIN = 0.5  # seconds of sleep when the server is away, before the caller tries again
POLL = 0.25  # seconds between two looks
SLICE = 1.0  # seconds after which a listener sees that the engine was closed


class AsyncWakeup(ABC):
    def __init__(self, address: Endpoint, shards: AsyncShards) -> None:
        self._address = address
        self._shards = shards
        self._closed = False
        self._failed = False  # the last sleep

    async def wait(self, topics: Sequence[str], timeout: float, *, sharp: bool) -> bool:
        """Whether a token may have ended it. `sharp`: the timeout is exact to the millisecond; otherwise the server ends it."""
        if timeout < SHORT:
            await AsyncListener.hear([], max(0.0, timeout))
            return False
        end = time.monotonic() + timeout
        try:
            woken = await self._sleep(topics, end, sharp)
            self._failed = False
            return woken
        except (*LOST, theirs.ResponseError, EngineError) as error:
            if isinstance(error, theirs.NoPermissionError) or lacking(error):
                raise translated(error, self._address.shown, self._address.secrets) from None
            failed, self._failed = self._failed, True
            if failed or self._shards.only is not None:  # else the shards that answer are asked at once
                await AsyncSignal().wait(max(0.0, min(end - time.monotonic(), AGAIN)))
            return True

    async def _sweep(self, topics: Sequence[str]) -> bool:
        """Whether there is something to do that nothing told of: the claim of a lost token, or upkeep."""
        found, shards = False, self._shards.live
        for shard in shards:
            found = found or (not self._closed and not shard.is_away() and await shard.sweep(topics))
        return found or self._shards.live is not shards  # others may have something

    def _present(self) -> Sequence[AsyncShard]:
        """The shards that answer, as far as is known; all if none does."""
        return [shard for shard in self._shards if not shard.silent] or self._shards.live

    @property
    def _patience(self) -> float | None:
        """For a server, if others may answer."""
        return BRIEF if self._shards.only is None else None

    async def prepare(self) -> bool:
        """Tell the shards what is needed to be woken. Whether one had not been told."""
        return False

    @abstractmethod
    async def _sleep(self, topics: Sequence[str], end: float, sharp: bool) -> bool:
        """Sleep until `end`, monotonic, or until there may be a message, and give whether a token was taken or may be left.

        A sweep at times finds what no token told of. Closing ends it soon.
        """

    async def close(self) -> None:
        """Wake all sleepers."""
        self._closed = True


class AsyncBlockingWakeup(AsyncWakeup):
    """wake=list: blocked on the wake lists that tokens are pushed to, by one listener a shard."""

    def __init__(self, address: Endpoint, shards: AsyncShards) -> None:
        super().__init__(address, shards)
        self._free: list[Listeners] = []
        self._blocked: set[tuple[AsyncShard, int, AsyncListener]] = set()

    async def _sleep(self, topics: Sequence[str], end: float, sharp: bool) -> bool:
        listeners, present = self._free.pop() if self._free else {}, self._present()
        for gone in listeners.keys() - set(self._shards):
            await listeners.pop(gone).close()
        for shard in present:
            if shard not in listeners:
                listeners[shard] = AsyncListener(shard.connections.server)
        if len(present) < len(self._shards):  # others are asked when they are back
            end = min(end, time.monotonic() + AGAIN)
        try:
            woken = await self._block({shard: listeners[shard] for shard in present}, topics, end, sharp)
        except BaseException:
            await self._drop(listeners)
            raise
        if self._closed:
            await self._drop(listeners)
        else:
            self._free.append(listeners)
        return woken

    async def close(self) -> None:
        await super().close()
        away = set()
        for shard, number, listener in list(self._blocked):
            try:
                if shard.connections not in away and not listener.outdated:
                    await shard.unblock(number)
            except EngineError:
                away.add(shard.connections)  # its sleepers notice that as well
        while self._free:
            await self._drop(self._free.pop())

    async def _block(self, chosen: "Listeners", topics: Sequence[str], end: float, sharp: bool) -> bool:
        blocked: list[tuple[AsyncShard, int, AsyncListener]] = []
        listeners = list(chosen.values())
        try:
            for shard, listener in chosen.items():
                blocked.append((shard, await listener.open(patience=self._patience), listener))
                self._blocked.add(blocked[-1])
                left = max(SHORT, end - time.monotonic())
                lists = map(f"{shard.prefix}w:".__add__, topics)
                await listener.ask("BLPOP", *lists, f"{left + BEYOND if sharp else left:.3f}")
            heard = await self._hear(listeners, topics, end if sharp else end + LATE)
            over = not sharp and time.monotonic() > end
            for shard, number, listener in blocked:
                if over and listener not in heard:  # the server ends it about now
                    heard += await AsyncListener.hear([listener], SHORT)
                if listener not in heard:
                    await self._unblock(shard, number, listener)
            told = [await listener.answer() for listener in listeners]
        finally:
            self._blocked.difference_update(blocked)
        return any(each is not None for each in told)

    @staticmethod
    async def _unblock(shard: AsyncShard, number: int, listener: AsyncListener) -> None:
        """End its BLPOP. Raises when there is no answer soon: a firewall may have forgotten a connection that was idle."""
        pause, give_up = SHORT, time.monotonic() + HASTE
        _check_place([listener])  # another server may know somebody else by this number
        while not await shard.unblock(number):  # it has answered, or UNBLOCK overtook the BLPOP
            if await AsyncListener.hear([listener], pause):
                return
            _check_place([listener])
            if time.monotonic() > give_up:
                raise ConnectionResetError("the answer was lost")
            pause *= 2
        if not await AsyncListener.hear([listener], HASTE):
            raise ConnectionResetError("the answer was lost")

    async def _hear(self, listeners: Sequence[AsyncListener], topics: Sequence[str], end: float) -> list[AsyncListener]:
        """The listeners that have an answer, or none at `end` or after a sweep that has found something."""
        while True:
            left = max(SHORT, end - time.monotonic())
            heard = await AsyncListener.hear(listeners, SHORT if self._closed else min(left, SWEEP))
            if heard or self._closed or left <= SWEEP or await self._sweep(topics):
                return heard
            _check_place(listeners)

    @staticmethod
    async def _drop(listeners: "Listeners") -> None:
        for listener in listeners.values():
            await listener.close()


class AsyncPollingWakeup(AsyncWakeup):
    """wake=poll, for servers without blocking commands: checks the lists four times a second."""

    async def _sleep(self, topics: Sequence[str], end: float, sharp: bool) -> bool:
        swept = time.monotonic()
        while not self._closed:
            for shard in self._present():
                if await shard.hear(topics):
                    return True
            now = time.monotonic()
            if now >= end:
                break
            if now > swept + SWEEP:
                swept = now
                if await self._sweep(topics):
                    break
            await AsyncSignal().wait(min(end - now, POLL))
        return False


class AsyncExpiryWakeup(AsyncWakeup):
    """wake=expiry: subscribed to expired keys, waiting for an alarm key of our shards. One listener a server."""

    def __init__(self, address: Endpoint, shards: AsyncShards) -> None:
        super().__init__(address, shards)
        self._told: set[AsyncShard] = set()

    async def prepare(self) -> bool:
        untold = [shard for shard in self._present() if shard not in self._told]
        for shard in untold:
            await shard.ask_for_expiry(self._patience)
            self._told.add(shard)
        return bool(untold)

    async def _sleep(self, topics: Sequence[str], end: float, sharp: bool) -> bool:
        if await self.prepare():  # what was sent until now set no alarm
            return True
        present = self._present()
        if len(present) < len(self._shards):  # others are asked when they are back
            end = min(end, time.monotonic() + AGAIN)
        alarms = {f"{shard.prefix}alarm".encode() for shard in present}
        listeners = [AsyncListener(server) for server in dict.fromkeys(shard.connections.server for shard in present)]
        try:
            for listener in listeners:
                await listener.open("SUBSCRIBE", f"__keyevent@{self._address.db}__:expired", patience=self._patience)
            swept = time.monotonic()
            while not self._closed and (left := end - time.monotonic()) > 0:
                if time.monotonic() > swept + SWEEP:
                    swept = time.monotonic()
                    if await self._sweep(topics):
                        break
                    _check_place(listeners)
                for listener in await AsyncListener.hear(listeners, min(left, SLICE)):
                    told = await listener.answer()
                    if isinstance(told, list) and told[-1] in alarms:
                        return True
        finally:
            for listener in listeners:  # an idle subscription would pile up messages
                await listener.close()
        return True  # nobody takes the tokens


def _check_place(listeners: Sequence[AsyncListener]) -> None:
    """Nothing may come to those who listen to a server that another one has replaced, or that was silent."""
    if any(listener.outdated for listener in listeners):
        raise ConnectionResetError("the connection is outdated")


Listeners: TypeAlias = dict[AsyncShard, AsyncListener]

WAKEUPS: Mapping[Wake, type[AsyncWakeup]] = {
    "list": AsyncBlockingWakeup,
    "poll": AsyncPollingWakeup,
    "expiry": AsyncExpiryWakeup,
}
