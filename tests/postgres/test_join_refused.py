"""What connection= does not take, and what it says then; and what goes wrong on the way."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from bide import AsyncQueue, ConfigError, Queue, SchemaMismatch, Sent, Unavailable, Unsupported
from tests.postgres.owned import of_django
from tests.servers.fixtures import NewPostgres
from tests.sqlite.conftest import Awaited
from tests.worker.conftest import once


class Mine:
    """A connection of the queue's colour, on a URL."""

    def __init__(self, colour: str, stack: AsyncExitStack) -> None:
        self._colour = colour
        self._stack = stack

    async def open(self, url: str, **options: Any) -> Any:
        if self._colour == "async":
            opened = await psycopg.AsyncConnection.connect(url, **options)
            self._stack.push_async_callback(opened.close)
            return opened
        return Waited(self._stack.enter_context(psycopg.connect(url, **options)))

    def given(self, connection: Any) -> Any:
        return connection.inner if isinstance(connection, Waited) else connection


class Waited(Awaited):
    """psycopg's sync connection, awaited as if it were async."""


@pytest.fixture
async def mine(colour: str) -> AsyncIterator[Mine]:
    async with AsyncExitStack() as stack:
        yield Mine(colour, stack)


async def rest(queue: Any) -> int:
    pending: int = (await queue.stats("t")).pending
    return pending


# connections that can't be joined


async def test_a_connection_that_commits_by_itself_is_refused(queue: Any, mine: Mine, postgres_url: str) -> None:
    own = await mine.open(postgres_url, autocommit=True)
    with pytest.raises(Unsupported, match=r"with connection\.transaction\(\)"):
        await queue.send("t", 1, connection=mine.given(own))
    await own.execute("begin")
    await queue.send("t", 2, connection=mine.given(own))
    assert await rest(queue) == 0
    await own.execute("commit")
    assert await rest(queue) == 1


async def test_another_database_of_the_same_server_is_refused(
    queue: Any, mine: Mine, postgres_server: Any, make_queue: Any
) -> None:
    url = postgres_server.database("elsewhere")
    await make_queue(url).stats()  # it has tables of bide, too
    own = await mine.open(url)
    with pytest.raises(Unsupported, match=r"database elsewhere of the server at .*/test\d+\. No transaction spans both"):
        await queue.send("t", 1, connection=mine.given(own))
    await own.execute("select 1")  # the transaction is as it was
    assert await rest(queue) == 0


async def test_another_server_is_refused_and_the_same_one_is_known_after_a_restart(
    make_queue: Any, mine: Mine, new_postgres: NewPostgres
) -> None:
    here, there = new_postgres(), new_postgres()
    queue = make_queue(here.url)
    await queue.stats()
    await make_queue(there.url).stats()
    own = await mine.open(there.url)
    with pytest.raises(Unsupported, match="No transaction spans both"):
        await queue.send("t", 1, connection=mine.given(own))
    for _ in range(2):
        own = await mine.open(here.url)
        await queue.send("t", 1, connection=mine.given(own))
        await own.commit()
        here.restart()
    assert await rest(queue) == 2


async def test_a_database_whose_tables_are_gone_is_told(queue: Any, mine: Mine, postgres_url: str, other: Any) -> None:
    other.execute("drop schema bide cascade")
    own = await mine.open(postgres_url)
    with pytest.raises(SchemaMismatch, match="bide migrate"):
        await queue.send("t", 1, connection=mine.given(own))


async def test_a_user_without_rights_is_told(queue: Any, mine: Mine, postgres_url: str, other: Any) -> None:
    other.execute("create role weak login")
    own = await mine.open(postgres_url.replace("postgres@", "weak@"))
    with pytest.raises(ConfigError, match="the user of connection= lacks a right"):
        await queue.send("t", 1, connection=mine.given(own))


async def test_a_transaction_that_has_failed_is_refused(queue: Any, mine: Mine, postgres_url: str) -> None:
    own = await mine.open(postgres_url)
    with pytest.raises(psycopg.Error):
        await own.execute("select nonsense")
    with pytest.raises(Unsupported, match="roll it back"):
        await queue.send("t", 1, connection=mine.given(own))
    await own.rollback()
    await queue.send("t", 1, connection=mine.given(own))


