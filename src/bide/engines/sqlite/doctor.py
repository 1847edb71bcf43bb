"""What an operator should know of a file: read, never changed."""

import os
import sqlite3
from collections.abc import Iterator

from bide.core import amounts
from bide.engines.base import Finding
from bide.engines.sqlite import file
from bide.engines.sqlite.failures import translated
from bide.engines.sqlite.mend import examined
from bide.errors import EngineError

WAL_RESET_MENDED = (3, 51, 3)  # before it, two processes that met in a checkpoint could, rarely, damage the file
LONG_WAL = 2 * file.WAL_LIMIT


def examine(path: str, now_ms: int) -> list[Finding]:
    findings = [Finding("file", path), *_library(), *_around(path)]
    if not os.path.exists(path):
        return [*findings, Finding("state", "not there yet: it is made on first use")]
    try:
        connection = file.connect(path, read_only=True)
        try:
            file.recognise(connection, path)
            findings += _inside(connection, path)
            findings += _messages(connection, now_ms)
            findings.append(examined(connection, now_ms))
        finally:
            connection.close()
    except sqlite3.Error as error:
        return [*findings, Finding("state", str(translated(error, path)), "bad")]
    except EngineError as error:
        return [*findings, Finding("state", str(error), "bad")]
    return findings


def _library() -> Iterator[Finding]:
    if sqlite3.sqlite_version_info >= WAL_RESET_MENDED:
        yield Finding("sqlite", sqlite3.sqlite_version)
    else:
        advice = "before 3.51.3 a rare race of two processes in a checkpoint can damage the file: update when you can"
        yield Finding("sqlite", sqlite3.sqlite_version, "warn", advice)


def _around(path: str) -> Iterator[Finding]:
    kind = file.mounted_as(path)
    if kind is not None:
        network = kind in file.NETWORKS
        yield Finding(
            "filesystem",
            kind,
            "bad" if network else "ok",
            "use a local disk: SQLite can't keep its word here" if network else "",
        )
    if os.path.exists(path):
        mode = os.stat(path).st_mode & 0o777
        open_to_others = bool(mode & 0o077)
        yield Finding(
            "mode", f"{mode:04o}", "warn" if open_to_others else "ok", "others can read it: chmod 600" if open_to_others else ""
        )


def _inside(connection: sqlite3.Connection, path: str) -> Iterator[Finding]:
    def pragma(name: str) -> int | str:
        value: int | str = connection.execute(f"pragma {name}").fetchone()[0]
        return value

    yield Finding("layout", f"{pragma('user_version')} of {len(file.MIGRATIONS)}")
    journal = str(pragma("journal_mode"))
    yield Finding("synchronous", "full for what is sent and ended, normal for leases")
    yield Finding(
        "journal_mode",
        journal,
        "ok" if journal == "wal" else "bad",
        "" if journal == "wal" else "set it back: pragma journal_mode = wal",
    )
    pages, free, size = int(pragma("page_count")), int(pragma("freelist_count")), int(pragma("page_size"))
    yield Finding("size", amounts.size(pages * size))
    yield Finding("free", f"{amounts.size(free * size)} in {free:,} pages, used for what comes next or given back by upkeep")
    wal = _size(path + "-wal")
    long = wal > LONG_WAL
    yield Finding(
        "wal",
        amounts.size(wal),
        "warn" if long else "ok",
        "something reads for very long and keeps it from being cut" if long else "",
    )


def _messages(connection: sqlite3.Connection, now_ms: int) -> Iterator[Finding]:
    counts = (f"(select count(*) from message where stage = {stage})" for stage in range(3))
    [pending, leased, dead] = connection.execute(f"select {', '.join(counts)}").fetchone()
    yield Finding("messages", f"{pending:,} pending, {leased:,} leased, {dead:,} dead")
    [oldest] = connection.execute(
        "select min(due) from message join topic on topic.id = message.topic where stage = 0 and not paused"
    ).fetchone()
    overdue = 0.0 if oldest is None else max(0.0, (now_ms - oldest) / 1000)
    late = overdue > 60
    yield Finding(
        "oldest overdue",
        amounts.span(overdue) or "none",
        "warn" if late else "ok",
        "nobody receives it: is a worker running?" if late else "",
    )


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
