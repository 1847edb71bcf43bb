"""Listening for wake-ups: a connection for each sleeper, blocked on the wake lists of its topics.

The time limit is our own, as the server looks at its sleepers' limits ten times a second only.
"""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import redis.exceptions as theirs

from bide.engines.redis.failures import LOST
from bide.engines.redis.server import AsyncServer, Server
from bide.engines.redis.shards.aio import AsyncShard
from bide.engines.redis.shards.sync import Shard
from bide.engines.redis.space import Space

BEYOND = 2  # seconds after ours that the server's own limit ends, should nobody be there to end it

AGAIN = 0.5  # seconds: a sleeper whose server is gone sleeps so long, and is then woken to see for itself


def _lists(space: Space, topics: Sequence[str]) -> list[str]:
    return [f"{space.prefix(shard)}w:{topic}" for shard in range(space.shards) for topic in topics]


class Ears:
    """For threads."""

    def __init__(self, space: Space, shards: Sequence[Shard]) -> None:
        self._space = space
        self._shards = shards
        self._server = Server(space.address)
        self._free: list[tuple[Any, int]] = []
        self._blocked: set[int] = set()
        self._lock = threading.Lock()
        self._closed = False

    def wait(self, topics: Sequence[str], timeout: float) -> None:
        end = time.monotonic() + timeout
        try:
            connection, number = self._ear()
        except LOST:
            time.sleep(min(timeout, AGAIN))
            return
        try:
            self._listen(connection, number, _lists(self._space, topics), end)
        except (*LOST, theirs.ResponseError):
            self._server.drop(connection)
            time.sleep(max(0.0, min(end - time.monotonic(), AGAIN)))
        except BaseException:
            self._server.drop(connection)
            raise
        else:
            with self._lock:
                if not self._closed:
                    self._free.append((connection, number))
                    return
            self._server.drop(connection)

    def _listen(self, connection: Any, number: int, lists: Sequence[str], end: float) -> None:
        with self._lock:
            self._blocked.add(number)
        try:
            left = max(0.0, end - time.monotonic())
            connection.send_command("BLPOP", *lists, int(left) + BEYOND, check_health=False)
            if self._closed or not connection.can_read(timeout=max(0.0, end - time.monotonic())):
                self._unblock(number)
            connection.read_response()
        finally:
            with self._lock:
                self._blocked.discard(number)

    def _ear(self) -> tuple[Any, int]:
        with self._lock:
            if self._free:
                return self._free.pop()
        connection = self._server.new_connection()
        connection.connect()
        connection.send_command("CLIENT", "ID")
        return connection, connection.read_response()

    def _unblock(self, number: int) -> None:
        self._shards[0].command("CLIENT", "UNBLOCK", number)

    def close(self) -> None:
        self._closed = True
        with self._lock:
            blocked = list(self._blocked)
        for number in blocked:
            self._unblock(number)
        with self._lock:
            while self._free:
                self._server.drop(self._free.pop()[0])


class AsyncEars:
    """For event loops."""

    def __init__(self, space: Space, shards: Sequence[AsyncShard]) -> None:
        self._space = space
        self._shards = shards
        self._server = AsyncServer(space.address)
        self._free: list[tuple[Any, int]] = []
        self._blocked: set[int] = set()
        self._closed = False

    async def wait(self, topics: Sequence[str], timeout: float) -> None:
        end = time.monotonic() + timeout
        try:
            connection, number = await self._ear()
        except LOST:
            await asyncio.sleep(min(timeout, AGAIN))
            return
        try:
            await self._listen(connection, number, _lists(self._space, topics), end)
        except (*LOST, theirs.ResponseError):
            await self._server.drop(connection)
            await asyncio.sleep(max(0.0, min(end - time.monotonic(), AGAIN)))
        except BaseException:
            await self._server.drop(connection)
            raise
        else:
            if self._closed:
                await self._server.drop(connection)
            else:
                self._free.append((connection, number))

    async def _listen(self, connection: Any, number: int, lists: Sequence[str], end: float) -> None:
        self._blocked.add(number)
        left = max(0.0, end - time.monotonic())
        await connection.send_command("BLPOP", *lists, int(left) + BEYOND, check_health=False)
        answer = asyncio.ensure_future(connection.read_response(timeout=left + 2 * BEYOND))
        try:
            await asyncio.wait({answer}, timeout=max(0.0, end - time.monotonic()))
            if not answer.done():
                await self._unblock(number)
            await answer
        finally:
            self._blocked.discard(number)
            answer.cancel()

    async def _ear(self) -> tuple[Any, int]:
        if self._free:
            return self._free.pop()
        connection = self._server.new_connection()
        await connection.connect()
        await connection.send_command("CLIENT", "ID")
        return connection, await connection.read_response()

    async def _unblock(self, number: int) -> None:
        await self._shards[0].command("CLIENT", "UNBLOCK", number)

    async def close(self) -> None:
        self._closed = True
        for number in list(self._blocked):
            await self._unblock(number)
        while self._free:
            await self._server.drop(self._free.pop()[0])
