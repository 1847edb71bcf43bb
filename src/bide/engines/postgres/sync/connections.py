# Generated from ../aio/connections.py by tools/unasync.py; change that file instead.
"""The connections of an engine: each call takes one, runs one statement, and is repeated if that is safe and may help."""

import threading
from collections.abc import Sequence
from typing import Any

import psycopg

from bide.engines.postgres.failures import Tries, is_lost, is_passing, translated
from bide.engines.postgres.location import Address
from bide.engines.postgres.sync.migrating import Migrating
from bide.errors import BideError, OutcomeUnknown, Unavailable
from bide.wakeable import Briefly, Signal

CONNECTED = "bide"  # the name that the server shows


class Connections:
    def __init__(self, address: Address) -> None:
        self.pooled: bool = False  # by something like PgBouncer, between here and the server
        self._address = address
        self._room = threading.Semaphore(address.connections)
        self._idle: list[psycopg.Connection[Any]] = []
        self._closed = False

    def prepare(self) -> None:
        """Look what is between here and the server, and make the tables if they are missing or old."""
        [[pid]] = self.run("select pg_backend_pid()", ())
        connection = self._idle.pop()
        self.pooled = connection.info.backend_pid != pid
        if self.pooled:
            connection.prepare_threshold = None  # another process of the server may answer the next call
        self._idle.append(connection)
        Migrating(self._address, self.connect).ensure(connection)

    def run(self, sql: str, args: Sequence[Any], *, acts: bool = False) -> list[Any]:
        """The rows of a statement. `acts`: it changes something, and may have done so although no answer came.

        It is repeated after a failure, so it must be one that acts once: its request is among its arguments.
        """
        tries = Tries(self._address.timeout)
        while True:
            try:
                return self._once(sql, args)
            except (psycopg.Error, TimeoutError, OSError) as error:
                lost = is_lost(error) or not isinstance(error, psycopg.Error)
                tries.unsure = tries.unsure or (acts and lost and not isinstance(error, ConnectionRefusedError))
                if tries.over or self._closed or not (lost or is_passing(error)):
                    raise self._told(error, unsure=tries.unsure and lost) from error
            Signal().wait(tries.pause())

    def _once(self, sql: str, args: Sequence[Any]) -> list[Any]:
        with self._room:
            connection = self._idle.pop() if self._idle else self.connect()
            try:
                with Briefly(self._address.timeout):
                    cursor = connection.execute(sql.encode(), args or None, binary=True)
                    rows = cursor.fetchall() if cursor.description else []
            except BaseException as error:
                if isinstance(error, psycopg.Error) and not is_lost(error) and not connection.closed:
                    self._idle.append(connection)
                else:
                    connection.close()
                raise
            self._idle.append(connection)
            return rows

    def connect(self) -> psycopg.Connection[Any]:
        """A new connection, in autocommit."""
        if self._closed:
            raise Unavailable("The PostgreSQL engine is closed: make a new queue.")
        timeout = max(1, round(self._address.timeout))
        options: dict[str, Any] = {
            "connect_timeout": timeout,
            "tcp_user_timeout": 1000 * timeout,
            "application_name": CONNECTED,
            **self._address.conninfo,
        }
        connection = psycopg.Connection.connect(**options, autocommit=True)
        if self.pooled:
            connection.prepare_threshold = None
        return connection

    def close(self) -> None:
        self._closed = True
        self.drop_idle()

    def abandon(self) -> None:
        """Leave the connections to whoever had them before a fork, or in a loop that is closed."""
        self._closed = True
        for connection in self._idle:
            connection.pgconn.finish()
        self._idle.clear()

    def drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _told(self, error: BaseException, *, unsure: bool) -> BideError:
        shown = self._address.shown
        if unsure:
            return OutcomeUnknown(f"{shown} did not answer: the change may or may not have happened.")
        if isinstance(error, psycopg.Error) and error.sqlstate:
            return translated(error, shown)
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return Unavailable(
            f"{shown} can't be reached, so nothing was done: {said}. Is the server running, and is the URL right?"
        )
