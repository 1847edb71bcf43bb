"""What SQLite's errors mean to a user. Nothing was changed unless it says so: every write is one transaction."""

import os
import sqlite3

from bide.engines.sqlite.holder import holder
from bide.errors import EngineError, QueueFull, SchemaMismatch, Unavailable

_FULL = {sqlite3.SQLITE_FULL}
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
OWN_TRANSACTION = "a transaction of this process: give it as connection= to be part of it, or end it first"


def code_of(error: sqlite3.Error) -> int:
    """The primary result code; 0 when the error did not come from SQLite itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_locked(error: sqlite3.Error) -> bool:
    return code_of(error) in _LOCKED


def translated(error: sqlite3.Error, path: str, waited: float = 0) -> EngineError:
    """One of our errors, with what to do."""
    code = code_of(error)
    if code in _FULL:
        return QueueFull(
            f"The disk that holds {path} is full: nothing was stored. What is in the queue can be drained once there is space."
        )
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return Unavailable(
            f"The transaction of connection= has read {path} before somebody else wrote to it, and SQLite lets no such "
            "transaction write. Nothing was changed: roll it back, and begin it with BEGIN IMMEDIATE."
        )
    if code in _LOCKED:
        return _locked(path, waited)
    if code in _READ_ONLY:
        return Unavailable(f"{path} can't be written: give this user write access to the file and its folder, and try again.")
    if code in _BROKEN:
        return SchemaMismatch(
            f"{path} is damaged or is not an SQLite file ({error}). "
            "Keep a copy and try `sqlite3 FILE .recover`, or name a new one."
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return Unavailable(f"{path} can't be opened: does its folder exist, and may this user write there?")
    return Unavailable(f"SQLite failed on {path}: {str(error).rstrip('.')}. Nothing was changed.")


def _locked(path: str, waited: float) -> Unavailable:
    """By whom, where that is known: to wait for a transaction of one's own is the commonest way to wait in vain."""
    number = holder(path)
    if number == os.getpid():
        return Unavailable(
            f"The write lock of {path} has been held for {waited:.0f} seconds by {OWN_TRANSACTION}. Nothing was changed."
        )
    which = f"process {number}" if number else "a backup? a shell with an open BEGIN?"
    return Unavailable(
        f"Another process has held the write lock of {path} for {waited:.0f} seconds. Nothing was changed: "
        f"find its long transaction ({which}) and try again."
    )