async def test_a_transaction_that_may_only_read_is_refused(queue: Any, mine: Mine, postgres_url: str) -> None:
    own = await mine.open(postgres_url)
    await own.execute("set transaction read only")
    with pytest.raises(Unsupported, match="may only read"):
        await queue.send("t", 1, connection=mine.given(own))


async def test_a_closed_connection_is_told(queue: Any, mine: Mine, postgres_url: str) -> None:
    own = await mine.open(postgres_url)
    await own.close()
    with pytest.raises(Unavailable, match="is closed"):
        await queue.send("t", 1, connection=mine.given(own))


async def test_a_connection_that_the_server_has_ended_is_told(queue: Any, mine: Mine, postgres_url: str, other: Any) -> None:
    own = await mine.open(postgres_url)
    await own.execute("select 1")
    other.execute("select pg_terminate_backend(%s)", [mine.given(own).info.backend_pid])
    with pytest.raises(Unavailable):
        await queue.send("t", 1, connection=mine.given(own))
    assert await rest(queue) == 0


async def test_what_is_no_connection_is_refused(queue: Any) -> None:
    for thing in (object(), "postgres://localhost/shop", psycopg, psycopg.Connection):
        with pytest.raises(Unsupported, match="Give the connection of psycopg"):
            await queue.send("t", 1, connection=thing)


@pytest.mark.parametrize("package", ["asyncpg.connection", "psycopg2.extensions"])
async def test_another_driver_is_refused_with_what_to_use(queue: Any, package: str) -> None:
    with pytest.raises(Unsupported, match=r"postgresql\+psycopg://"):
        await queue.send("t", 1, connection=type("Connection", (), {"__module__": package})())


async def test_a_closed_sqlalchemy_connection_and_one_of_another_kind_are_told(queue: Any, colour: str, tmp_path: Any) -> None:
    if colour == "sync":
        lite = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/t.db")
        with Session(lite) as session, pytest.raises(Unsupported, match="one of sqlite3"):
            await queue.send("t", 1, connection=session)
        with pytest.raises(Unsupported, match="SQLAlchemy says"):
            await queue.send("t", 1, connection=Session())
        lite.dispose()
    else:
        with pytest.raises(Unsupported, match="SQLAlchemy says"):
            await queue.send("t", 1, connection=AsyncSession())


async def test_a_connection_of_the_other_colour_is_refused(postgres_url: str) -> None:
    engine = sqlalchemy.create_engine(postgres_url.replace("postgres://", "postgresql+psycopg://"))
    of_asyncio = create_async_engine(engine.url)
    async with AsyncExitStack() as stack:
        stack.callback(engine.dispose)
        queue = stack.enter_context(Queue(postgres_url))
        aio = await stack.enter_async_context(AsyncQueue(postgres_url))
        for own in (await psycopg.AsyncConnection.connect(postgres_url), AsyncSession(of_asyncio)):
            stack.push_async_callback(own.close)
            with pytest.raises(Unsupported, match="give it to an AsyncQueue"):
                queue.send("t", 1, connection=own)
        for sync in (psycopg.connect(postgres_url), Session(engine), of_django(postgres_url, stack)):
            with pytest.raises(Unsupported, match=r"queue\.sync"):
                await aio.send("t", 1, connection=sync)
            sync.close()


def test_django_outside_of_a_block_or_in_a_broken_one_is_refused(postgres_url: str) -> None:
    from django.db import transaction

    with Queue(postgres_url) as queue:
        stack = AsyncExitStack()
        own = of_django(postgres_url, stack)
        with pytest.raises(Unsupported, match=r"transaction\.atomic"):
            queue.send("t", 1, connection=own)
        with transaction.atomic():
            transaction.set_rollback(True)
            with pytest.raises(Unsupported, match="as Django says"):
                queue.send("t", 1, connection=own)
        with transaction.atomic():
            queue.send("t", 1, connection=own)
        assert queue.stats("t").ready == 1
        asyncio.run(stack.aclose())


# what goes wrong on the way


