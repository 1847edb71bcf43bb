"""Another program has changed what bide stored, so that its headers can't be read: that message alone is a dead letter."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import redis

from bide import AsyncQueue, Queue, Worker
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.server
SAID = "Its headers are not a JSON object of texts."
BROKEN = [b'"spoil', b'["spoil"]', b'{"spoil": 1}', b'"\xff\xfe spoil"']


def spoil(client: Any, broken: bytes) -> int:
    """Put that in the place of each JSON object with a `spoil`, at its length; how many there were."""
    found = 0
    for key in client.keys("*"):
        if client.type(key) == b"list":
            for at, value in enumerate(client.lrange(key, 0, -1)):
                if (begin := value.find(b'{"spoil"')) >= 0:
                    end = value.index(b"}", begin) + 1
                    client.lset(key, at, value[:begin] + broken.ljust(end - begin) + value[end:])
                    found += 1
    return found


@pytest.fixture
def client(redis_url: str, redis_server: RedisServer) -> Any:
    with redis_server.client() as client:
        yield client


async def send(url: str, headers: Sequence[dict[str, str] | None]) -> None:
    async with AsyncQueue(url) as queue:
        for n, each in enumerate(headers):
            await queue.send("t", {"n": n}, headers=each)
        await queue.send("other", {"n": -1})


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("count", [1, 3, 4, 40])
async def test_the_others_are_received(redis_url: str, client: redis.Redis, count: int, broken: bytes) -> None:
    await send(redis_url, [{"spoil": "it, and make room for what is broken"}, *[{"h": "v"}, None] * count])
    assert spoil(client, broken) == 1
    with Queue(redis_url) as queue:
        assert {each.headers.get("h") for each in queue.messages("t", limit=100)} == {"v", None}
        received = queue.receive("t", limit=100, wait="10s")
        assert sorted(each.body["n"] for each in received) == [*range(1, 2 * count + 1)]
        queue.ack_many(received)
        [dead] = queue.messages("t", state="dead")
        assert (dead.last_error or "").startswith(SAID)
        assert dead.headers == {}
        [other] = queue.receive("other")
        other.ack()


@pytest.mark.parametrize("count", [1, 40])
async def test_a_worker_goes_on(redis_url: str, client: redis.Redis, count: int) -> None:
    await send(redis_url, [{"spoil": "it, and make room for what is broken"}, *[{"h": "v"}, None] * count])
    assert spoil(client, BROKEN[0]) == 1
    done: list[int] = []
    all_done = asyncio.Event()

    def add(n: int) -> None:
        done.append(n)
        if len(done) == 2 * count + 1:
            all_done.set()

    async with AsyncQueue(redis_url) as queue:

        @queue.task("t")
        async def handle(n: int) -> None:
            add(n)

        @queue.task("other")
        async def other(n: int) -> None:
            add(n)

        async with Worker(queue):
            await asyncio.wait_for(all_done.wait(), 30)
        assert sorted(done) == [-1, *range(1, 2 * count + 1)]
        assert (await queue.stats("t")).dead == 1
