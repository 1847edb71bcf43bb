"""Joining the caller's own transaction: what it commits is delivered, what it rolls back never was."""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from typing import TypeVar

from bide.engines.sqlite.borrowed import Borrowed, borrowed
from bide.engines.sqlite.failures import is_locked, translated
from bide.engines.sqlite.transaction import Transaction
from bide.errors import Unsupported

T = TypeVar("T")


def joined(path: str, connection: object, work: Callable[[Transaction], T]) -> T:
    """Do a verb's work in the caller's transaction, in the caller's thread; all of it or, when it fails, nothing."""
    own = borrowed(connection)
    try:
        with own.alone(), _plain_rows(own):
            _refuse_another_file(path, own)
            begun = _begin(own)
            try:
                own.execute("savepoint bide")
                return _in_savepoint(own, work)
            except BaseException:
                if begun and own.in_transaction:
                    own.execute("rollback")
                raise
    except sqlite3.Error as error:
        raise translated(error, path, _patience(own) if is_locked(error) else 0) from error


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


@contextlib.contextmanager
def _plain_rows(own: Borrowed) -> Iterator[None]:
    """Whatever the caller has set for its own rows, ours come as they are."""
    driver = own.driver
    row_factory, text_factory = driver.row_factory, driver.text_factory
    try:
        driver.row_factory, driver.text_factory = None, str
        yield
    finally:
        driver.row_factory, driver.text_factory = row_factory, text_factory


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
    with contextlib.suppress(sqlite3.Error), _plain_rows(own):
        return float(own.execute("pragma busy_timeout").fetchone()[0]) / 1000
    return 0
