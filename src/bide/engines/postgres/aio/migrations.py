# unasync: ../sync/migrations.py
"""Makes the tables and functions of a namespace, and brings those of an older release to this one's layout."""

import time
from collections.abc import Awaitable, Callable

import psycopg
from psycopg.errors import DuplicateTable, LockNotAvailable, UniqueViolation

from bide.engines.postgres.failures import translated
from bide.engines.postgres.layout import FIND, LOCK, OURS, READ, FoundMigrations, Layout, check, filled, told
from bide.engines.postgres.location import Address
from bide.engines.postgres.statements import AsyncLimited, Rows
from bide.errors import SchemaMismatch
from bide.logs import Log
from bide.wakeable import AsyncSignal

PATIENCE = 600.0  # seconds that a step may take, with what others do before it
WAIT = 500  # ms that it waits for a lock
PAUSE = 2.0  # seconds until it tries again

_log = Log("bide.postgres")


class AsyncMigrator:
    """Programs that come together do it once: each step is one transaction, under a lock of the namespace's."""

    def __init__(self, address: Address, connect: Callable[[], Awaitable[AsyncLimited]], ours: Layout = OURS) -> None:
        self.ours: Layout = ours
        self._address = address
        self._connect = connect

    async def ensure(self, ask: Callable[[str], Awaitable[Rows]]) -> None:
        """What opening a queue does: nothing if all is there. A user who may not ask is told by the first call."""
        found = await self._look(ask)
        if found.hidden or found.number >= self.ours.number:
            return
        if not self._address.migrate:
            raise SchemaMismatch(f"{told(self._address.shown, self._address.schema, found, self.ours)}: run `bide migrate`.")
        await self.begin()

    async def found(self) -> FoundMigrations:
        connection = await self._connected()
        try:
            return await self._look(_asking(connection))
        except psycopg.Error as error:
            raise translated(error, self._address.shown) from error
        finally:
            await connection.close()

    async def begin(self) -> bool:
        """Add what this release needs. Whether there was anything to do."""
        return await self._do(lambda found: self.ours.steps(self._address.schema, found.number), lambda found: found.number)

    async def finish(self) -> bool:
        """Remove what only older releases use. Whether there was anything to do."""
        await self.begin()
        return await self._do(
            lambda found: self.ours.last_steps(self._address.schema, found.finished), lambda found: found.finished
        )

    async def _do(self, script: Callable[[FoundMigrations], str], done: Callable[[FoundMigrations], int]) -> bool:
        connection = await self._connected()
        try:
            connection.limit = PATIENCE
            end = time.monotonic() + PATIENCE
            while True:
                try:
                    return await self._step(connection, script, done)
                except (UniqueViolation, DuplicateTable):  # another program has made the first tables meanwhile
                    if time.monotonic() > end or await self._look(_asking(connection)) == FoundMigrations():
                        raise
                    continue
                except LockNotAvailable:
                    if time.monotonic() > end:
                        raise
                _log.info("%s is to be migrated when a transaction that uses its tables has ended", self._address.shown)
                await AsyncSignal().wait(PAUSE)
        except psycopg.Error as error:
            raise translated(error, self._address.shown) from error
        finally:
            await connection.close()

    async def _step(
        self, connection: AsyncLimited, script: Callable[[FoundMigrations], str], done: Callable[[FoundMigrations], int]
    ) -> bool:
        """Not for long behind a transaction that uses the tables: all others would wait behind the locks of this one."""
        async with connection.transaction():
            await connection.execute(b"set local search_path = pg_catalog, pg_temp")
            found = await self._look(_asking(connection))
            if FoundMigrations() != found and done(found) < self.ours.number:
                await connection.execute(filled(LOCK, self._address.schema).encode())
                found = await self._look(_asking(connection))
            if done(found) >= self.ours.number:
                return False
            text = script(found)
            if text:
                await connection.execute(f"set local lock_timeout = {WAIT}".encode())
                await connection.execute(text.encode())
            return bool(text)

    async def _connected(self) -> AsyncLimited:
        try:
            return await self._connect()
        except psycopg.Error as error:
            raise translated(error, self._address.shown) from error

    async def _look(self, ask: Callable[[str], Awaitable[Rows]]) -> FoundMigrations:
        schema, found = self._address.schema, FoundMigrations()
        [[there, readable]] = await ask(filled(FIND, schema))
        if not readable:
            return FoundMigrations(hidden=True)
        for row in await ask(filled(READ, schema)) if there else []:
            found = FoundMigrations(*row)
        check(self._address.shown, found, self.ours)
        return found


def _asking(connection: AsyncLimited) -> Callable[[str], Awaitable[Rows]]:
    async def ask(sql: str) -> Rows:
        cursor = await connection.execute(sql.encode())
        return await cursor.fetchall()

    return ask
