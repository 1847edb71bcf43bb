# Generated from ../aio/migrations.py by tools/unasync.py; change that file instead.
"""Makes the tables and functions of a namespace, and brings those of an older release to this one's layout."""

import time
from collections.abc import Callable

import psycopg
from psycopg.errors import DuplicateTable, LockNotAvailable, UniqueViolation

from bide.engines.postgres.failures import translated
from bide.engines.postgres.layout import FIND, LOCK, OURS, READ, FoundMigrations, Layout, check, filled, told
from bide.engines.postgres.location import Address
from bide.engines.postgres.statements import Limited, Rows
from bide.errors import SchemaMismatch
from bide.logs import Log
from bide.wakeable import Signal

PATIENCE = 600.0  # seconds that a step may take, with what others do before it
WAIT = 500  # ms that it waits for a lock
PAUSE = 2.0  # seconds until it tries again

_log = Log("bide.postgres")


class Migrator:
    """Programs that come together do it once: each step is one transaction, under a lock of the namespace's."""

    def __init__(self, address: Address, connect: Callable[[], Limited], ours: Layout = OURS) -> None:
        self.ours: Layout = ours
        self._address = address
        self._connect = connect

    def ensure(self, ask: Callable[[str], Rows]) -> None:
        """What opening a queue does: nothing if all is there. A user who may not ask is told by the first call."""
        found = self._look(ask)
        if found.hidden or found.number >= self.ours.number:
            return
        if not self._address.migrate:
            raise SchemaMismatch(f"{told(self._address.shown, self._address.schema, found, self.ours)}: run `bide migrate`.")
        self.begin()

    def found(self) -> FoundMigrations:
        connection = self._connected()
        try:
            return self._look(_asking(connection))
        except psycopg.Error as error:
            raise translated(error, self._address.shown) from error
        finally:
            connection.close()

    def begin(self) -> bool:
        """Add what this release needs. Whether there was anything to do."""
        return self._do(lambda found: self.ours.steps(self._address.schema, found.number), lambda found: found.number)

    def finish(self) -> bool:
        """Remove what only older releases use. Whether there was anything to do."""
        self.begin()
        return self._do(lambda found: self.ours.last_steps(self._address.schema, found.finished), lambda found: found.finished)

    def _do(self, script: Callable[[FoundMigrations], str], done: Callable[[FoundMigrations], int]) -> bool:
        connection = self._connected()
        try:
            connection.limit = PATIENCE
            end = time.monotonic() + PATIENCE
            while True:
                try:
                    return self._step(connection, script, done)
                except (UniqueViolation, DuplicateTable):  # another program has made the first tables meanwhile
                    if time.monotonic() > end or self._look(_asking(connection)) == FoundMigrations():
                        raise
                    continue
                except LockNotAvailable:
                    if time.monotonic() > end:
                        raise
                _log.info("%s is to be migrated when a transaction that uses its tables has ended", self._address.shown)
                Signal().wait(PAUSE)
        except psycopg.Error as error:
            raise translated(error, self._address.shown) from error
        finally:
            connection.close()

    def _step(
        self, connection: Limited, script: Callable[[FoundMigrations], str], done: Callable[[FoundMigrations], int]
    ) -> bool:
        """Not for long behind a transaction that uses the tables: all others would wait behind the locks of this one."""
        with connection.transaction():
            connection.execute(b"set local search_path = pg_catalog, pg_temp")
            found = self._look(_asking(connection))
            if FoundMigrations() != found and done(found) < self.ours.number:
                connection.execute(filled(LOCK, self._address.schema).encode())
                found = self._look(_asking(connection))
            if done(found) >= self.ours.number:
                return False
            text = script(found)
            if text:
                connection.execute(f"set local lock_timeout = {WAIT}".encode())
                connection.execute(text.encode())
            return bool(text)

    def _connected(self) -> Limited:
        try:
            return self._connect()
        except psycopg.Error as error:
            raise translated(error, self._address.shown) from error

    def _look(self, ask: Callable[[str], Rows]) -> FoundMigrations:
        schema, found = self._address.schema, FoundMigrations()
        [[there, readable]] = ask(filled(FIND, schema))
        if not readable:
            return FoundMigrations(hidden=True)
        for row in ask(filled(READ, schema)) if there else []:
            found = FoundMigrations(*row)
        check(self._address.shown, found, self.ours)
        return found


def _asking(connection: Limited) -> Callable[[str], Rows]:
    def ask(sql: str) -> Rows:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall()

    return ask
