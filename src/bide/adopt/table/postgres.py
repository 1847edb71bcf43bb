"""A table in PostgreSQL."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.postgres import types
from psycopg.rows import dict_row
from psycopg.types.datetime import DateLoader, TimestampLoader, TimestamptzLoader
from psycopg.types.json import set_json_loads

from bide.adopt.table.database import Row, for_psycopg, refused, unavailable
from bide.engines.base import Settings
from bide.engines.postgres.failures import is_lost
from bide.engines.postgres.location import read
from bide.errors import BideError, ConfigError

_WITH = re.compile(
    r"\bwith\s+(recursive\s+)?(\w+|\"[^\"]+\")\s*(\([^)]*\)\s*)?as\s*((not\s+)?materialized\s*)?\(", re.IGNORECASE
)


_TIMES: dict[str, type[Loader]] = {"timestamptz": TimestamptzLoader, "timestamp": TimestampLoader, "date": DateLoader}


class _Times(Loader):
    """Times of Python where it has them. infinity and the year 20000 stay text, and hold no other rows up."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._load = _TIMES[types[oid].name](oid, context).load

    def load(self, data: Buffer) -> Any:
        try:
            return self._load(data)
        except psycopg.DataError:
            return bytes(data).decode()


class PostgresTable:
    utc: str = "{} at time zone 'UTC'"

    def __init__(self, url: str) -> None:
        address = read(Settings(url=url))
        self.shown: str = address.shown
        try:
            self._connection = psycopg.connect(**{"connect_timeout": 10, **address.connecting()}, row_factory=dict_row)
        except psycopg.Error:
            raise unavailable(self.shown) from None  # its text may name the user
        self._connection.autocommit = True
        for kind in _TIMES:
            self._connection.adapters.register_loader(kind, _Times)
        set_json_loads(msgspec.Raw, self._connection)  # JSON stays as it is written

    def begin(self) -> None:
        self._run("begin")

    def commit(self) -> None:
        self._run("commit")

    def rollback(self) -> None:
        self._run("rollback")

    def rows(self, query: str, limit: int | None, *, lock: bool = False) -> list[Row]:
        if lock and _WITH.search(query):
            raise ConfigError(
                "FOR UPDATE does not lock what a WITH query finds, so a poller could have it, too: write --query without WITH."
            )
        limited = f"{query}\nlimit {limit}" if limit is not None else query  # the query may end with a comment
        found: list[Row] = self._run(f"{limited} for update skip locked" if lock else limited).fetchall()
        return found

    def do(self, statement: str, values: Sequence[Mapping[str, Any]]) -> int:
        text = for_psycopg(statement)
        try:
            with self._connection.cursor() as cursor:
                cursor.executemany(text, values)
                return cursor.rowcount
        except psycopg.Error as error:
            raise self._told(error) from error

    def run(self, statement: str) -> None:
        self._run(statement)

    def close(self) -> None:
        self._connection.close()

    def _run(self, text: str) -> psycopg.Cursor[Any]:
        try:
            return self._connection.execute(text)
        except psycopg.Error as error:
            raise self._told(error) from error

    def _told(self, error: psycopg.Error) -> BideError:
        if is_lost(error) or self._connection.closed:
            return unavailable(self.shown)
        return refused(self.shown, error.diag.message_primary or str(error) or "without a reason")
