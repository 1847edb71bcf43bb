"""The first connection: nobody listens, the host is unknown, or the URL names a replica. Later ones wait through a failover."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest

from bide import AsyncQueue, Queue, Worker
from bide.errors import ConfigError, OutcomeUnknown, Unavailable
from tests.redis.keyspace import COLOURS
from tests.redis.test_confirm import wait_for_link
from tests.servers.fixtures import NewRedis
from tests.servers.redis import RedisServer
from tests.servers.server import free_ports

SOON = 6.0  # seconds: what waits does so for three times five seconds
both_colours = pytest.mark.parametrize("colour", COLOURS)


async def send(url: str, colour: str) -> None:
    if colour == "sync":
        await asyncio.to_thread(send_at, url)
    else:
        async with AsyncQueue(url) as queue:
            await queue.send("t", 1)


def send_at(url: str) -> None:
    with Queue(url) as queue:
        queue.send("t", 1)


async def fails_at_once(call: Awaitable[object], kind: type[Exception], match: str) -> None:
    began = time.monotonic()
    with pytest.raises(kind, match=match):
        await call
    assert time.monotonic() - began < SOON


@both_colours
@pytest.mark.parametrize(
    "way", ["redis://{}", "redis://localhost:{p}", "redis+cluster://{},{q}", "redis+sentinel://{},{q}/main"]
)
async def test_where_nobody_listens_is_told_at_once(colour: str, way: str) -> None:
    one, other = free_ports(2)
    url = way.format(f"127.0.0.1:{one}", p=one, q=f"127.0.0.1:{other}")
    await fails_at_once(send(url, colour), Unavailable, r"can't be reached.*Nothing was done. Is the server running")


@both_colours
async def test_an_unknown_host_and_a_missing_socket_are_told_at_once(colour: str, tmp_path: Path) -> None:
    await fails_at_once(send("redis://nowhere.invalid", colour), Unavailable, "can't be reached")
    await fails_at_once(send(f"unix://{tmp_path}/redis.sock", colour), Unavailable, "can't be reached")


@both_colours
async def test_who_was_connected_once_waits_until_the_server_is_back(new_redis: NewRedis, colour: str) -> None:
    """Also what a queue connects only then, such as the engine of its heartbeat."""
    server = new_redis(appendonly="yes", appendfsync="always")
    with Queue(server.url) as queue:
        queue.send("t", 1)
        for _ in range(2):
            server.kill()
            back = threading.Timer(1.0, server.start)
            back.start()
            try:
                if colour == "sync":
                    queue.send("t", 2)
                else:
                    engine = queue.session.setup.source.aio()
                    await engine.open()
                    await engine.close()
            finally:
                back.join()


async def test_a_worker_that_is_there_before_its_server_goes_on_trying(
    new_redis: NewRedis, caplog: pytest.LogCaptureFixture
) -> None:
    server, done, failed = new_redis(), asyncio.Event(), asyncio.Event()
    server.kill()
    queue = AsyncQueue(server.url)

    @queue.task("t")
    async def handle() -> None:
        done.set()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            failed.set()

    async def start_later() -> None:
        await failed.wait()
        await asyncio.to_thread(server.start)

    heard = Heard()
    logging.getLogger("bide").addHandler(heard)
    try:
        starting = asyncio.create_task(start_later())
        async with Worker(queue):
            await starting
            await handle.send()
            await asyncio.wait_for(done.wait(), 30)
    finally:
        logging.getLogger("bide").removeHandler(heard)
    await queue.close()
    assert "goes on trying" in caplog.text


def wait_for_copy(master: RedisServer) -> None:
    """Until its replica has all that was written so far; WAIT counts the writes of its own connection only."""
    with master.client() as client:
        client.set("written", "last")
        assert client.wait(1, 5_000) == 1


@pytest.fixture
def pair(new_redis: NewRedis) -> tuple[RedisServer, RedisServer]:
    master = new_redis(repl_diskless_sync_delay=0)
    replica = new_redis(replicaof=f"127.0.0.1 {master.port}")
    wait_for_link(replica)
    return master, replica


@both_colours
async def test_a_replica_in_the_url_is_refused_with_its_masters_place(
    pair: tuple[RedisServer, RedisServer], colour: str
) -> None:
    master, replica = pair
    await fails_at_once(send(replica.url, colour), ConfigError, rf"is a replica.*Name its master.*127.0.0.1:{master.port}")
    await send(master.url, colour)
    wait_for_copy(master)
    with Queue(replica.url) as queue:
        assert queue.stats("t").ready == 1


def test_a_master_that_becomes_a_replica_for_a_while_is_waited_for(pair: tuple[RedisServer, RedisServer]) -> None:
    master, other = pair
    with Queue(master.url) as queue:
        queue.send("t", 1)
        wait_for_copy(master)
        with master.client() as client, other.client() as successor:
            successor.replicaof("NO", "ONE")
            client.replicaof("127.0.0.1", other.port)
            wait_for_link(master)
            back = threading.Timer(1.0, lambda: client.replicaof("NO", "ONE"))
            back.start()
            queue.send("t", 2)
            back.join()
        assert queue.stats("t").ready == 2


def test_a_master_that_stays_a_replica_answers_but_takes_no_writes(pair: tuple[RedisServer, RedisServer]) -> None:
    master, other = pair
    with Queue(f"{master.url}?timeout=0.2") as queue:
        queue.send("t", 1)
        wait_for_copy(master)
        with master.client() as client, other.client() as successor:
            successor.replicaof("NO", "ONE")
            client.replicaof("127.0.0.1", other.port)
            wait_for_link(master)
        with pytest.raises(Unavailable, match=r"answers, but takes no writes now: .*read only replica\. Nothing was done"):
            queue.send("t", 2)


def test_what_was_sent_before_the_server_went_is_told_as_unknown(new_redis: NewRedis) -> None:
    server = new_redis()
    with Queue(f"{server.url}?timeout=0.2") as queue:
        queue.send("t", 1)
        server.kill()
        with pytest.raises((OutcomeUnknown, Unavailable), match=r"What was sent before that|Nothing was done"):
            queue.send("t", 2)
