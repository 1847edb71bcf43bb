"""A server that freezes, hangs up, restarts or forgets its scripts, under load: no error that the user need not see,
nothing lost, nothing twice.
"""

import asyncio
import contextlib
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from bide import AsyncQueue, Queue
from bide.errors import OutcomeUnknown, Unavailable
from bide.types import Sent
from tests.servers.fixtures import NewRedis
from tests.servers.redis import RedisServer

LONG = os.environ.get("BIDE_LONG")


async def stored_bodies(queue: AsyncQueue, topic: str) -> Counter[int]:
    """Everything that is pending, by what it says."""
    found: Counter[int] = Counter()
    after = None
    while True:
        page = await queue.messages(topic, limit=500, after=after)
        found.update(info.body["n"] for info in page)
        after = page.after
        if after is None:
            return found


async def send_until_known(queue: AsyncQueue, n: int, topic: str = "t") -> tuple[Sent, int]:
    """Send, and send again with the operation that an unknown outcome carries. Gives how often it was unknown, too."""
    operation, unknown = None, 0
    while True:
        try:
            return await queue.send(topic, {"n": n}, delay="1h", operation=operation), unknown
        except OutcomeUnknown as error:
            operation, unknown = error.operation or "none was given", unknown + 1
        except Unavailable:
            pass


async def frozen_sends(server: RedisServer, url: str, seconds: float) -> int:
    """A thousand sends into a server that stands still for so long: how many outcomes were unknown at first."""
    async with AsyncQueue(url) as queue, AsyncQueue(server.url) as patient:
        await send_until_known(queue, -1, "warm")
        server.freeze()
        sends = [asyncio.create_task(send_until_known(queue, n)) for n in range(1_000)]
        await asyncio.sleep(seconds)  # how long it is frozen is what this is about
        server.thaw()
        results = await asyncio.gather(*sends)
        assert await stored_bodies(patient, "t") == Counter(range(1_000))
        assert len({sent.id for sent, _ in results}) == 1_000
        for sent, _ in results[::100]:
            info = await patient.get(sent.id)
            assert info is not None
            assert info.due == sent.due
        return sum(unknown for _, unknown in results)


async def test_each_send_into_a_frozen_server_is_stored_once(new_redis: NewRedis) -> None:
    server = new_redis()
    assert await frozen_sends(server, f"{server.url}?timeout=30", 1.0) == 0


async def test_a_send_whose_outcome_is_unknown_is_safe_to_send_again(new_redis: NewRedis) -> None:
    server = new_redis()
    assert await frozen_sends(server, f"{server.url}?timeout=0.2&connect_timeout=0.2", 2.0) > 0


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="needs BIDE_LONG=1")
async def test_seven_seconds_of_a_frozen_server(new_redis: NewRedis) -> None:
    server = new_redis()
    await frozen_sends(server, server.url, 7.0)


@contextlib.asynccontextmanager
async def hanging_up(server: RedisServer, every: float) -> AsyncIterator[list[int]]:
    """Cut all connections again and again."""
    cuts: list[int] = []
    over = threading.Event()

    def cut() -> None:
        with server.client() as client:
            while not over.wait(every):
                cuts.append(int(client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")))

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        yield cuts
    finally:
        over.set()
        await asyncio.to_thread(thread.join)


async def send_and_drain(url: str, seconds: float) -> int:
    """Senders and receivers side by side; gives how many messages went through."""
    got: Counter[int] = Counter()
    sent: list[int] = []
    over, sent_all = asyncio.Event(), asyncio.Event()

    async def sender(queue: AsyncQueue, k: int) -> None:
        n = k
        while not over.is_set():
            await queue.send("t", {"n": n})
            sent.append(n)
            n += 10
            await asyncio.sleep(0.001)

    async def receiver(queue: AsyncQueue) -> None:
        while not sent_all.is_set() or len(got) < len(sent):
            for delivery in await queue.receive("t", limit=50, wait=0.5, lease="5s"):
                await delivery.ack()
                got[delivery.body["n"]] += 1

    async with AsyncQueue(url) as queue, AsyncQueue(url) as other:
        senders = [asyncio.create_task(sender(queue, k)) for k in range(10)]
        receivers = [asyncio.create_task(receiver(other)) for _ in range(2)]
        await asyncio.sleep(seconds)
        over.set()
        await asyncio.gather(*senders)
        sent_all.set()
        await asyncio.gather(*receivers)
    assert got == Counter(sent)
    return len(sent)


async def test_no_error_reaches_the_user_while_connections_are_cut(new_redis: NewRedis) -> None:
    server = new_redis(timeout="1")
    async with hanging_up(server, 0.1) as cuts:
        assert await send_and_drain(server.url, 2.0) > 100
    assert sum(cuts) > 10


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif(not LONG, reason="needs BIDE_LONG=1")
async def test_a_minute_of_connections_cut_every_second(new_redis: NewRedis) -> None:
    server = new_redis(timeout="1")
    async with hanging_up(server, 1.0) as cuts:
        assert await send_and_drain(server.url, 60.0) > 10_000
    assert sum(cuts) > 50


async def test_a_server_that_restarts_is_found_again(new_redis: NewRedis) -> None:
    server = new_redis(appendonly="yes", appendfsync="always")
    async with AsyncQueue(server.url) as queue:
        sent = await queue.send("t", {"n": 1}, key="k")
        server.restart()
        assert (await queue.send("t", {"n": 2}, key="k")).id == sent.id
        [delivery] = await queue.receive("t", wait=5)
        assert delivery.body == {"n": 1}
        server.restart()
        await delivery.ack()
        assert await queue.stats("t") == await queue.stats("none")


async def test_a_server_that_is_away_is_said_to_be(new_redis: NewRedis) -> None:
    server = new_redis()
    server.stop()
    queue = AsyncQueue(f"{server.url}?timeout=0.2&connect_timeout=0.2")
    with pytest.raises(Unavailable, match="Nothing was done"):
        await queue.send("t", {"n": 1})
    await queue.close()


async def test_a_sleeper_outlives_a_server_that_goes_and_comes(new_redis: NewRedis) -> None:
    server = new_redis()
    async with AsyncQueue(server.url) as queue, AsyncQueue(server.url) as sender:
        await sender.send("other", {"n": 0})
        receiving = asyncio.create_task(queue.receive("t", wait=30))
        await asyncio.sleep(0)
        server.restart()
        await sender.send("t", {"n": 1})
        [delivery] = await receiving
        assert delivery.body == {"n": 1}
        await delivery.ack()


def test_a_sync_queue_lives_through_cut_connections(new_redis: NewRedis) -> None:
    server = new_redis()
    with Queue(server.url) as queue, server.client() as client:
        for n in range(50):
            queue.send("t", {"n": n})
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        got: list[int] = []
        while len(got) < 50:
            for delivery in queue.receive("t", limit=10, wait=5):
                delivery.ack()
                got.append(delivery.body["n"])
                client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert sorted(got) == list(range(50))
