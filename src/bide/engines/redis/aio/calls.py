# unasync: ../sync/calls.py
"""How the scripts of a shard are run: on which connection, under which number, and again when they came too late."""

from collections.abc import Sequence
from typing import Any

from bide.engines.redis.aio.connections import AsyncConnection, AsyncConnections
from bide.engines.redis.failures import TooOld, Unanswered, Unpinned
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.script import scripts
from bide.errors import BideError, OutcomeUnknown, Unavailable

TRIES = 3  # of a script that comes too late
LOOKS = ("get", "lease_ends", "leased", "scan", "stats", "time")  # scripts that change nothing


class AsyncCalls:
    def __init__(
        self, number: int, namespace: Namespace, connections: AsyncConnections, first: "AsyncCalls | None" = None
    ) -> None:
        """`first`: those of shard 0, if this is another one."""
        prefix = namespace.prefix(number)
        self._keys = (f"{prefix}meta", f"{prefix}-")
        self._shards = namespace.shards
        self._first = first
        self._connections = connections
        self._clock = connections.server.clock

    async def command(self, *args: Any) -> Any:
        """What a command answers that changes nothing."""
        connection = await self._connections.take()
        try:
            return await connection.command(*args)
        except Unanswered as lost:
            raise Unavailable(str(lost)) from None
        finally:
            await self._connections.give(connection)

    async def ask(self, verb: str, args: Sequence[Any], now: int | None) -> Any:
        """Run a script that may be run again at will."""
        return await self.do(verb, args, now, once=False)

    async def do(self, verb: str, args: Sequence[Any], now: int | None, *, once: bool = True, salt: bytes = b"") -> Any:
        """Run a script that must act once; again when it came too late, as when we have not heard from the server for long.

        With a salt it raises Unanswered, which has its number, when it may have acted.
        """
        connection = await self._connections.take()
        try:
            for _ in range(TRIES):
                if once:
                    connection.number += 1
                try:
                    head = self._head(connection, now, salt, args, once=once)
                    reply = await connection.run(scripts()[verb], self._keys, head)
                except TooOld as late:  # nothing was done, and now we know what time it is
                    self._clock.hear(late.now)
                except Unpinned:
                    await self._pin(connection, now)
                else:
                    self._clock.hear(int(reply[0]))
                    return reply
        except Unanswered as lost:
            if salt:
                raise
            raise (Unavailable if verb in LOOKS else OutcomeUnknown)(str(lost)) from None
        finally:
            await self._connections.give(connection)
        shown = self._connections.server.shown
        raise Unavailable(f"{shown} answers too late for anything to be done. Nothing was done; try again.")

    async def in_passing(self, verb: str, args: Sequence[Any]) -> bool:
        """Run a script that is not worth waiting for; False when the server is away."""
        connection = await self._connections.take()
        try:
            head = self._head(connection, None, b"", args, once=False)
            await connection.run(scripts()[verb], self._keys, head, retry_for=0.0)
        except (BideError, Unanswered, TooOld, Unpinned):
            return False
        finally:
            await self._connections.give(connection)
        return True

    async def _pin(self, connection: AsyncConnection, now: int | None) -> None:
        """Have it said how many shards there are, in shard 0 first: whoever counts them otherwise is refused from then on."""
        first = self._first
        if first is not None and first._connections is self._connections:
            await first._pin(connection, now)
        elif first is not None:
            other = await first._connections.take()
            try:
                await first._pin(other, now)
            finally:
                await first._connections.give(other)
        reply = await connection.run(scripts()["pin"], self._keys, self._head(connection, now, b"", (), once=False))
        self._clock.hear(int(reply[0]))

    def _head(self, connection: AsyncConnection, now: int | None, salt: bytes, args: Sequence[Any], *, once: bool) -> list[Any]:
        """What every script is told first."""
        lane, number = (connection.lane, connection.number) if once else ("", 0)
        until = self._clock.until(now, connection.retry_for)
        return ["" if now is None else now, self._clock.known, lane, number, salt, self._shards, until, *args]
