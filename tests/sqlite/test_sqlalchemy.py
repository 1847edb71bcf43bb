"""connection= takes what an application of SQLAlchemy has at hand: connections and sessions, also those of asyncio."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
import sqlalchemy
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from bide import AsyncQueue, CancelResult, Queue, RescheduleResult, Sent, Unavailable, Unsupported

BOOK = text("insert into booked values (1)")


@pytest.fixture
def laid_out(path: Path) -> Path:
    """The queue's file, with a table of the application's."""
    with closing(Queue(f"sqlite:///{path}")) as queue:
        queue.stats()
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.execute(text("create table booked (seat integer)"))
    engine.dispose()
    return path


@pytest.fixture
def engine(laid_out: Path) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(f"sqlite:///{laid_out}")
    yield made
    made.dispose()


@pytest.fixture
async def async_engine(laid_out: Path) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(f"sqlite+aiosqlite:///{laid_out}")
    yield made
    await made.dispose()


def booked(engine: sqlalchemy.Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("select count(*) from booked")).scalar_one())


async def bodies(queue: Any) -> list[Any]:
    deliveries = await queue.receive("t", limit=100)
    await queue.ack_many(deliveries)
    return [each.body for each in deliveries]


def sessions(engine: sqlalchemy.Engine) -> list[Any]:
    maker = sessionmaker(engine)
    return [engine.connect(), Session(engine), maker(), scoped_session(maker)]


@pytest.mark.parametrize("place", range(4), ids=["Connection", "Session", "sessionmaker", "scoped_session"])
@pytest.mark.parametrize("before", ["nothing", "a read", "a write"])
async def test_a_commit_delivers_and_a_rollback_does_not(
    before: str, place: int, queue: Any, engine: sqlalchemy.Engine
) -> None:
    with closing(sessions(engine)[place]) as own:
        for end in ("rollback", "commit"):
            if before != "nothing":
                own.execute(BOOK if before == "a write" else text("select * from booked"))
            sent = await queue.send("t", end, connection=own)
            assert await queue.get(sent) is None
            getattr(own, end)()
    assert await bodies(queue) == ["commit"]
    assert booked(engine) == (1 if before == "a write" else 0)


async def test_a_block_of_a_transaction_is_joined(queue: Any, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        await queue.send_many("t", [1, 2], connection=connection)
    with suppress(ZeroDivisionError), Session(engine) as session, session.begin():
        await queue.send("t", 3, connection=session)
        raise ZeroDivisionError
    with Session(engine) as session, session.begin():
        session.execute(BOOK)
        with suppress(ZeroDivisionError), session.begin_nested():
            await queue.send("t", 4, connection=session)
            raise ZeroDivisionError
        await queue.send("t", 5, connection=session)
    assert (await bodies(queue), booked(engine)) == ([1, 2, 5], 1)


async def test_every_verb_that_joins_does(queue: Any, engine: sqlalchemy.Engine) -> None:
    later = await queue.send("t", 1, delay="1h", key="later")
    moved = await queue.send("t", 2, delay="1h")
    await queue.send("held", 3)
    [delivery] = await queue.receive("held")
    for end in ("rollback", "commit"):
        with Session(engine) as session:
            assert await queue.cancel(topic="t", key="later", connection=session) is CancelResult.CANCELLED
            assert await queue.reschedule(moved, delay=0, connection=session) is RescheduleResult.MOVED
            if end == "commit":
                await delivery.ack(connection=session)
            assert (await queue.get(later)).state == "scheduled"
            getattr(session, end)()
    assert await queue.get(later) is None
    assert await bodies(queue) == [2]
    assert (await queue.stats()).pending == (await queue.stats()).leased == 0


async def test_a_connection_of_another_database_is_refused(queue: Any, tmp_path: Path) -> None:
    other = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/other.db")
    with other.connect() as connection, pytest.raises(Unsupported, match=r"other\.db"):
        await queue.send("t", 1, connection=connection)
    other.dispose()


async def test_a_connection_that_commits_by_itself_is_refused(queue: Any, engine: sqlalchemy.Engine) -> None:
    automatic = engine.execution_options(isolation_level="AUTOCOMMIT")
    with automatic.connect() as connection, pytest.raises(Unsupported, match="BEGIN IMMEDIATE"):
        await queue.send("t", 1, connection=connection)
    assert await bodies(queue) == []


async def test_a_closed_connection_and_a_session_without_an_engine_are_told(queue: Any, engine: sqlalchemy.Engine) -> None:
    connection = engine.connect()
    connection.close()
    for own in (connection, Session()):
        with pytest.raises(Unsupported, match="SQLAlchemy says"):
            await queue.send("t", 1, connection=own)


async def test_a_stale_read_is_told_with_its_cure(queue: Any, laid_out: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{laid_out}")

    @event.listens_for(engine, "begin")
    def begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("begin")

    with engine.connect() as connection:
        connection.execute(text("select * from booked"))
        await queue.send("t", "somebody else's")
        with pytest.raises(Unavailable, match="BEGIN IMMEDIATE"):
            await queue.send("t", 1, connection=connection)
        connection.rollback()
        await queue.send("t", "joined", connection=connection)
        connection.commit()
    engine.dispose()
    assert await bodies(queue) == ["somebody else's", "joined"]


# of asyncio


def of_asyncio(engine: AsyncEngine) -> list[Any]:
    maker = async_sessionmaker(engine)
    return [engine.connect(), AsyncSession(engine), maker(), async_scoped_session(maker, scopefunc=lambda: None)]


@pytest.mark.parametrize(
    "place", range(4), ids=["AsyncConnection", "AsyncSession", "async_sessionmaker", "async_scoped_session"]
)
@pytest.mark.parametrize("before", ["nothing", "a read", "a write"])
async def test_of_asyncio_a_commit_delivers_and_a_rollback_does_not(
    before: str, place: int, url: str, async_engine: AsyncEngine, engine: sqlalchemy.Engine
) -> None:
    own: Any = of_asyncio(async_engine)[place]
    if place == 0:
        await own.start()
    async with AsyncQueue(url) as queue:
        for end in ("rollback", "commit"):
            if before != "nothing":
                await own.execute(BOOK if before == "a write" else text("select * from booked"))
            sent = await queue.send("t", {"large": "ü" * 5_000, "end": end}, key="ü", connection=own)
            again = await queue.send("t", "kept", key="ü", connection=own)
            assert (again.outcome, again.id) == ("kept", sent.id)
            assert await queue.get(sent) is None
            await getattr(own, end)()
        await own.close()
        assert [each["end"] for each in await bodies(queue)] == ["commit"]
    assert booked(engine) == (1 if before == "a write" else 0)


async def test_of_asyncio_every_verb_that_joins_does(url: str, async_engine: AsyncEngine) -> None:
    async with AsyncQueue(url) as queue, AsyncSession(async_engine) as session:
        later = await queue.send("t", 1, delay="1h")
        await queue.send("held", 3)
        [delivery] = await queue.receive("held")
        async with session.begin():
            assert await queue.cancel(later, connection=session)
            await queue.send_many("t", [1, 2], connection=session)
            assert await queue.ack_many([delivery], connection=session) == [True]
            assert (await queue.get(later)) is not None
        assert await queue.get(later) is None
        assert await bodies(queue) == [1, 2]


async def test_of_asyncio_a_failure_leaves_the_rest_of_the_transaction(url: str, async_engine: AsyncEngine) -> None:
    async with AsyncQueue(url) as queue, async_engine.begin() as connection:
        await queue.send("t", "before", connection=connection)
        with pytest.raises(ValueError, match="delay"):
            await queue.send("t", "fails", delay="200y", connection=connection)
    async with AsyncQueue(url) as queue:
        assert await bodies(queue) == ["before"]


@pytest.mark.parametrize("begun", [False, True])
async def test_of_asyncio_two_calls_at_once_are_refused_but_for_the_first(
    begun: bool, laid_out: Path, async_engine: AsyncEngine
) -> None:
    async with AsyncQueue(f"sqlite:///{laid_out}") as queue, AsyncSession(async_engine) as session:
        if begun:
            await queue.send("t", "before", connection=session)
        calls = [queue.send("t", number, connection=session) for number in range(3)]
        first, *others = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(first, Sent)
        assert [type(error) for error in others] == [Unsupported, Unsupported]
        assert all("one at a time" in str(error) for error in others)
        await queue.send("t", "last", connection=session)
        await session.commit()
        assert await bodies(queue) == [*(["before"] if begun else []), 0, "last"]


async def cancel_at(statement: int, call: Coroutine[Any, Any, Any], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Cancel a call from one of its statements on, in each round of the loop, as anyio does; whether it has so many."""
    execute, reached, left = aiosqlite.Cursor.execute, asyncio.Event(), statement

    async def counted(cursor: aiosqlite.Cursor, *args: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            reached.set()
        return await execute(cursor, *args)

    with monkeypatch.context() as patch:
        patch.setattr(aiosqlite.Cursor, "execute", counted)
        calling, reaching = asyncio.ensure_future(call), asyncio.ensure_future(reached.wait())
        await asyncio.wait({calling, reaching}, return_when=asyncio.FIRST_COMPLETED)
        reaching.cancel()
        while not calling.done():
            calling.cancel()
            await asyncio.sleep(0)
    return reached.is_set()


@pytest.mark.parametrize("verb", ["send_many", "ack_many"])
async def test_of_asyncio_a_call_that_is_cancelled_again_and_again_is_done_or_not_done(
    url: str, async_engine: AsyncEngine, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, statement, cancelled = set(), 0, True
    while cancelled:
        statement += 1
        async with AsyncQueue(url) as queue, AsyncSession(async_engine) as session:
            await queue.send_many("held", range(5))
            held = await queue.receive("held", limit=5)
            await session.execute(BOOK)
            sends = verb == "send_many"
            call = queue.send_many("t", range(5), connection=session) if sends else queue.ack_many(held, connection=session)
            cancelled = await cancel_at(statement, call, monkeypatch)
            await session.commit()
            stats = await queue.stats()
            seen.add(stats.ready if sends else 5 - stats.leased)
            await queue.ack_many(held)
            await bodies(queue)
    assert statement > 3
    assert seen == {0, 5}


async def test_one_of_asyncio_is_refused_by_a_sync_queue(url: str, async_engine: AsyncEngine) -> None:
    with Queue(url) as queue:
        for own in of_asyncio(async_engine)[:2]:
            with pytest.raises(Unsupported, match="AsyncQueue"):
                queue.send("t", 1, connection=own)


async def test_a_connection_of_asyncio_that_is_closed_or_was_never_begun_is_told(
    laid_out: Path, async_engine: AsyncEngine
) -> None:
    async with AsyncQueue(f"sqlite:///{laid_out}") as queue:
        async with async_engine.connect() as connection:
            await connection.close()
            with pytest.raises(Unsupported, match="SQLAlchemy says"):
                await queue.send("t", 1, connection=connection)
        with pytest.raises(Unsupported, match="SQLAlchemy says"):
            await queue.send("t", 1, connection=async_engine.connect())
        with pytest.raises(Unsupported, match="SQLAlchemy says"):
            await queue.send("t", 1, connection=AsyncSession())
        assert (await queue.stats("t")).pending == 0