async def test_a_serialization_failure_says_to_run_the_transaction_again(
    queue: Any, mine: Mine, postgres_url: str, other: Any
) -> None:
    sent = await queue.send("t", 1, delay="1h", key="k")
    own = await mine.open(postgres_url)
    for fails in (True, False):
        await own.execute("set transaction isolation level repeatable read")
        await own.execute("select * from booked")
        if fails:
            await queue.reschedule(sent, delay="2h")
            with pytest.raises(Unavailable, match="roll yours back and run it again"):
                await queue.cancel(sent, connection=mine.given(own))
            await own.rollback()
        else:
            assert await queue.cancel(sent, connection=mine.given(own))
            await own.commit()
    assert await rest(queue) == 0


async def test_the_callers_own_timeout_for_locks_counts(queue: Any, mine: Mine, postgres_url: str) -> None:
    first, second = await mine.open(postgres_url), await mine.open(postgres_url)
    await queue.send("t", 1, key="k", connection=mine.given(first))
    await second.execute("set local lock_timeout = '20ms'")
    with pytest.raises(Unavailable, match="another transaction holds"):
        await queue.send("t", 2, key="k", connection=mine.given(second))
    await queue.send("t", 3, connection=mine.given(second))
    for own in (first, second):
        await own.commit()
    assert await rest(queue) == 2


@pytest.fixture
def slow(queue: Any, other: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """Sends of low priority wait until this transaction ends."""
    other.execute("create table gate (n integer)")
    other.execute("insert into gate values (1)")
    gate = "begin perform 1 from public.gate for share; return new; end"
    other.execute(f"create function pass() returns trigger language plpgsql as '{gate}'")
    other.execute("create trigger slow before insert on bide.message for each row when (new.level = 2) execute function pass()")
    other.execute("begin")
    other.execute("select * from gate for update")
    yield other
    other.execute("commit")


@pytest.fixture
def waiting(postgres_url: str) -> Any:
    """Waits until a send waits at the gate."""

    async def wait() -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as look:

            async def waits() -> bool:
                found = await look.execute("select from pg_stat_activity where wait_event_type = 'Lock'")
                return await found.fetchone() is not None

            await once(waits)

    return wait


async def test_a_call_that_is_cancelled_again_and_again_is_undone(
    postgres_url: str, slow: psycopg.Connection, waiting: Any
) -> None:
    async with AsyncQueue(postgres_url) as queue, await psycopg.AsyncConnection.connect(postgres_url) as own:
        for before in (False, True):
            if before:
                await queue.send("t", "before", connection=own)
            call = asyncio.ensure_future(queue.send("t", "cut short", priority="low", connection=own))
            await waiting()
            while not call.done():
                call.cancel()
                await asyncio.sleep(0)
            assert call.cancelled()
            assert own.info.transaction_status == psycopg.pq.TransactionStatus(2 if before else 0)
            await own.execute("insert into booked values (1)")
        await own.commit()
        assert [each.body for each in await queue.receive("t", limit=9)] == ["before"]


async def test_two_calls_at_once_are_refused_but_for_the_first(postgres_url: str) -> None:
    async with AsyncQueue(postgres_url) as queue, await psycopg.AsyncConnection.connect(postgres_url) as own:
        calls = [queue.send("t", number, connection=own) for number in range(3)]
        first, *others = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(first, Sent)
        assert [type(error) for error in others] == [Unsupported, Unsupported]
        assert all("one at a time" in str(error) for error in others)
        await queue.send("t", "last", connection=own)
        await own.commit()
        assert [each.body for each in await queue.receive("t", limit=9)] == [0, "last"]


async def test_threads_that_share_a_transaction_are_refused_but_for_the_first(
    postgres_url: str, slow: psycopg.Connection, waiting: Any
) -> None:
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as own:
        first = asyncio.ensure_future(asyncio.to_thread(queue.send, "t", 1, priority="low", connection=own))
        await waiting()
        with pytest.raises(Unsupported, match="one at a time"):
            queue.send("t", 2, connection=own)
        slow.execute("commit")
        await first
        own.commit()
        assert queue.stats("t").ready == 1


async def test_a_pipeline_is_refused(postgres_url: str) -> None:
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as own:
        with own.pipeline(), pytest.raises(Unsupported, match="pipeline"):
            queue.send("t", 1, connection=own)
        queue.send("t", 1, connection=own)
