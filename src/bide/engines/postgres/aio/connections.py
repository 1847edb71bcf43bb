# unasync: ../sync/connections.py
"""The connections of an engine: each call takes one, runs one statement, and is repeated if that is safe and may help."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import psycopg

from bide.engines.postgres.aio.migrating import AsyncMigrating
from bide.engines.postgres.failures import Tries, is_lost, is_passing, is_refused, is_useless, may_have_acted, translated
from bide.engines.postgres.limited import AsyncLimited, Rows
from bide.engines.postgres.location import Address
from bide.engines.postgres.server_settings import LOOK, settings_for
from bide.errors import BideError, OutcomeUnknown, Unavailable
from bide.wakeable import AsyncSignal

BYTES = 5_000_000  # that the server stores in a second at least
CONNECTED = "bide"  # the name that the server shows


class AsyncConnections:
    def __init__(self, address: Address) -> None:
        self.pooled: bool = False  # by something like PgBouncer, between here and the server
        self._address = address
        self._room = asyncio.Semaphore(address.connections)
        self._idle: list[AsyncLimited] = []
        self._settings = ""  # what the server must be told to set for our connections
        self._closed = False

    async def prepare(self) -> None:
        """Look what is between here and the server, and make the tables if they are missing or old."""
        pids: list[int] = []
        [[pid, *found]] = await self.run(LOOK, (), pids=pids)
        self.pooled = pids != [pid]
        self._settings = settings_for(self._address.shown, found, pooled=self.pooled)
        if self.pooled or self._settings:
            await self.drop_idle()
        await AsyncMigrating(self._address, self.connect).ensure(lambda sql: self.run(sql, ()))

    async def run(
        self, sql: str, args: Sequence[Any], *, acts: bool = False, large: int = 0, pids: list[int] | None = None
    ) -> Rows:
        """The rows of a statement. `acts`: it changes something, and may have done so although no answer came.

        It is repeated after a failure, so it must be one that acts once: its request is among its arguments. `large`: so many
        bytes are sent, for which the server is given time. `pids` is given the process number that the server told when the
        connection was made.
        """
        tries = Tries(self._address.timeout)
        while True:
            async with self._room:
                try:
                    connection = self._taken() or await self.connect()
                except (psycopg.Error, OSError) as error:
                    if tries.over or self._closed or is_refused(error):
                        raise self._told(error, unsure=tries.unsure) from error
                else:
                    if pids is not None:
                        pids[:] = [connection.info.backend_pid]
                    connection.limit = self._address.timeout + large / BYTES
                    try:
                        return await self._ask(connection, sql, args)
                    except (psycopg.Error, OSError) as error:
                        tries.unsure = tries.unsure or (acts and may_have_acted(error))
                        if tries.over or self._closed or not (is_lost(error) or is_passing(error)):
                            raise self._told(error, unsure=tries.unsure) from error
            await AsyncSignal().wait(tries.pause())

    async def _ask(self, connection: AsyncLimited, sql: str, args: Sequence[Any]) -> Rows:
        try:
            cursor = await connection.execute(sql.encode(), args or None, binary=True)
            rows = await cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            if is_useless(error):
                await connection.drop()
                await self.drop_idle()
            else:
                await self._put_back(connection)
            raise
        except BaseException:
            await connection.drop()  # an answer may still come, and must not be taken for that of the next call
            raise
        await self._put_back(connection)
        return rows

    def _taken(self) -> AsyncLimited | None:
        with contextlib.suppress(IndexError):  # no look before: another thread may take the last one
            return self._idle.pop()
        return None

    async def _put_back(self, connection: AsyncLimited) -> None:
        if self._closed or connection.closed:
            await connection.close()
        else:
            self._idle.append(connection)

    async def connect(self) -> AsyncLimited:
        """A new connection, in autocommit."""
        if self._closed:
            raise Unavailable("The PostgreSQL engine is closed: make a new queue.")
        timeout = max(1, round(self._address.timeout))
        options: dict[str, Any] = {
            "connect_timeout": timeout,
            "tcp_user_timeout": 1000 * timeout,
            "application_name": CONNECTED,
            **self._address.connecting(),
            "client_encoding": "utf8",
        }
        if self._settings:
            options["options"] = f"{options.get('options', '')} {self._settings}"
        connection = await AsyncLimited.connect(**options, autocommit=True)
        connection.limit = self._address.timeout
        if self.pooled:
            connection.prepare_threshold = None  # another process of the server may answer the next call
        return connection

    async def close(self) -> None:
        self._closed = True
        await self.drop_idle()

    def abandon(self) -> None:
        """Leave the connections that were made in a loop that is closed."""
        self._closed = True
        for connection in self._idle:
            connection.pgconn.finish()
        self._idle.clear()

    async def drop_idle(self) -> None:
        while connection := self._taken():
            await connection.close()

    def _told(self, error: BaseException, *, unsure: bool) -> BideError:
        shown = self._address.shown
        if unsure:
            return OutcomeUnknown(f"{shown} did not answer: the change may or may not have happened.")
        if isinstance(error, psycopg.Error):
            return translated(error, shown)
        return Unavailable(f"{shown} did not answer, so nothing was done: {error}. Is the server overloaded?")
