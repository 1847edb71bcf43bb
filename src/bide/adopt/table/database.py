"""What a polled table needs of its database, how the SQL of the command line is read, and a table in a file of SQLite."""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from bide.engines.sqlite.file import path_of
from bide.errors import BideError, ConfigError, Unavailable

Row: TypeAlias = dict[str, Any]
PATIENCE = 30.0  # seconds in which other programs end their transactions


class TableDatabase(Protocol):
    """One connection. All verbs raise a BideError."""

    shown: str
    utc: str  # an expression for a column {} with a time in UTC that does not say so

    def begin(self) -> None:
        """Begin a transaction that takes rows."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def rows(self, query: str, limit: int | None, *, lock: bool = False) -> list[Row]:
        """What a query finds. `lock`: nobody else takes it until the transaction ends; rows that others lock are left out."""

    def do(self, statement: str, values: Sequence[Mapping[str, Any]]) -> int:
        """Run a statement with `:name` in place of values, once for each of these. How many rows it has changed in all."""

    def run(self, statement: str) -> None:
        """Run a statement without values."""

    def close(self) -> None: ...


def refused(shown: str, text: str) -> BideError:
    """The server did not take a statement of the command line."""
    return ConfigError(f"{shown} refuses a statement: {text.splitlines()[0][:300]}. Correct --query, --take or --undo.")


def unavailable(shown: str) -> BideError:
    return Unavailable(f"{shown} does not answer: check that it runs, and run the command again: it goes on.")


_PASSED_OVER = r"""(?xs)
    \b[eE]'(?:[^'\\]|\\.|'')*'   # E'it\'s'
    | '(?:[^']|'')*'
    | "[^"]*" | `[^`]*`
    | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
    | --[^\n]* | /\*.*?\*/
"""
_ENDS = re.compile(r"\b(limit|offset|for\s+(update|share|no\s+key\s+update|key\s+share))\b[^()]*$", re.IGNORECASE)
_NAMED = re.compile(rf"{_PASSED_OVER} | (?<![:\w]):(?P<name>[A-Za-z_]\w*)")  # :id, and not the type in id::text


def has_end(query: str) -> bool:
    """Whether a query says itself how many rows it finds, or that it locks them."""
    return _ENDS.search(re.sub(_PASSED_OVER, "''", query)) is not None


def named_in(statement: str) -> list[str]:
    """The names of a statement that stand for values, in their order."""
    return [found["name"] for found in _NAMED.finditer(statement) if found["name"]]


def for_psycopg(statement: str) -> str:
    """A statement with `%(name)s` in place of `:name`."""
    return _NAMED.sub(lambda found: f"%({found['name']})s" if found["name"] else found[0], statement.replace("%", "%%"))


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
