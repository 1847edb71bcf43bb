"""The connections that an application may give as connection=, each kind used in the same manner."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import django
import psycopg
import sqlalchemy
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

KINDS: Mapping[str, str] = {
    "psycopg": "sync",
    "psycopg block": "sync",
    "psycopg odd": "sync",
    "Connection": "sync",
    "Session": "sync",
    "scoped_session": "sync",
    "django": "sync",
    "psycopg async": "async",
    "psycopg async block": "async",
    "AsyncConnection": "async",
    "AsyncSession": "async",
    "async_scoped_session": "async",
}


class Own:
    """An application's connection, in a transaction of its own."""

    def __init__(self, given: Any) -> None:
        self.given = given  # as connection=

    async def execute(self, query: str) -> None:
        await self._done(self.given.execute(query))

    async def commit(self) -> None:
        await self._done(self.given.commit())

    async def rollback(self) -> None:
        await self._done(self.given.rollback())

    async def _done(self, answer: Any) -> None:
        if asyncio.iscoroutine(answer):
            await answer

    async def book(self, seat: int) -> None:
        await self.execute(f"insert into booked values ({seat})")


class OfSqlalchemy(Own):
    async def execute(self, query: str) -> None:
        await self._done(self.given.execute(sqlalchemy.text(query)))


class Blocks(Own):
    """A connection that commits by itself, but for the blocks of its transactions."""

    block: Any = None

    async def begin(self) -> None:
        self.block = self.given.transaction()
        await self._done(self._enter()())

    def _enter(self) -> Any:
        return getattr(self.block, "__aenter__", None) or self.block.__enter__

    async def _leave(self, *error: Any) -> None:
        leave = getattr(self.block, "__aexit__", None) or self.block.__exit__
        await self._done(leave(*error))
        await self.begin()

    async def commit(self) -> None:
        await self._leave(None, None, None)

    async def rollback(self) -> None:
        await self._leave(psycopg.Rollback, psycopg.Rollback(), None)


class OfDjango(Blocks):
    """`transaction.atomic()` and `django.db.connection`."""

    async def begin(self) -> None:
        self.block = transaction.atomic()
        self.block.__enter__()

    async def execute(self, query: str) -> None:
        with self.given.cursor() as cursor:
            cursor.execute(query)

    async def rollback(self) -> None:
        transaction.set_rollback(True)
        await self._leave(None, None, None)


@asynccontextmanager
async def opened(kind: str, url: str) -> AsyncIterator[Own]:
    async with AsyncExitStack() as stack:
        own = await _opened(kind, url, stack)
        if isinstance(own, Blocks):
            await own.begin()
        yield own
        if isinstance(own, Blocks):
            block = own.block
            await own._done(
                block.__aexit__(None, None, None) if hasattr(block, "__aexit__") else block.__exit__(None, None, None)
            )


async def _opened(kind: str, url: str, stack: AsyncExitStack) -> Own:
    if kind.startswith("psycopg async"):
        given: Any = await psycopg.AsyncConnection.connect(url, autocommit="block" in kind)
        stack.push_async_callback(given.close)
        return Blocks(given) if "block" in kind else Own(given)
    if kind.startswith("psycopg"):
        given = stack.enter_context(psycopg.connect(url, autocommit="block" in kind))
        if kind == "psycopg odd":
            _make_odd(given)
        return Blocks(given) if "block" in kind else Own(given)
    if kind == "django":
        return OfDjango(of_django(url, stack))
    where = url.replace("postgres://", "postgresql+psycopg://")
    if KINDS[kind] == "sync":
        engine = sqlalchemy.create_engine(where)
        stack.callback(engine.dispose)
        maker = sessionmaker(engine)
        made: dict[str, Callable[[], Any]] = {
            "Connection": engine.connect,
            "Session": lambda: Session(engine),
            "scoped_session": lambda: scoped_session(maker),
        }
        given = made[kind]()
        stack.callback(given.close)
        return OfSqlalchemy(given)
    of_asyncio = create_async_engine(where)
    stack.push_async_callback(of_asyncio.dispose)
    async_maker = async_sessionmaker(of_asyncio)
    if kind == "AsyncConnection":
        given = await of_asyncio.connect().start()
    elif kind == "AsyncSession":
        given = AsyncSession(of_asyncio)
    else:
        given = async_scoped_session(async_maker, scopefunc=lambda: None)
    stack.push_async_callback(given.close)
    return OfSqlalchemy(given)


def of_role(url: str, role: str) -> str:
    """The same database, for somebody else."""
    return url.replace("postgres@", f"{role}@", 1)


def of_django(url: str, stack: AsyncExitStack) -> Any:
    """`django.db.connection`, on this database."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # tests of a sync queue run in a loop that waits for nothing else
    if not settings.configured:
        settings.configure(DATABASES={})
        django.setup()
    parts = urlsplit(url)
    connections.settings[DEFAULT_DB_ALIAS] = connections.configure_settings(
        {
            DEFAULT_DB_ALIAS: {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts.path[1:],
                "USER": parts.username,
                "HOST": parts.hostname,
                "PORT": parts.port,
            }
        }
    )[DEFAULT_DB_ALIAS]

    def forget() -> None:
        connections[DEFAULT_DB_ALIAS].close()
        del connections[DEFAULT_DB_ALIAS]

    stack.callback(forget)
    return django.db.connection


class Wrong(psycopg.adapt.Loader):
    def load(self, data: Any) -> Any:
        raise AssertionError("this is for the caller's own rows")


class WrongBinary(Wrong):
    format = psycopg.pq.Format.BINARY


class Upper(psycopg.types.string.StrDumper):
    def dump(self, obj: str) -> bytes:
        return obj.upper().encode()


def _make_odd(given: psycopg.Connection[Any]) -> None:
    """All that an application may set for its own statements, and that must not matter to ours."""
    given.row_factory = dict_row
    given.cursor_factory = psycopg.ClientCursor
    given.prepare_threshold = 0
    given.execute("set client_encoding to 'LATIN1'; set datestyle to 'German'; set bytea_output to 'escape'")
    given.execute("create schema strange; create table strange.message (id text); create type strange.text as enum ('a')")
    given.execute("create function strange.unnest(bigint[]) returns setof bigint language sql as 'select 1::bigint'")
    given.execute("set search_path to strange, public, pg_catalog")
    given.commit()
    for name in ("int8", "text"):
        given.adapters.register_loader(name, Wrong)
        given.adapters.register_loader(name, WrongBinary)
    given.adapters.register_dumper(str, Upper)
