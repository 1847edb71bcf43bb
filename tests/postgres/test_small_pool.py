"""Behind a PgBouncer with fewer connections than transactions: a call that joins one of them waits for no other connection."""

import asyncio
import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from bide import Queue, Worker, current
from bide.engines.base import Settings
from bide.engines.postgres import source
from tests.servers.fixtures import NewPgBouncer
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.sqlite.conftest import Child
from tests.worker.conftest import once

pytestmark = pytest.mark.server
POOL = 5
STALLED = 20.0  # seconds; each of these takes about two
SENDER = """
    import sys, threading, time
    import psycopg
    from bide import Queue

    url, threads, ready = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    queue = Queue(url)
    if ready == "open":
        queue.open()
    together = threading.Barrier(threads)

    def send(number):
        together.wait()
        for n in range(20):
            with psycopg.connect(url, prepare_threshold=None) as connection:
                connection.execute("insert into packed values (%s)", [n])
                time.sleep(0.01)  # others have their transactions meanwhile
                queue.send("t", n, key=f"{number} {n}", connection=connection)

    print("ready")
    sys.stdin.readline()
    working = [threading.Thread(target=send, args=[f"{sys.argv[4]}-{number}"]) for number in range(threads)]
    for each in working:
        each.start()
    for each in working:
        each.join()
    queue.close()
"""


@pytest.fixture
def small(postgres_server: PostgresServer, new_pgbouncer: NewPgBouncer) -> PgBouncer:
    return new_pgbouncer(postgres_server, default_pool_size=POOL)


@pytest.fixture
def small_url(small: PgBouncer, postgres_url: str) -> str:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("create table packed (n integer)")
    with Queue(postgres_url) as queue:
        queue.open()  # its tables are there
    return small.url_of(postgres_url.rpartition("/")[2])


async def all_packed(url: str, many: int) -> bool:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        end = time.monotonic() + STALLED
        while time.monotonic() < end:
            cursor = await connection.execute("select count(*) from packed")
            if await cursor.fetchone() == (many,):
                return True
            await asyncio.sleep(0.05)
    return False


@pytest.mark.always
async def test_a_worker_whose_handlers_ack_in_their_transactions_goes_on(small_url: str, postgres_url: str) -> None:
    queue = Queue(small_url)
    together = threading.Barrier(POOL)

    @queue.task("pack", max_attempts=1)
    def pack(n: int) -> None:
        with psycopg.connect(small_url, prepare_threshold=None) as connection:
            connection.execute("insert into packed values (%s)", [n])
            if n < POOL:
                together.wait(STALLED)  # the pool has nothing left
            current().ack(connection=connection)

    with Queue(postgres_url) as sender:
        sender.send_many("pack", [{"n": n} for n in range(300)])
        began = time.monotonic()
        async with Worker(queue, concurrency=32):
            assert await all_packed(postgres_url, 300)
            print(f"300 were packed after {time.monotonic() - began:.2f} s")
        assert sender.stats("pack").dead == 0
    queue.close()


async def test_a_pool_as_the_docs_size_it_has_room_for_all_that_a_worker_does(
    new_pgbouncer: NewPgBouncer, postgres_server: PostgresServer, postgres_url: str, small_url: str
) -> None:
    """Handlers in a transaction, and three: while those last, all else goes on."""
    handlers = 4
    pool = new_pgbouncer(postgres_server, default_pool_size=handlers + 3)
    url = pool.url_of(postgres_url.rpartition("/")[2])
    queue, over = Queue(url), threading.Event()
    begun = threading.Barrier(handlers + 1)

    @queue.task("long", timeout="1m")
    def long(n: int) -> None:
        with psycopg.connect(url, prepare_threshold=None) as connection:
            connection.execute("insert into packed values (%s)", [n])
            begun.wait(STALLED)
            over.wait(STALLED)
            current().ack(connection=connection)

    @queue.task("short")
    async def short(n: int) -> None: ...

    with Queue(postgres_url) as sender:
        sender.send_many("long", [{"n": n} for n in range(handlers)])
        async with Worker(queue, concurrency=32, lease="2s"):
            await asyncio.to_thread(begun.wait, STALLED)
            began = time.monotonic()
            sender.send_many("short", [{"n": n} for n in range(200)])
            await once(lambda: sender.stats("short").pending + sender.stats("short").leased == 0)
            [[bide, all_of_them]] = postgres_server.ask(
                "select count(*) filter (where application_name = 'bide'), count(*) from pg_stat_activity where datname = "
                f"'{postgres_url.rpartition('/')[2]}'"
            )
            print(f"{bide} of bide and {all_of_them} in all; 200 short ones took {time.monotonic() - began:.2f} s")
            assert time.monotonic() < began + STALLED / 2
            over.set()
            assert await all_packed(postgres_url, handlers)
        assert sender.stats().dead == 0
    queue.close()


@pytest.mark.parametrize(("programs", "threads"), [(1, 8), (8, 1)])
async def test_programs_that_were_opened_first_send_in_more_transactions_than_there_are_connections(
    programs: int, threads: int, small_url: str, postgres_url: str, start: Callable[..., Child]
) -> None:
    senders = [start(SENDER, small_url, threads, "open", n) for n in range(programs)]
    for each in senders:
        assert each.line() == "ready"
    for each in senders:
        each.tell()
    assert await all_packed(postgres_url, 8 * 20)
    for each in senders:
        each.end()
    with Queue(postgres_url) as queue:
        assert queue.stats("t").ready == 8 * 20


def test_a_server_that_was_started_anew_is_found_by_one_while_others_hold_all_connections(
    small_url: str, small: PgBouncer
) -> None:
    engine = source(Settings(url=small_url)).sync()
    engine.open()
    engine._joining._here = [("elsewhere", "0", True)]  # as after a restart of the server
    together = threading.Barrier(POOL)
    refused: list[Exception] = []

    def send() -> None:
        for attempt in range(100):
            with psycopg.connect(small_url, prepare_threshold=None) as connection:
                connection.execute("insert into packed values (1)")
                if attempt == 0:
                    together.wait(STALLED)
                try:
                    engine.cancel([], connection=connection)
                    return
                except Exception as error:
                    refused.append(error)
                    connection.rollback()

    began = time.monotonic()
    senders = [threading.Thread(target=send) for _ in range(POOL)]
    for each in senders:
        each.start()
    for each in senders:
        each.join()
    assert time.monotonic() < began + STALLED / 4
    engine.close()
