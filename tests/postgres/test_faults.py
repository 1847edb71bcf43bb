"""Frozen servers, lost connections and answers, and operations that are repeated meanwhile."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest

from bide import AsyncQueue, Queue, Unavailable
from bide.engines.base import End, Move, NewMessage, Ref, Settings
from bide.engines.postgres import source
from bide.engines.postgres.aio import wakeup
from bide.engines.postgres.aio.engine import AsyncPostgres
from bide.engines.postgres.statements import AsyncLimited, Limited
from bide.engines.postgres.sync.engine import Postgres
from bide.errors import EngineError, OutcomeUnknown
from bide.types import CancelResult, RescheduleResult
from tests.servers.fixtures import NewPostgres
from tests.servers.network import Network
from tests.servers.postgres import PostgresServer
from tests.servers.programs import needs_groups

LOCKED = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"


async def send(url: str) -> object:
    async with AsyncQueue(url) as queue:
        return await queue.send("t")


async def send_in_thread(url: str) -> object:
    def send() -> object:
        with Queue(url) as queue:
            return queue.send("t")

    return await asyncio.to_thread(send)


async def until_locked(server: PostgresServer, many: int) -> None:
    """Until so many wait for locks."""

    def look() -> None:
        while server.ask(LOCKED) != [(many,)]:
            pass

    await asyncio.to_thread(look)


def aio(url: str, **settings: Any) -> AsyncPostgres:
    return source(Settings(url=url, **settings)).aio()


@contextlib.contextmanager
def impatient(engine: Any, timeout: float) -> Iterator[None]:
    """An engine that was opened with patience waits no longer than that."""
    connections = engine._engine._connections
    address = connections._address
    connections._address = address._replace(timeout=timeout)
    yield
    connections._address = address


@pytest.mark.parametrize("send", [send, send_in_thread])
async def test_a_queue_of_a_frozen_server_is_refused(
    send: Callable[[str], Awaitable[object]], new_postgres: NewPostgres
) -> None:
    server = new_postgres()
    server.freeze()
    with pytest.raises(Unavailable, match="can't be reached"):
        await send(f"{server.url}?timeout=0.1")


async def test_a_call_of_a_server_that_freezes_ends(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    async with AsyncQueue(server.url) as queue:
        await queue.send("t")
        server.freeze()
        with impatient(await queue.session.engine(), 0.2), pytest.raises(OutcomeUnknown):
            await queue.send("t")
        server.thaw()
        assert (await queue.send("t")).created


async def test_a_large_body_has_time_to_be_stored(colour: str, make_queue: Callable[..., Any], postgres_url: str) -> None:
    queue = make_queue(f"{postgres_url}?timeout=0.1", max_body=2**28)
    await queue.send("t", "x" * 30_000_000)
    [delivery] = await queue.receive("t")
    assert len(delivery.body) == 30_000_000


def test_a_call_in_a_thread_ends_when_the_server_freezes(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    with Queue(server.url) as queue:
        queue.send("t")
        server.freeze()
        with impatient(queue.session.engine(), 0.2), pytest.raises(OutcomeUnknown):
            queue.send("t")
        server.thaw()
        assert queue.send("t").created


def test_nothing_was_done_by_a_call_that_found_no_server(new_postgres: NewPostgres) -> None:
    """It was not sent, so it is not OutcomeUnknown."""
    server = new_postgres()
    with Queue(server.url) as queue:
        queue.send("t")
        server.kill()
        with impatient(queue.session.engine(), 0.1):
            with pytest.raises(OutcomeUnknown):
                queue.send("t")  # on a connection that was there
            with pytest.raises(Unavailable, match="nothing was done"):
                queue.send("t")


def test_connections_that_died_together_cost_one_try(new_postgres: NewPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    server = new_postgres()
    engine = source(Settings(url=server.url)).sync()
    engine.open()
    connections = engine._connections
    connections._idle += [connections.connect() for _ in range(5)]
    tried: list[str] = []
    ask = connections._ask

    def count(connection: Any, sql: str, args: Any) -> list[Any]:
        tried.append(sql)
        return ask(connection, sql, args)

    monkeypatch.setattr(connections, "_ask", count)
    server.kill()
    server.start()
    engine.put([NewMessage("t", b"1")])
    assert len(tried) == 2
    engine.close()


def test_a_call_that_outlives_its_queue_leaves_no_connection(postgres_url: str) -> None:
    engine: Postgres = source(Settings(url=postgres_url)).sync()
    engine.open()
    connection = engine._connections._taken()
    assert connection is not None
    engine.close()
    engine._connections._put_back(connection)
    assert connection.closed


def test_a_session_that_the_server_ended_is_replaced(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    with Queue(server.url) as queue:
        queue.send("t")
        server.ask("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'bide'")
        assert queue.send("t").created


@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("send", [send, send_in_thread])
async def test_a_queue_opens_although_the_server_ends_its_session(
    send: Callable[[str], Awaitable[object]], after: int, new_postgres: NewPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = new_postgres()
    await send(server.url)  # makes the tables
    asked: list[object] = []
    own_ask, aio_own_ask = Limited.ask, AsyncLimited.ask

    def then_end() -> None:
        if len(asked) == after:
            server.ask("select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'bide'")

    def ask(connection: Limited, *args: Any, **options: Any) -> object:
        asked.append(own_ask(connection, *args, **options))
        then_end()
        return asked[-1]

    async def aio_ask(connection: AsyncLimited, *args: Any, **options: Any) -> object:
        asked.append(await aio_own_ask(connection, *args, **options))
        then_end()
        return asked[-1]

    monkeypatch.setattr(Limited, "ask", ask)
    monkeypatch.setattr(AsyncLimited, "ask", aio_ask)
    await send(server.url)
    assert len(asked) > after


async def test_an_answer_that_was_given_up_is_not_that_of_the_next_call(
    postgres_url: str, postgres_server: PostgresServer
) -> None:
    engine = aio(f"{postgres_url}?connections=1")
    await engine.open()
    [first] = await engine.put([NewMessage("t", b"1", key="k")])
    with psycopg.connect(postgres_url) as other:
        other.execute("select from bide.message where key = 'k' for update")
        moving = asyncio.ensure_future(engine.put([NewMessage("t", b"2", key="k", if_exists="replace")]))
        await until_locked(postgres_server, 1)
        moving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await moving
        [sent] = await engine.put([NewMessage("u", b"3")])
        assert (sent.topic, sent.outcome) == ("u", "created")
        await until_locked(postgres_server, 0)  # nobody waits for the lock for ever
    [[stored]] = [await engine.get([Ref(first.id)])]
    assert stored is not None
    assert stored.body == b"1"
    await engine.close()


async def test_an_operation_that_two_do_at_once_acts_once(postgres_url: str) -> None:
    engine = aio(postgres_url)
    await engine.open()
    for turn in range(20):
        new = NewMessage("t", b"1", operation=f"once {turn}")
        sent = [each for [each] in await asyncio.gather(*(engine.put([new]) for _ in range(5)))]
        assert len({each.id for each in sent}) == 1
    assert (await engine.stats("t")).ready == 20
    await engine.close()


async def test_a_send_that_is_still_under_way_and_its_repetition_act_once(
    postgres_url: str, postgres_server: PostgresServer
) -> None:
    """The first one waits on the server for a lock; its caller, who has given up, sends again by the error's operation."""
    engine = aio(postgres_url)
    await engine.open()
    await engine.put([NewMessage("t", b"0", key="held")])
    batch = [NewMessage("t", b"1"), NewMessage("t", b"2", key="held", if_exists="replace")]
    request = f"{engine._lane}-{engine._number + 1}"
    with psycopg.connect(postgres_url) as other:
        other.execute("select from bide.message where key = 'held' for update")
        first = asyncio.ensure_future(engine.put(batch))
        await until_locked(postgres_server, 1)
        again = asyncio.ensure_future(engine.put([NewMessage("t", b"1", operation=f"~{request}.0")]))
        [sent] = await again
    assert (await first)[0].id == sent.id
    assert (await engine.stats("t")).ready == 2
    await engine.close()


