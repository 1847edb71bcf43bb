"""Masters without replicas, of which one does not answer, and what lies in which shard."""

import asyncio
import contextlib
import functools
import itertools
import time
import zlib
from collections.abc import AsyncIterator
from typing import Any

import redis.exceptions as theirs

from bide import AsyncQueue, Queue
from bide.engines.redis.topology import slot_of
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer

SHARDS = 3
COLOURS = ("async", "sync")


class Either:
    """A queue of either colour, for the same code. What a sync one does is done in a thread."""

    def __init__(self, url: str, colour: str) -> None:
        self.queue: Any = AsyncQueue(url) if colour == "async" else Queue(url)

    async def do(self, verb: str, *args: Any, **options: Any) -> Any:
        call = functools.partial(getattr(self.queue, verb), *args, **options)
        return await (call() if isinstance(self.queue, AsyncQueue) else asyncio.to_thread(call))

    def begin(self, verb: str, *args: Any, **options: Any) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.do(verb, *args, **options))

    async def __aenter__(self) -> "Either":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.do("close")


def shard_of(topic: str, key: str) -> int:
    return zlib.crc32(f"{topic} {key}".encode()) % SHARDS


def keys_of(shard: int, many: int, topic: str = "t") -> list[str]:
    return list(itertools.islice((key for key in map("k{}".format, itertools.count()) if shard_of(topic, key) == shard), many))


def gates_of(shard: int, many: int) -> list[str]:
    """Names of locks."""
    names = map("L{}".format, itertools.count())
    return list(itertools.islice((name for name in names if shard_of("", f"lock {name}") == shard), many))


async def engine_of(queue: AsyncQueue) -> Any:
    engine: Any = await queue.session.engine()
    return engine._engine


@contextlib.asynccontextmanager
async def frozen(masters: RedisCluster, queue: AsyncQueue, shard: int) -> AsyncIterator[None]:
    """The master of a shard stands still."""
    engine = await engine_of(queue)
    master = masters.node_of(slot_of(engine._namespace.tag(shard)))
    masters.freeze(master)
    try:
        yield
    finally:
        masters.thaw(master)


@contextlib.asynccontextmanager
async def busy(server: RedisServer) -> AsyncIterator[None]:
    """It runs somebody's script that does not end, and tells everybody so."""
    _tell(server, "CONFIG", "SET", "busy-reply-threshold", 1)
    script = asyncio.create_task(asyncio.to_thread(_never_ending, server))
    try:
        await asyncio.to_thread(_wait_until_busy, server)
        yield
    finally:
        _tell(server, "SCRIPT", "KILL")
        await script


def _never_ending(server: RedisServer) -> None:
    with server.client() as client, contextlib.suppress(theirs.ResponseError):  # it is killed
        client.eval("while true do end", 0)


def _wait_until_busy(server: RedisServer) -> None:
    with contextlib.suppress(theirs.ResponseError):
        while True:
            _tell(server, "PING")
            time.sleep(0.01)


def _tell(server: RedisServer, *command: str | int) -> None:
    with server.client() as client:
        client.execute_command(*command)
