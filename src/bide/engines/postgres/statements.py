"""A statement and its rows on a connection of our own, by psycopg's wrapper of libpq.

Each call uses a connection alone, and the same few statements come again and again. So a cursor, which is made anew for each of
them and looks up its columns, would cost more than the rest of the driver.
"""

import functools
import re
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import psycopg
from psycopg import generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format

Answer = TypeVar("Answer")
Work: TypeAlias = Generator[Any, Any, Answer]
Rows: TypeAlias = list[Any]  # of an answer

MOST = 100  # statements that are prepared on a connection
_PLACE = re.compile(r"%[sb%]")
_ANSWERED = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)

Connection: TypeAlias = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


class Numbered(NamedTuple):
    """A statement as the server reads it, with $1 in place of %s, and how each argument is sent."""

    text: bytes
    formats: list[PyFormat]


@functools.lru_cache(maxsize=1_000)
def numbered(sql: str) -> Numbered:
    formats: list[PyFormat] = []

    def number(place: re.Match[str]) -> str:
        if place[0] == "%%":
            return "%"
        formats.append(PyFormat.BINARY if place[0] == "%b" else PyFormat.AUTO)
        return f"${len(formats)}"

    return Numbered(_PLACE.sub(number, sql).encode(), formats)


class Known:
    """A statement with arguments of these types, as a connection has asked it before."""

    def __init__(self) -> None:
        self.times: int = 0
        self.name: bytes = b""  # that the server has prepared it by
        self.columns: Any = None  # a Transformer that was made for its rows
        self.types: list[int] | None = None  # of these
        self.sure: bool = False  # they stay so, or the server says that it has to be prepared anew


class Statements:
    """Those of one connection. It prepares what comes again as often as psycopg would."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._arguments = Transformer(connection)
        self._known: dict[tuple[str, Sequence[int] | None], Known] = {}
        self._prepared = 0

    def ask(self, sql: str, args: Sequence[Any]) -> Work[Rows]:
        text, formats = numbered(sql) if args else (sql.encode(), [])
        values = self._arguments.dump_sequence(args, formats) if args else []
        types, sent = (self._arguments.types, self._arguments.formats) if args else ((), [])
        if len(self._known) > MOST:
            self._known = {key: each for key, each in self._known.items() if each.name}
        known = self._known.setdefault((sql, types), Known())
        pgconn = self._connection.pgconn
        after = self._connection.prepare_threshold  # none through a pooler
        if not known.name and after is not None and known.times >= after and self._prepared < MOST:
            name = b"bide%d" % self._prepared
            pgconn.send_prepare(name, text, param_types=types)
            self._answer((yield from generators.execute(pgconn)))
            self._prepared += 1
            known.name = name
        known.times += 1
        if known.name:
            pgconn.send_query_prepared(known.name, values, param_formats=sent, result_format=Format.BINARY)
        else:
            pgconn.send_query_params(text, values, param_types=types, param_formats=sent, result_format=Format.BINARY)
        result = self._answer((yield from generators.execute(pgconn)))
        if not result.nfields:
            return []
        self._look_at(known, result)
        rows: Rows = known.columns.load_rows(0, result.ntuples, tuple)
        known.columns.set_pgresult(None, set_loaders=False)  # it may be large
        return rows

    def _look_at(self, known: Known, result: psycopg.pq.abc.PGresult) -> None:
        """How its columns are read is known from the last time, unless somebody has made the function anew."""
        types = known.types if known.sure else [result.ftype(column) for column in range(result.nfields)]
        if types == known.types:
            known.columns.set_pgresult(result, set_loaders=False)
        else:
            known.columns, known.types = Transformer(self._connection), types
            known.columns.set_pgresult(result, format=Format.BINARY)
        known.sure = bool(known.name)

    def _answer(self, results: Sequence[psycopg.pq.abc.PGresult]) -> psycopg.pq.abc.PGresult:
        if not results:
            raise psycopg.InternalError("the server gave no answer")
        failed = next((each for each in results if each.status not in _ANSWERED), None)
        if failed is not None:
            raise psycopg.errors.error_from_result(failed, encoding=self._connection.info.encoding)
        return results[-1]
