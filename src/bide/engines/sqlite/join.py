"""Joining the caller's own transaction: what it commits is delivered, what it rolls back never was."""

import os
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from bide.engines.sqlite.failures import translated
from bide.engines.sqlite.turn import Turn
from bide.errors import Unsupported

T = TypeVar("T")


def joined(path: str, connection: object, work: Callable[[Turn], T]) -> T:
    """Do a verb's work in the caller's transaction, in the caller's thread; all of it or, when it fails, nothing."""
    if not isinstance(connection, sqlite3.Connection):
        raise Unsupported(
            f"connection= is a {type(connection).__name__}. Give the sqlite3.Connection that has the transaction to join."
        )
    text_factory = connection.text_factory
    try:
        cursor = connection.cursor()
        cursor.row_factory, connection.text_factory = None, str  # whatever the caller has set for its own rows
        _refuse_another_file(path, cursor)
        begun = _begin(connection)
        try:
            cursor.execute("savepoint bide")
            answer = _in_savepoint(cursor, work)
        except BaseException:
            if begun and connection.in_transaction:
                connection.execute("rollback")
            raise
    except sqlite3.Error as error:
        raise translated(error, path, 5) from error
    finally:
        connection.text_factory = text_factory
    return answer


def _in_savepoint(cursor: sqlite3.Cursor, work: Callable[[Turn], T]) -> T:
    try:
        turn = Turn(cursor)
        answer = work(turn)
        turn.keep_time()
    except BaseException:
        if cursor.connection.in_transaction:  # on a full disk, SQLite itself has rolled back the whole of it
            cursor.execute("rollback to bide")
            cursor.execute("release bide")
        raise
    cursor.execute("release bide")
    return answer


def _refuse_another_file(path: str, cursor: sqlite3.Cursor) -> None:
    files = [row[2] for row in cursor.execute("pragma database_list") if row[1] == "main"]
    if not files[0] or not os.path.exists(path) or not os.path.samefile(files[0], path):
        raise Unsupported(
            f"connection= is open on {files[0] or 'a database in memory'}, and the queue is in {path}. No transaction spans "
            "both: open the connection on the queue's file, or the queue on the connection's."
        )


def _begin(connection: sqlite3.Connection) -> bool:
    """Begin as sqlite3 itself would before a write, unless the caller has begun; True when it was done here."""
    if connection.in_transaction:
        return False
    if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
        raise Unsupported("connection= has no open transaction and commits by itself: execute('BEGIN IMMEDIATE') on it first.")
    connection.execute("begin immediate")
    return True
