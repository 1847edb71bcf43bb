"""One server, as connections to it are made and ended: the few things that redis-py does differently in its two colours."""

import contextlib
import weakref
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from bide.engines.redis.client import Address, async_pool, sync_pool
from bide.engines.redis.namespace import Clock
from bide.engines.redis.redaction import redacted

TIMEOUTS = 3  # a command is repeated for so many times the timeout of one


class _Server:
    def __init__(self, address: Address, clock: Clock, pool: Any, opened: str) -> None:
        self.address: Address = address
        self.clock: Clock = clock
        self.shown: str = address.shown
        self.secrets: list[str] = address.secrets
        self.retry_for: float = TIMEOUTS * address.timeout
        self.is_open: Callable[[Any], Any] = attrgetter(opened)  # of a connection; no method, as every command asks
        self._pool = pool

    def new_connection(self) -> Any:
        return self._pool.make_connection()

    def told(self, error: BaseException) -> str:
        """What happened, without secrets."""
        return redacted(str(error) or type(error).__name__, self.secrets).rstrip(".")


class Server(_Server):
    def __init__(self, address: Address, clock: Clock) -> None:
        super().__init__(address, clock, sync_pool(address), "_sock")

    def drop(self, connection: Any) -> None:
        connection.disconnect()

    def abandon(self, connection: Any) -> None:
        """Let go of a connection that something is wrong with."""
        connection.disconnect()

    def sever(self) -> None:
        """Only an event loop's connections need this."""


class AsyncServer(_Server):
    def __init__(self, address: Address, clock: Clock) -> None:
        super().__init__(address, clock, async_pool(address), "is_connected")
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()

    def new_connection(self) -> Any:
        connection = super().new_connection()
        self._connections.add(connection)
        return connection

    async def drop(self, connection: Any) -> None:
        await connection.disconnect()

    async def abandon(self, connection: Any) -> None:
        """Let go of a connection that something is wrong with, without waiting for it."""
        await connection.disconnect(nowait=True)

    def sever(self) -> None:
        """Let go of all connections: their event loop is closed."""
        for connection in self._connections:
            writer, connection._writer, connection._reader = connection._writer, None, None
            with contextlib.suppress(RuntimeError):  # that loop can't be told any more
                if writer is not None:
                    writer.transport.abort()
