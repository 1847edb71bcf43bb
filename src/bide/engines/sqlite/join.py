"""Joining the caller's own transaction: what it commits is delivered, what it rolls back never was.

The caller's connection= is sqlite3's own, or one that SQLAlchemy holds. SQLAlchemy is not imported here. Its objects are
told by the names of their classes, and asked by its documented ways: `Session.connection()`, `Connection.connection`, and
for those of asyncio `run_sync`.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bide.engines.callers import ONE_CALL, in_use, take
from bide.engines.sqlite.failures import is_locked, translated
from bide.engines.sqlite.transaction import Transaction
from bide.errors import Unsupported

_SCOPED = {"sqlalchemy.orm.scoping.scoped_session", "sqlalchemy.ext.asyncio.scoping.async_scoped_session"}
_SESSION = "sqlalchemy.orm.session.Session"
_CONNECTION = "sqlalchemy.engine.base.Connection"
_ASYNC_SESSION = "sqlalchemy.ext.asyncio.session.AsyncSession"
_ASYNC_CONNECTION = "sqlalchemy.ext.asyncio.engine.AsyncConnection"


class Borrowed:
    """A connection of the caller's, in the one manner that verbs use: statements, and what it is set to."""

    def __init__(self, driver: Any, cursors: Any) -> None:
        self.driver = driver  # sqlite3's connection, or one of another thread that shows its settings
        self._cursors = cursors  # what makes cursors that are used from here

    def execute(self, sql: str, values: Any = ()) -> Any:
        cursor = self._cursor()
        cursor.execute(sql, values)
        return cursor

    def executemany(self, sql: str, values: Sequence[Any]) -> Any:
        cursor = self._cursor()
        cursor.executemany(sql, values)
        return cursor

    def _cursor(self) -> Any:
        return self._cursors.cursor()

    @property
    def in_transaction(self) -> bool:
        return bool(self.driver.in_transaction)

    @property
    def commits_by_itself(self) -> bool:
        """Unless a transaction was begun in so many words."""
        return self.driver.isolation_level is None or getattr(self.driver, "autocommit", None) is True


def borrowed(connection: object) -> Borrowed:
    """What is behind it; a transaction of SQLAlchemy's is begun unless one is, or its commit would not be ours."""
    if isinstance(connection, sqlite3.Connection):
        return Borrowed(connection, connection)
    names = _names(connection)
    given: Any = connection
    if names & _SCOPED:
        given = given()
        names = _names(given)
    if names & {_ASYNC_SESSION, _ASYNC_CONNECTION}:
        raise Unsupported(f"connection= is a {type(given).__name__} of asyncio: give it to an AsyncQueue.")
    try:
        if _SESSION in names:
            given = given.connection()
        elif _CONNECTION not in names:
            raise Unsupported(
                f"connection= is a {type(connection).__name__}. Give the sqlite3.Connection that has the transaction to join, "
                "or a Connection or Session of SQLAlchemy."
            )
        elif not given.in_transaction():
            given.begin()
        pooled = given.connection
        driver = pooled.driver_connection
    except Unsupported:
        raise
    except Exception as error:
        raise _unusable(error) from error
    if not isinstance(driver, sqlite3.Connection) and not {"aiosqlite.core.Connection"} & _names(driver):
        raise Unsupported(
            f"connection= is one of {type(driver).__module__}, and the queue is an SQLite file: no transaction spans both."
        )
    return Borrowed(driver, pooled)


async def lent(connection: Any) -> Any:
    """An AsyncConnection of SQLAlchemy, when it is one or a session of its asyncio; None for everything else."""
    names = _names(connection)
    if names & _SCOPED:
        connection = connection()
        names = _names(connection)
    try:
        if _ASYNC_SESSION in names:
            return await connection.connection()
        if _ASYNC_CONNECTION not in names:
            return None
        if not connection.in_transaction():
            await connection.begin()
    except Exception as error:
        raise _unusable(error) from error
    return connection


def _unusable(error: Exception) -> Unsupported:
    """What SQLAlchemy says: closed, not begun, not bound to an engine, in a state that takes no statements."""
    if "concurrent operations are not permitted" in str(error):
        return Unsupported(ONE_CALL)
    return Unsupported(f"connection= can't be joined, as SQLAlchemy says: {error}")


def _names(thing: object) -> set[str]:
    return {f"{each.__module__}.{each.__qualname__}" for each in type(thing).__mro__}


T = TypeVar("T")


def joined(path: str, connection: object, work: Callable[[Transaction], T]) -> T:
    """Do a verb's work in the caller's transaction, in the caller's thread; all of it or, when it fails, nothing."""
    own = borrowed(connection)
    driver = own.driver
    number, mine = id(driver), object()
    try:
        take(number, mine)
        row_factory, text_factory = driver.row_factory, driver.text_factory
        try:
            driver.row_factory, driver.text_factory = None, str  # whatever is set for the caller's rows, ours come as they are
            return _undone_if_it_fails(path, own, work)
        except sqlite3.Error as error:
            raise translated(error, path, _patience(own) if is_locked(error) else 0) from error
        finally:
            driver.row_factory, driver.text_factory = row_factory, text_factory
    finally:
        if number in in_use and in_use[number] is mine:
            del in_use[number]


def _undone_if_it_fails(path: str, own: Borrowed, work: Callable[[Transaction], T]) -> T:
    _refuse_another_file(path, own)
    begun = _begin(own)
    try:
        own.execute("savepoint bide")
        return _in_savepoint(own, work)
    except BaseException:
        if begun and own.in_transaction:
            own.execute("rollback")
        raise


def _in_savepoint(own: Borrowed, work: Callable[[Transaction], T]) -> T:
    try:
        tx = Transaction(own)
        answer = work(tx)
        tx.times.keep()
    except BaseException:
        if own.in_transaction:  # on a full disk, SQLite itself has rolled back the whole of it
            own.execute("rollback to bide")
            own.execute("release bide")
        raise
    own.execute("release bide")
    return answer


def _refuse_another_file(path: str, own: Borrowed) -> None:
    files = [row[2] for row in own.execute("pragma database_list").fetchall() if row[1] == "main"]
    if not files[0] or not os.path.exists(path) or not os.path.samefile(files[0], path):
        raise Unsupported(
            f"connection= is open on {files[0] or 'a database in memory'}, and the queue is in {path}. No transaction spans "
            "both: open the connection on the queue's file, or the queue on the connection's."
        )


def _begin(own: Borrowed) -> bool:
    """Begin as sqlite3 itself would before a write, unless the caller has begun; True when it was done here."""
    if own.in_transaction:
        return False
    if own.commits_by_itself:
        raise Unsupported("connection= has no open transaction and commits by itself: execute('BEGIN IMMEDIATE') on it first.")
    own.execute("begin immediate")
    return True


def _patience(own: Borrowed) -> float:
    """Seconds that the caller's connection waits for a lock."""
    with contextlib.suppress(sqlite3.Error):
        return float(own.execute("pragma busy_timeout").fetchone()[0]) / 1000
    return 0
