"""What an operator should know of a file, and how engine time that is ahead of the clock is set right."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from bide.clock import MS
from bide.core import formats
from bide.core.options import OWN_TOPICS
from bide.core.rate import Spending
from bide.engines.base import Finding
from bide.engines.findings import Check, judged, run
from bide.engines.sqlite import file
from bide.engines.sqlite.failures import is_locked, translated
from bide.errors import EngineError, Unavailable

WAL_RESET_MENDED = (3, 51, 3)  # before it, two processes that met in a checkpoint could, rarely, damage the file
LONG_WAL = 2 * file.WAL_LIMIT
AHEAD = 10_000  # ms that a file's time may be ahead of the clock before it is an operator's business

_MARKS = "select space, mark from engine where mark > :limit"
_SET = "update engine set raw = :now, mark = :now where space = :space"
_LEASES = """
update message set until = until - :ahead
where stage = 1 and until > :mark and topic in (select id from topic where space = :space)
"""
_GATES = (
    "update bide_gate_place set until = until - :ahead where gate in (select id from bide_gate where space = :space)",
    "update bide_gate_line set since = since - :ahead, until = until - :ahead, again = again - :ahead, "
    "asks_by = asks_by - :ahead where gate in (select id from bide_gate where space = :space)",
    "update bide_gate set ends = ends - :ahead, next = next - :ahead, asks_by = asks_by - :ahead where space = :space",
    "update bide_gate_instant set at = at - :ahead where space = :space",
)
_RESULTS = (
    "update bide_result set until = until - :ahead where space = :space",
    "update bide_waiting set until = until - :ahead where space = :space",
)
_RATES = "select name, spending from bide_gate_rate where space = :space"
_SET_RATE = "update bide_gate_rate set next = :next, spending = :spending where space = :space and name = :name"


class _Asked(NamedTuple):
    connection: sqlite3.Connection
    path: str
    now_ms: int


def examine(path: str, now_ms: int) -> list[Finding]:
    """Reads the file and changes nothing."""
    findings = [Finding("file", path), *_library(), *_around(path)]
    if not os.path.exists(path):
        return [*findings, Finding("state", "not there yet: it is made on first use")]

    def why(error: Exception) -> str | None:
        return str(translated(error, path)) if isinstance(error, sqlite3.Error) else None

    try:
        with contextlib.closing(file.connect(path, read_only=True)) as connection:
            file.recognise(connection, path)
            return [*findings, *run(_CHECKS, _Asked(connection, path, now_ms), why, "bad")]
    except (sqlite3.Error, EngineError) as error:
        return [*findings, Finding("state", why(error) or str(error), "bad")]


def _library() -> Iterator[Finding]:
    advice = "before 3.51.3 a rare race of two processes in a checkpoint can damage the file: update when you can"
    yield judged("sqlite", sqlite3.sqlite_version, "warn", advice, when=sqlite3.sqlite_version_info < WAL_RESET_MENDED)


def _around(path: str) -> Iterator[Finding]:
    kind = file.mounted_as(path)
    if kind is not None:
        advice = "use a local disk: SQLite can't keep its word here"
        yield judged("filesystem", kind, "bad", advice, when=kind in file.NETWORKS)
    if os.path.exists(path):
        mode = os.stat(path).st_mode & 0o777
        yield judged("mode", f"{mode:04o}", "warn", "others can read it: chmod 600", when=bool(mode & 0o077))


def _inside(asked: _Asked) -> Iterator[Finding]:
    def pragma(name: str) -> int | str:
        value: int | str = asked.connection.execute(f"pragma {name}").fetchone()[0]
        return value

    yield Finding("layout", f"{pragma('user_version')} of {len(file.MIGRATIONS)}")
    journal = str(pragma("journal_mode"))
    yield Finding("synchronous", "full for what is sent and ended, normal for leases")
    yield judged("journal_mode", journal, "bad", "set it back: pragma journal_mode = wal", when=journal != "wal")
    pages, free, size = int(pragma("page_count")), int(pragma("freelist_count")), int(pragma("page_size"))
    yield Finding("size", formats.size(pages * size))
    yield Finding(
        "free",
        f"{formats.size(free * size)} in {formats.plural(free, 'page')}, used for what comes next or given back by upkeep",
    )
    wal = _size(asked.path + "-wal")
    advice = "something reads for very long and keeps it from being cut"
    yield judged("wal", formats.size(wal), "warn", advice, when=wal > LONG_WAL)


def _messages(asked: _Asked) -> Iterator[Finding]:
    users = f"message join topic on topic.id = message.topic where topic.name not in ({', '.join('?' * len(OWN_TOPICS))})"
    counts = (asked.connection.execute(f"select count(*) from {users} and stage = {stage}", OWN_TOPICS) for stage in range(3))
    pending, leased, dead = (count for found in counts for count in found.fetchone())
    yield Finding("messages", f"{pending:,} pending, {leased:,} leased, {dead:,} dead")
    [oldest] = asked.connection.execute(f"select min(due) from {users} and stage = 0 and not paused", OWN_TOPICS).fetchone()
    overdue = 0.0 if oldest is None else max(0.0, (asked.now_ms - oldest) / 1000)
    advice = "nobody receives it: is a worker running?"
    yield judged("oldest overdue", formats.span(overdue) or "none", "warn", advice, when=overdue > 60)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _engine_time(asked: _Asked) -> Iterator[Finding]:
    """How far the time of a file is ahead."""
    ahead = max((mark // MS - asked.now_ms for _, mark in _ahead(asked.connection, asked.now_ms)), default=0)
    advice = (
        "a process wrote while its clock was that far ahead, and until the clock has caught up, time goes at half its speed: "
        "set the clock if it is wrong; if not, stop what uses the file and run bide doctor --fix"
    )
    value = f"{ahead / 1000:,.1f} s ahead of the clock" if ahead else "agrees with the clock"
    yield judged("engine time", value, "bad", advice, when=ahead > 0)


_CHECKS: Mapping[str, Check[_Asked]] = {"layout": _inside, "messages": _messages, "engine time": _engine_time}


def mend(path: str, now_ms: int) -> list[Finding]:
    """Set engine time, and with it the ends of the running leases, back to the clock. Gives what was done, if anything."""
    if not os.path.exists(path):
        return []
    connection = file.connect(path)
    try:
        file.recognise(connection, path)
        if not _ahead(connection, now_ms):
            return []
        _refuse_if_used(connection, path)
        connection.execute("begin immediate")
        mended = [_mended(connection, name, mark, now_ms) for name, mark in _ahead(connection, now_ms)]
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
    if _is_there(connection, "bide_gate"):
        _mend_gates(connection, space, ahead)
    for statement in _RESULTS if _is_there(connection, "bide_result") else ():
        connection.execute(statement, {"ahead": ahead, "space": space})
    connection.execute(_SET, {"now": now_ms * MS, "space": space})
    return Finding("mended", f"the time of namespace {space} was {ahead / 1000:,.1f} s ahead, and is the clock's again")


def _is_there(connection: sqlite3.Connection, table: str) -> bool:
    return connection.execute("select 1 from sqlite_schema where name = ?", (table,)).fetchone() is not None


def _mend_gates(connection: sqlite3.Connection, space: str, ahead: int) -> None:
    for statement in _GATES:
        connection.execute(statement, {"ahead": ahead, "space": space})
    for name, stored in connection.execute(_RATES, {"space": space}).fetchall():
        own = msgspec.msgpack.decode(stored, type=Spending)
        own.ended = [at - ahead for at in own.ended]
        own.last, own.until = max(0, own.last - ahead), max(0, own.until - ahead)
        values = {"space": space, "name": name, "next": own.over(), "spending": msgspec.msgpack.encode(own)}
        connection.execute(_SET_RATE, values)


def _refuse_if_used(connection: sqlite3.Connection, path: str) -> None:
    """A process that has the file open remembers its time and would write it back. Only a sole user may change the mode."""
    connection.execute("pragma busy_timeout = 0")
    try:
        connection.execute("pragma journal_mode = delete")
    except sqlite3.Error as error:
        if not is_locked(error):
            raise
        raise Unavailable(f"{path} is in use, and its time can't be set back: stop what uses it, and try again.") from error
