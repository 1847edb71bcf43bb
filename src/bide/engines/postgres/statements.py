"""Connections of our own: a statement and its rows, by psycopg's wrapper of libpq, and so many connections at a time.

Each call uses a connection alone, and the same few statements come again and again. So a cursor, which is made anew for each of
them and looks up its columns, would cost more than the rest of the driver. Each waits for the server for a limited time only,
also in threads, where nothing can be ended from outside.
"""

import asyncio
import contextlib
import functools
import re
import time
from collections.abc import Generator, Sequence
from itertools import islice
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias, TypeVar

import psycopg
from psycopg import capabilities, generators, waiting
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format

Answer = TypeVar("Answer")
Work: TypeAlias = Generator[Any, Any, Answer]
Rows: TypeAlias = list[Any]  # of an answer

MOST = 100  # statements that are prepared on a connection
_PLACE = re.compile(r"%[sb%]")
_ANSWERED = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)

Connection: TypeAlias = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
INTERVAL = 0.1  # seconds between two looks at the clock, while nothing comes
STOPPING = 1.0  # seconds for telling the server to stop what nobody waits for any more


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


class KnownStatement:
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
        self._known: dict[tuple[str, Sequence[int] | None], KnownStatement] = {}
        self._prepared = 0

    def ask(self, sql: str, args: Sequence[Any]) -> Work[Rows]:
        text, formats = numbered(sql) if args else (sql.encode(), [])
        values = self._arguments.dump_sequence(args, formats) if args else []
        types, sent = (self._arguments.types, self._arguments.formats) if args else ((), [])
        if len(self._known) > MOST:
            self._known = {key: each for key, each in self._known.items() if each.name}
        known = self._known.setdefault((sql, types), KnownStatement())
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

    def _look_at(self, known: KnownStatement, result: psycopg.pq.abc.PGresult) -> None:
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


class Limited(psycopg.Connection[Any]):
    """For threads."""

    limit: float | None = None  # seconds for each statement
    _statements: Statements | None = None

    def wait(self, gen: Work[Answer], *args: Any, **options: Any) -> Answer:
        """As psycopg's, but an interrupted wait ends at once: psycopg would wait for the server once more."""
        if self.limit is None or args or options:  # notifies() has a limit of its own
            return super().wait(gen, *args, **options)
        answer: Answer = waiting.wait(limited(gen, self.limit), self.pgconn.socket, INTERVAL)
        return answer

    def ask(self, sql: str, args: Sequence[Any]) -> Rows:
        """The rows of a statement."""
        if self._statements is None:
            self._statements = Statements(self)
        return self.wait(self._statements.ask(sql, args))

    def drop(self) -> None:
        """Close it. A statement that it is in the middle of is stopped, or it could wait for a lock for ever."""
        try:
            if _is_busy(self.info):
                with contextlib.suppress(psycopg.Error, OSError):
                    self.cancel_safe(timeout=STOPPING)
        finally:
            self.close()


class AsyncLimited(psycopg.AsyncConnection[Any]):
    """For event loops: the same."""

    limit: float | None = None
    _statements: Statements | None = None

    async def wait(self, gen: Work[Answer], *args: Any, **options: Any) -> Answer:
        if self.limit is None or args or options:
            return await super().wait(gen, *args, **options)
        answer: Answer = await waiting.wait_async(limited(gen, self.limit), self.pgconn.socket, INTERVAL)
        return answer

    async def ask(self, sql: str, args: Sequence[Any]) -> Rows:
        """The rows of a statement."""
        if self._statements is None:
            self._statements = Statements(self)
        return await self.wait(self._statements.ask(sql, args))

    async def drop(self) -> None:
        try:
            if _is_busy(self.info):
                with contextlib.suppress(psycopg.Error, OSError):
                    await self.cancel_safe(timeout=STOPPING)
        finally:
            await self.close()


def limited(work: Work[Answer], seconds: float) -> Work[Answer]:
    """The driver's work on a connection; it ends in a TimeoutError if nothing comes after so many seconds.

    It is resumed with what the socket is ready for, and with nothing once in an interval. A process that was stopped for a
    while has not looked at the socket when its interval is over, though the answer may be there. So it looks once more.
    """
    end = time.monotonic() + seconds
    last = False
    try:
        state = next(work)
        while True:
            ready = yield state
            if last and not ready:
                raise TimeoutError(f"no answer in {seconds:g} seconds")
            last = time.monotonic() > end
            state = work.send(ready)
    except StopIteration as done:
        answer: Answer = done.value
        return answer


def _is_busy(info: psycopg.ConnectionInfo) -> bool:
    """Whether it is in the middle of a statement that can be stopped."""
    return info.transaction_status == psycopg.pq.TransactionStatus.ACTIVE and capabilities.has_cancel_safe()


class ConnectionRoom:
    """For threads. A place changes hands in one step of C, in which no signal handler runs."""

    def __init__(self, places: int) -> None:
        self.free: SimpleQueue[int] = SimpleQueue()
        for place in range(places):
            self.free.put_nowait(place)

    def take(self, taken: list[int]) -> None:
        """Wait for a place, and move it into the list. The caller then puts it back into `free`, whatever happens."""
        taken.extend(islice(iter(self.free.get, None), 1))


class AsyncConnectionRoom:
    """For the event loop."""

    def __init__(self, places: int) -> None:
        self.free: asyncio.Queue[int] = asyncio.Queue()
        for place in range(places):
            self.free.put_nowait(place)

    async def take(self, taken: list[int]) -> None:
        taken.append(await self.free.get())
