"""Joining the caller's own transaction: which connection of psycopg is behind connection=, and whether it can be joined.

SQLAlchemy and Django are not imported here. Their objects are told by the names of their classes, and asked by their
documented ways.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Generic, TypeVar

import psycopg
from psycopg import errors as theirs
from psycopg.adapt import AdaptersMap, PyFormat
from psycopg.pq import Format, PipelineStatus, TransactionStatus

from bide.blocking import seen_through
from bide.engines.callers import ONE_CALL
from bide.engines.postgres.failures import is_passing, may_have_acted, translated
from bide.errors import BideError, ConfigError, Unavailable, Unsupported

_SCOPED = {"sqlalchemy.orm.scoping.scoped_session", "sqlalchemy.ext.asyncio.scoping.async_scoped_session"}
_SESSION = "sqlalchemy.orm.session.Session"
_CONNECTION = "sqlalchemy.engine.base.Connection"
_ASYNC_SESSION = "sqlalchemy.ext.asyncio.session.AsyncSession"
_ASYNC_CONNECTION = "sqlalchemy.ext.asyncio.engine.AsyncConnection"
_DJANGO = {"django.db.backends.base.base.BaseDatabaseWrapper", "django.utils.connection.ConnectionProxy"}
_OTHER_DRIVERS = ("asyncpg", "psycopg2", "pg8000")
_SYNC = {_SESSION, _CONNECTION, *_DJANGO}
_ASYNC = {_ASYNC_SESSION, _ASYNC_CONNECTION}

WHERE = (
    "select pg_catalog.current_database(), extract(epoch from pg_catalog.pg_postmaster_start_time())::pg_catalog.text, "
    "pg_catalog.to_regclass('{schema}.message') is not null"
)
"""Which database a connection has, of which running server, and whether it has the tables.

No two servers started in the same microsecond. A standby and a restored backup have names, numbers and tables in common with
the server that they come from, but not this.
"""

T = TypeVar("T")


class Borrowed:
    """For a Queue."""

    def lend(self, given: Any) -> psycopg.Connection[Any]:
        """psycopg's connection behind it. A transaction of SQLAlchemy's is begun, or its commit would not be ours."""
        given, names = _unscoped(given)
        if names & _ASYNC or isinstance(given, psycopg.AsyncConnection):
            raise Unsupported(f"connection= is of the type {type(given).__name__}, for asyncio: give it to an AsyncQueue.")
        if names & _DJANGO:
            driver = _of_django(given)
        elif names & _SYNC:
            with _told_by("SQLAlchemy"):
                if _SESSION in names:
                    given = given.connection()
                elif not given.in_transaction():
                    given.begin()
                driver = given.connection.driver_connection
        else:
            driver = given
        if not isinstance(driver, psycopg.Connection):
            raise _not_psycopg(given, driver)
        return driver


class AsyncBorrowed:
    """For an AsyncQueue."""

    async def lend(self, given: Any) -> psycopg.AsyncConnection[Any]:
        """As in Borrowed."""
        given, names = _unscoped(given)
        if names & _SYNC or isinstance(given, psycopg.Connection):
            raise Unsupported(
                f"connection= is a {type(given).__name__}, which would block the event loop: give it to a Queue, such as "
                "`queue.sync`, in the thread that has the transaction."
            )
        driver = given
        if names & _ASYNC:
            with _told_by("SQLAlchemy"):
                if _ASYNC_SESSION in names:
                    given = await given.connection()
                elif not given.in_transaction():
                    await given.begin()
                driver = (await given.get_raw_connection()).driver_connection
        if not isinstance(driver, psycopg.AsyncConnection):
            raise _not_psycopg(given, driver)
        return driver


class Whole(Generic[T]):
    """Something that undoes what it has begun when it is cut short, for threads."""

    def __init__(self) -> None:
        self.may_stop: bool = False  # what goes on can be cut short

    def done(self, work: Callable[[], T]) -> T:
        return work()


class AsyncWhole(Generic[T]):
    """As Whole, for event loops: being cancelled again must not cut short how it is undone, which takes several steps."""

    def __init__(self) -> None:
        self.may_stop: bool = False

    async def done(self, work: Callable[[], Awaitable[T]]) -> T:
        async def doing() -> T:
            return await work()

        own = asyncio.create_task(doing())
        return await seen_through(own, lambda _: self.may_stop and not own.cancelling() and own.cancel())


def _unscoped(given: Any) -> tuple[Any, set[str]]:
    names = _names(given)
    if names & _SCOPED:
        given = given()
        names = _names(given)
    return given, names


def _names(thing: object) -> set[str]:
    return {f"{each.__module__}.{each.__qualname__}" for each in type(thing).__mro__}


def _of_django(given: Any) -> Any:
    """Django opens its connection when it is first used."""
    if given.vendor != "postgresql":
        raise Unsupported(f"connection= is one of {given.vendor}, and the queue is in PostgreSQL: no transaction spans both.")
    with _told_by("Django"):
        given.validate_thread_sharing()
        given.validate_no_broken_transaction()
        given.ensure_connection()
        driver = given.connection
    if given.get_autocommit() and not given.in_atomic_block:
        raise Unsupported("connection= has no open transaction: call this inside `with transaction.atomic():`.")
    return driver


@contextlib.contextmanager
def _told_by(whom: str) -> Iterator[None]:
    """What it says: closed, not begun, not bound to an engine, in a state that takes no statements."""
    try:
        yield
    except Exception as error:
        if "concurrent operations are not permitted" in str(error):
            raise Unsupported(ONE_CALL) from error
        raise Unsupported(f"connection= can't be joined, as {whom} says: {error}") from error


def _not_psycopg(given: object, driver: object) -> Unsupported:
    package = type(driver).__module__.split(".")[0]
    if package in _OTHER_DRIVERS:
        return Unsupported(
            f"connection= is one of {package}, and a message joins transactions of psycopg 3 only: write postgresql+psycopg:// "
            "in the URL of SQLAlchemy, or install psycopg in place of psycopg2 for Django."
        )
    if driver is not given:
        return Unsupported(f"connection= is one of {package}, and the queue is in PostgreSQL: no transaction spans both.")
    return Unsupported(
        f"connection= is of the type {type(given).__name__}. Give the connection of psycopg that has the transaction to join, "
        "a Connection or Session of SQLAlchemy, or django.db.connection."
    )


def refuse_state(own: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Refuse a connection without a transaction that a message could join."""
    status = own.info.transaction_status
    if own.closed or status == TransactionStatus.UNKNOWN:
        raise Unavailable("connection= is closed, so nothing was done.")
    if own.info.pipeline_status != PipelineStatus.OFF:
        raise Unsupported("connection= is in pipeline mode: leave its pipeline() block first.")
    if status == TransactionStatus.ACTIVE:
        raise Unsupported(ONE_CALL)
    if status == TransactionStatus.INERROR:
        raise Unsupported("The transaction of connection= has failed, and PostgreSQL takes nothing more in it: roll it back.")
    if own.autocommit and status == TransactionStatus.IDLE:
        raise Unsupported(
            "connection= has no open transaction and commits by itself: call this inside `with connection.transaction():`."
        )


