# unasync: ../sync/connections.py
"""The connections of an engine: each call takes one, runs one statement, and is repeated if that is safe and may help."""

import contextlib
from collections.abc import Sequence
from typing import Any

import psycopg

from bide.engines.postgres.aio.migrations import AsyncMigrator
from bide.engines.postgres.failures import (
    PATIENCE,
    Tries,
    is_absent,
    is_lost,
    is_passing,
    is_read_only,
    is_refused,
    is_useless,
    may_have_acted,
    translated,
)
from bide.engines.postgres.location import LOOK, Address, settings_for
from bide.engines.postgres.statements import AsyncConnectionRoom, AsyncLimited, Rows
from bide.errors import BideError, OutcomeUnknown, Unavailable
from bide.wakeable import AsyncSignal

BYTES = 5_000_000  # that the server stores in a second at least
CONNECTED = "bide"  # the name that the server shows


class AsyncConnections:
    def __init__(self, address: Address) -> None:
        self.pooled: bool = False  # by something like PgBouncer, between here and the server
        self._address = address
        self._room = AsyncConnectionRoom(address.connections)
        self._idle: list[AsyncLimited] = []
        self._settings = ""  # what the server must be told to set for our connections
        self._met = False  # whether a server has ever let it in
        self._closed = False

    async def prepare(self) -> None:
        """Look what is between here and the server, and make the tables if they are missing or old."""
        pids: list[int] = []
        [[pid, *found]] = await self.run(LOOK, (), pids=pids)
        self.pooled = pids != [pid]
        self._settings = settings_for(self._address.shown, found, pooled=self.pooled)
        if self.pooled or self._settings:
            await self.drop_idle()
        await AsyncMigrator(self._address, self.connect).ensure(lambda sql: self.run(sql, ()))

    async def run(
        self,
        sql: str,
        args: Sequence[Any],
        *,
        acts: bool = False,
        repeats: bool = True,
        large: int = 0,
        pids: list[int] | None = None,
    ) -> Rows:
        """The rows of a statement. `acts`: it changes something, and may have done so although no answer came.

        If it `repeats` after a failure, it must be one that acts once: its request is among its arguments. `large`: so many
        bytes are sent, for which the server is given time. `pids` is given the process number that the server told when the
        connection was made.
        """
        tries = Tries(self._address.timeout / (1 if self._met else PATIENCE) if repeats else 0)
        while True:
            place: list[int] = []
            try:
                await self._room.take(place)
                return await self._once(sql, args, tries, acts=acts, large=large, pids=pids)
            except (psycopg.Error, OSError) as error:
                if tries.over or self._closed or not tries.useful:
                    raise self._told(error, unsure=tries.unsure) from error
            finally:
                for each in place:
                    self._room.free.put_nowait(each)
            await AsyncSignal().wait(tries.pause())

    async def _once(
        self, sql: str, args: Sequence[Any], tries: Tries, *, acts: bool, large: int, pids: list[int] | None
    ) -> Rows:
        """One try. What it ends with says whether another one is of use."""
        connection = self._taken()
        fresh = connection is None
        if connection is None:
            try:
                connection = await self.connect()
            except (psycopg.Error, OSError) as error:
                tries.useful = not is_refused(error) and (self._met or not is_absent(error))
                raise
            self._met = True
        if pids is not None:
            pids[:] = [connection.info.backend_pid]
        connection.limit = self._address.timeout + large / BYTES
        try:
            return await self._ask(connection, sql, args)
        except (psycopg.Error, OSError) as error:
            tries.unsure = tries.unsure or (acts and may_have_acted(error))
            standby = fresh and is_read_only(error) and not self.pooled and not self._address.several()
            tries.useful = (is_lost(error) or is_passing(error)) and not standby
            raise

    async def _ask(self, connection: AsyncLimited, sql: str, args: Sequence[Any]) -> Rows:
        try:
            rows = await connection.ask(sql, args)
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
