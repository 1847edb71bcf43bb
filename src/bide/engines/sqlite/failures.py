"""From SQLite's errors to those of bide, with what to do. Every write is one transaction, so nothing was changed."""

import os
import sqlite3

from bide.errors import EngineError, QueueFull, SchemaMismatch, Unavailable

_FULL = {sqlite3.SQLITE_FULL}
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
OWN_TRANSACTION = "a transaction of this process: give it as connection= to be part of it, or end it first"


_WRITE_LOCK = 120  # the byte of the shared memory that stands for the write lock, fixed by SQLite's file format


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
    """Who holds the lock, where that is known. Often it is a transaction of the same process."""
    number = _lock_holder(path)
    if number == os.getpid():
        return Unavailable(
            f"The write lock of {path} has been held for {waited:.0f} seconds by {OWN_TRANSACTION}. Nothing was changed."
        )
    which = f"process {number}" if number else "a backup? a shell with an open BEGIN?"
    return Unavailable(
        f"Another process has held the write lock of {path} for {waited:.0f} seconds. Nothing was changed: "
        f"find its long transaction ({which}) and try again."
    )


def _lock_holder(path: str) -> int | None:
    """The process that holds the write lock of a file; None when no process does, or the system does not tell."""
    try:
        shared = os.stat(os.path.realpath(path) + "-shm").st_ino
        with open("/proc/locks", encoding="ascii", errors="replace") as lines:
            locks = [line.split() for line in lines]
    except OSError:
        return None
    for lock in locks:
        if lock[1:2] == ["POSIX"] and lock[3:4] == ["WRITE"] and len(lock) == 8 and _is_of(lock, shared):
            return int(lock[4])
    return None


def _is_of(lock: list[str], inode: int) -> bool:
    """Whether a lock such as `1: POSIX ADVISORY WRITE 4711 fe:00:2146419 120 120` is on this file, and on that byte."""
    first, last = int(lock[6]), int(lock[7]) if lock[7].isdecimal() else _WRITE_LOCK
    return lock[5].rpartition(":")[2] == str(inode) and first <= _WRITE_LOCK <= last
