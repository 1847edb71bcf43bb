"""Sets engine time right that a wrong clock has carried ahead: by hand, while nobody uses the file."""

import contextlib
import os
import sqlite3

from bide.clock import MS
from bide.engines.base import Finding
from bide.engines.sqlite import file
from bide.engines.sqlite.failures import is_locked, translated
from bide.errors import Unavailable

AHEAD = 10_000  # ms that a file's time may be ahead of the clock before it is an operator's business

_MARKS = "select space, mark from engine where mark > :limit"
_SET = "update engine set raw = :now, mark = :now where space = :space"
_LEASES = """
update message set until = until - :ahead
where stage = 1 and until > :mark and topic in (select id from topic where space = :space)
"""


def examined(connection: sqlite3.Connection, now_ms: int) -> Finding:
    """How far the time of a file is ahead."""
    marks = [mark // MS - now_ms for _, mark in connection.execute(_MARKS, {"limit": (now_ms + AHEAD) * MS})]
    if not marks:
        return Finding("engine time", "agrees with the clock")
    advice = (
        "a process wrote while its clock was that far ahead, and until the clock has caught up, time goes at half its speed: "
        "set the clock if it is wrong; if not, stop what uses the file and run bide doctor --fix"
    )
    return Finding("engine time", f"{max(marks) / 1000:,.1f} s ahead of the clock", "bad", advice)


def mend(path: str, now_ms: int) -> list[Finding]:
    """Take the time back to the clock's, and with it the ends of the leases that still run. What was done, if anything."""
    if not os.path.exists(path):
        return []
    connection = file.connect(path)
    try:
        file.recognise(connection, path)
        if examined(connection, now_ms).level == "ok":
            return []
        _refuse_company(connection, path)
        connection.execute("begin immediate")
        mended = [_mended(connection, space, mark, now_ms) for space, mark in _ahead(connection, now_ms)]
        connection.execute("commit")
        return mended
    except sqlite3.Error as error:
        raise translated(error, path) from error
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("pragma journal_mode = wal")
        connection.close()


def _ahead(connection: sqlite3.Connection, now_ms: int) -> list[tuple[str, int]]:
    return connection.execute(_MARKS, {"limit": (now_ms + AHEAD) * MS}).fetchall()


def _mended(connection: sqlite3.Connection, space: str, mark: int, now_ms: int) -> Finding:
    ahead = mark // MS - now_ms
    connection.execute(_LEASES, {"ahead": ahead, "mark": mark // MS, "space": space})
    connection.execute(_SET, {"now": now_ms * MS, "space": space})
    return Finding("mended", f"the time of namespace {space} was {ahead / 1000:,.1f} s ahead, and is the clock's again")


def _refuse_company(connection: sqlite3.Connection, path: str) -> None:
    """Whoever has the file open knows its time by heart, and would write it back. SQLite changes its mode for one alone."""
    connection.execute("pragma busy_timeout = 0")
    try:
        connection.execute("pragma journal_mode = delete")
    except sqlite3.Error as error:
        if not is_locked(error):
            raise
        raise Unavailable(f"{path} is in use, and its time can't be set back: stop what uses it, and try again.") from error
