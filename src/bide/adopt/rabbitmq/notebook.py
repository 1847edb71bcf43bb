"""A file that keeps what was taken from a broker until the queue has it. What it says is on disk when a call returns."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from bide.adopt.rabbitmq.letter import Letter
from bide.engines.sqlite.file import make_private
from bide.errors import ConfigError

Phase: TypeAlias = Literal["got", "taking", "taken"]
"""got: the broker has it. taking: the broker was asked to forget it, and has it or not. taken: the broker has forgotten it."""

_TABLE = (
    "create table if not exists held (name text primary key, place text not null, phase text not null, since integer not null, "
    "due integer not null, letter blob not null)"
)

_decode = msgspec.msgpack.Decoder(Letter).decode


class NotebookEntry(NamedTuple):
    name: str
    phase: Phase
    since: int
    due: int
    letter: Letter


class Notebook:
    """`place`: which broker and queue, so that one file may serve several."""

    def __init__(self, path: Path, place: str, *, look_only: bool = False) -> None:
        self.path: Path = path
        self._place = place
        self._connection: sqlite3.Connection | None = None
        if look_only and not path.exists():
            return
        if not look_only:
            make_private(str(path))
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=5)
            if not look_only:
                self._connection.execute("pragma journal_mode = delete")
                self._connection.execute("pragma synchronous = full")
                self._connection.execute("pragma locking_mode = exclusive")
                self._connection.execute(_TABLE)
        except sqlite3.Error as error:
            raise self._told(error) from error

    def kept(self) -> list[NotebookEntry]:
        if self._connection is None:
            return []
        query = "select name, phase, since, due, letter from held where place = ? order by since, name"
        with self._telling():
            rows = self._connection.execute(query, [self._place]).fetchall()
        return [NotebookEntry(name, phase, since, due, _decode(content)) for name, phase, since, due, content in rows]

    def write(self, letters: Sequence[tuple[str, int, Letter]]) -> None:
        """Note messages that the broker still has: name, due time and content."""
        now = time.time_ns() // 1_000_000
        rows = [(name, self._place, "got", now, due, msgspec.msgpack.encode(found)) for name, due, found in letters]
        with self._transaction() as connection:
            connection.executemany("insert into held (name, place, phase, since, due, letter) values (?, ?, ?, ?, ?, ?)", rows)

    def mark(self, names: Sequence[str], phase: Phase) -> None:
        with self._transaction() as connection:
            connection.executemany("update held set phase = ? where name = ?", [(phase, name) for name in names])

    def forget(self, names: Sequence[str]) -> None:
        with self._transaction() as connection:
            connection.executemany("delete from held where name = ?", [(name,) for name in names])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        assert connection is not None, "a dry run writes nothing"
        with self._telling():
            connection.execute("begin immediate")
            try:
                yield connection
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._told(error) from error

    def _told(self, error: sqlite3.Error) -> ConfigError:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY":
            return ConfigError(f"Another adopter works with {self.path}: wait for its end, or give each a file with --state.")
        return ConfigError(f"The file {self.path} can't be used: {error}. Name another with --state, or make room.")
