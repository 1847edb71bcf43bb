"""Connections that go silent without an end, as when a firewall forgets them: nobody waits for ever, and all go on."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bide import AsyncQueue, EngineError, Queue
from bide.engines.redis.aio import wakeup as aio_wakeup
from bide.engines.redis.protocol.encoding import name_of
from bide.engines.redis.sync import wakeup as sync_wakeup
from tests.redis.crew import at_work
from tests.redis.proxy import proxied
from tests.redis.test_failovers import ALL, away_from_now_on
from tests.servers.fixtures import NewCluster
from tests.servers.network import Network
from tests.servers.programs import needs_groups
from tests.servers.redis import RedisServer

PATIENCE = 20.0
SILENCE = 45.0


async def receive(url: str) -> object:
    async with AsyncQueue(url) as queue:
        [delivery] = await queue.receive("t", wait=3 * PATIENCE)
        await delivery.ack()
        return delivery.body


async def receive_in_thread(url: str) -> object:
    def receive() -> object:
        with Queue(url) as queue:
            [delivery] = queue.receive("t", wait=3 * PATIENCE)
            delivery.ack()
            return delivery.body

    return await asyncio.to_thread(receive)


@pytest.mark.parametrize("receive", [receive, receive_in_thread])
async def test_a_receiver_whose_idle_connection_was_forgotten_gets_what_comes(
    receive: Callable[[str], Awaitable[object]], redis_url: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (aio_wakeup, sync_wakeup):
        monkeypatch.setattr(each, "SWEEP", 0.02)
    async with proxied(redis_server.port) as proxy, AsyncQueue(redis_url) as queue, asyncio.timeout(PATIENCE):
        proxy.forgotten.add(b"BLPOP")
        receiving = asyncio.ensure_future(receive(proxy.patient_url))
        await proxy.asked.wait()  # it is blocked, and the answer will not come
        await queue.send("t", "late")
        assert await receiving == "late"


@pytest.mark.always
async def test_a_producer_finds_out_by_itself_that_a_shard_is_back(redis_cluster_url: str) -> None:
    """Messages without a key go to the others meanwhile."""
    async with AsyncQueue(redis_cluster_url) as queue, asyncio.timeout(PATIENCE):
        await queue.send("t")
        engine: Any = await queue.session.engine()
        engine._engine._shards[1].connections.server.presence.lose()
        assert {name_of((await queue.send("t")).id).shard for _ in range(4)} == {0, 2}
        while name_of((await queue.send("t")).id).shard != 1:
            pass


@pytest.mark.parametrize("receiver", ["worker", "sync listen"])
def test_a_server_that_was_silent_is_used_again(receiver: str, redis_server: RedisServer, redis_url: str) -> None:
    needs_groups()
    with Network() as network:
        address = network.new_address()
        network.listen(address, redis_server.port)
        url = redis_url.replace("127.0.0.1", address)
        with at_work(receiver, f"{url}?timeout=1") as crew, Queue(f"{url}?timeout=0.1") as probe:
            crew.wait_for({0})
            network.silence(address)
            with pytest.raises(EngineError):
                probe.send("u")
            network.silence(address)
            crew.wait_for({0})


@pytest.mark.slow
@pytest.mark.parametrize("receiver", ["worker", "sync listen"])
def test_receivers_go_on_with_the_other_shards_while_one_is_silent_and_with_all_after_it(
    receiver: str, new_cluster: NewCluster
) -> None:
    cluster = new_cluster(relayed=True, cluster_node_timeout=120_000)
    with at_work(receiver, cluster.url) as crew:
        crew.wait_for(ALL)
        old, shard, others = away_from_now_on(cluster)
        cluster.silence(old)
        began = time.monotonic()
        crew.wait_for(others, many=20)  # more than what had been claimed
        noticed = time.monotonic() - began
        crew.stop.wait(SILENCE - noticed)
        cluster.silence(old)
        ended = time.monotonic()
        crew.wait_for({shard})
        back = time.monotonic() - ended
    print(f"{receiver}: the other shards went on after {noticed:.1f} s, all shards again in {back:.1f} s")
