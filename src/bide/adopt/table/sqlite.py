"""A table in a file of SQLite."""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bide.adopt.table.database import Row, refused, unavailable
from bide.engines.sqlite.file import path_of
from bide.errors import BideError, ConfigError

PATIENCE = 30.0  # seconds in which other programs end their transactions


def _text(stored: bytes) -> str | bytes:
    """Text that is not UTF-8 stays bytes: its row can't be read, and all others can."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


class SQLite:
    utc: str = "{} || 'Z'"

    def __init__(self, url: str) -> None:
        path = Path(path_of(url))
        self.shown: str = f"sqlite:///{path}"
        if not path.is_file():
            raise ConfigError(f"There is no file {path}: check the URL of the source.")
        self._connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=PATIENCE, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._connection.text_factory = _text
        try:
            self._run("pragma synchronous = full")
        except BideError:
            self._connection.close()
            raise

    def begin(self) -> None:
        self._run("begin immediate")

    def commit(self) -> None:
        self._run("commit")

    def rollback(self) -> None:
        self._run("rollback")

    def rows(self, query: str, limit: int | None, *, lock: bool = False) -> list[Row]:
        return [dict(each) for each in self._run(f"{query}\nlimit {limit}" if limit is not None else query)]

    def do(self, statement: str, values: Sequence[Mapping[str, Any]]) -> int:
        try:
            return self._connection.executemany(statement, values).rowcount
        except sqlite3.Error as error:
            raise self._told(error) from error

    def run(self, statement: str) -> None:
        self._run(statement)

    def close(self) -> None:
        self._connection.close()

    def _run(self, text: str) -> sqlite3.Cursor:
        try:
            return self._connection.execute(text)
        except sqlite3.Error as error:
            raise self._told(error) from error

    def _told(self, error: sqlite3.Error) -> BideError:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_FULL")):
            return unavailable(self.shown)
        if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            return ConfigError(f"{self.shown} is no database of SQLite, or is damaged ({error}): check the URL of the source.")
        return refused(self.shown, str(error))
