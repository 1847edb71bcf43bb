"""A table in PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads

from bide.adopt.table.database import Row, refused, unavailable
from bide.adopt.table.sql import for_psycopg
from bide.engines.base import Settings
from bide.engines.postgres.failures import is_lost
from bide.engines.postgres.location import read
from bide.errors import BideError


class Postgres:
    utc: str = "{} at time zone 'UTC'"

    def __init__(self, url: str) -> None:
        address = read(Settings(url=url))
        self.shown: str = address.shown
        try:
            self._connection = psycopg.connect(**{"connect_timeout": 10, **address.connecting()}, row_factory=dict_row)
        except psycopg.Error:
            raise unavailable(self.shown) from None  # its text may name the user
        self._connection.autocommit = True
        set_json_loads(msgspec.Raw, self._connection)  # JSON stays as it is written

    def begin(self) -> None:
        self._run("begin")

    def commit(self) -> None:
        self._run("commit")

    def rollback(self) -> None:
        self._run("rollback")

    def rows(self, query: str, limit: int | None, *, lock: bool = False) -> list[Row]:
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