def plain(adapters: AdaptersMap) -> None:
    """Whatever the caller has set for types of its own, ours come as they are."""
    for kind in (str, bytes, int, list):
        for form in (PyFormat.TEXT, PyFormat.BINARY, PyFormat.AUTO):
            adapters.register_dumper(kind, psycopg.adapters.get_dumper(kind, form))
    for name in ("int8", "text", "bool"):
        oid = psycopg.adapters.types[name].oid
        for wire in (Format.TEXT, Format.BINARY):
            loader = psycopg.adapters.get_loader(oid, wire)
            if loader is not None:
                adapters.register_loader(oid, loader)


def elsewhere(shown: str, own: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> Unsupported:
    info = own.info
    server = ", on a server that was started at another time" if shown.endswith(f"/{info.dbname}") else ""
    return Unsupported(
        f"connection= is open on the database {info.dbname} of the server at {info.host}:{info.port}, and the queue is in "
        f"{shown}{server}. No transaction spans both: open the connection on the queue's database, or the queue on the "
        "connection's."
    )


def told(error: psycopg.Error, shown: str) -> BideError:
    """An error inside a transaction of the caller's, as ours: what it does next is the caller's to decide."""
    said = (error.diag.message_primary or str(error) or type(error).__name__).strip().splitlines()[0]
    if isinstance(error, theirs.ReadOnlySqlTransaction):
        return Unsupported("The transaction of connection= may only read: begin one that may write, on the primary.")
    if isinstance(error, theirs.LockNotAvailable | theirs.QueryCanceled):
        return Unavailable(
            f"{shown}: {said}. This call changed nothing: another transaction holds the same message or key until it ends."
        )
    if isinstance(error, theirs.InsufficientPrivilege):
        return ConfigError(
            f"{shown}: the user of connection= lacks a right: {said}. Grant it what the queue's own user has in bide's schema."
        )
    if may_have_acted(error):
        return Unavailable(f"connection= is closed or broken, and its transaction is lost with it: {said}.")
    if is_passing(error):
        return Unavailable(
            f"{shown}: {said}. Another transaction has changed the same at the same time: roll yours back and run it again."
        )
    return translated(error, shown)
