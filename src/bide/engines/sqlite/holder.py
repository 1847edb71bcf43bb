"""Who holds the write lock of a file, where the system tells."""

import os

_WRITE_LOCK = 120  # the byte of the shared memory that stands for it, fixed by SQLite's file format


def holder(path: str, table: str = "/proc/locks") -> int | None:
    """The number of the process; None when nobody holds it, or nobody can tell."""
    try:
        shared = os.stat(os.path.realpath(path) + "-shm").st_ino
        with open(table, encoding="ascii", errors="replace") as lines:
            locks = [line.split() for line in lines]
    except OSError:
        return None
    for lock in locks:
        if lock[1:2] == ["POSIX"] and lock[3:4] == ["WRITE"] and len(lock) == 8 and _is_of(lock, shared):
            return int(lock[4])
    return None


def _is_of(lock: list[str], inode: int) -> bool:
    """Of `1: POSIX ADVISORY WRITE 4711 fe:00:2146419 120 120`: whether it is this file's, and covers that byte."""
    first, last = int(lock[6]), int(lock[7]) if lock[7].isdecimal() else _WRITE_LOCK
    return lock[5].rpartition(":")[2] == str(inode) and first <= _WRITE_LOCK <= last