async def test_what_was_committed_before_the_connection_broke_is_not_done_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each verb that acts, with its first answer lost."""
    engine = aio(postgres_url)
    await engine.open()
    connections = engine._connections
    ask = connections._ask
    lost: list[str] = []

    async def lose(connection: Any, sql: str, args: Any) -> Any:
        rows = await ask(connection, sql, args)
        if len(lost) < 1:
            lost.append(sql)
            raise psycopg.OperationalError("the connection broke")
        return rows

    async def losing(call: Awaitable[Any]) -> Any:
        lost.clear()
        with monkeypatch.context() as patched:
            patched.setattr(connections, "_ask", lose)
            answer = await call
        assert lost
        return answer

    [sent, moved, kept] = await losing(
        engine.put([NewMessage("t", b"1"), NewMessage("t", b"2", delay=9_000), NewMessage("t", b"3")])
    )
    assert (await engine.stats("t")).pending == 3
    assert await losing(engine.reschedule([Move(Ref(moved.id), 5_000)])) == [RescheduleResult.MOVED]
    assert await losing(engine.cancel([Ref(moved.id)])) == [CancelResult.CANCELLED]
    claim = await losing(engine.claim(["t"], 10, 60_000))
    assert {each.id for each in claim.messages} == {sent.id, kept.id}
    ends = [End("t", each.id, each.token, "dead", error="x") for each in claim.messages]
    assert await losing(engine.settle(ends)) == ["dead", "dead"]
    assert (await losing(engine.requeue("t"))).count == 2
    assert (await engine.stats("t")).ready == 2
    await engine.close()


async def test_keys_in_other_orders_are_all_taken(postgres_url: str) -> None:
    engine = aio(f"{postgres_url}?timeout=30")
    await engine.open()
    keys = [f"k{n}" for n in range(20)]

    async def put(order: list[str]) -> None:
        for _ in range(5):
            await engine.put([NewMessage("t", b"1", key=key, if_exists="replace") for key in order])

    await asyncio.gather(put(keys), put(keys[::-1]), put(keys[10:] + keys[:10]))
    assert (await engine.stats("t")).ready == 20
    await engine.close()


async def test_a_key_that_is_sent_while_its_dead_letter_is_requeued_belongs_to_one(postgres_url: str) -> None:
    engine = aio(postgres_url)
    await engine.open()
    for _ in range(20):
        await engine.put([NewMessage("t", b"1", key="k")])
        [held] = (await engine.claim(["t"], 1, 60_000)).messages
        await engine.settle([End("t", held.id, held.token, "dead")])
        await asyncio.gather(engine.requeue("t"), engine.put([NewMessage("t", b"2", key="k")]), engine.requeue("t"))
        found = (await engine.scan("t", None, 10)).messages
        assert sorted(each.key or "" for each in found)[-1:] == ["k"]
        assert len({each.key for each in found}) == len(found)
        await engine.purge("t", "ready")
    await engine.close()


def test_engine_errors_are_ours(postgres_url: str) -> None:
    """What the server refuses for a reason that nobody thought of is an error of the engine, too."""
    with psycopg.connect(postgres_url, autocommit=True) as other, Queue(postgres_url) as queue:
        queue.send("t")
        other.execute("alter table bide.message add constraint odd check (topic <> 'odd')")
        with pytest.raises(EngineError, match="odd"):
            queue.send("odd")


async def test_a_connection_that_listens_and_has_gone_silent_is_replaced(
    postgres_url: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_groups()
    monkeypatch.setattr(wakeup, "SILENT", 0.0)
    with Network() as network:
        address = network.new_address()
        network.listen(address, postgres_server.port)
        engine = aio(postgres_url.replace("127.0.0.1", address))
        await engine.open()
        await engine.wait(["t"], 5)  # begins to listen
        assert engine._waking is not None
        first = engine._waking._listening
        assert first is not None
        network.silence(address)
        network.silence(address)  # what was connected before stays silent
        while engine._waking._listening in (first, None):
            await engine.wait(["t"], 5)
        woken = asyncio.ensure_future(engine.wait(["t"], 5))
        async with AsyncQueue(postgres_url) as queue:
            await queue.send("t")
        await woken
        await engine.close()
