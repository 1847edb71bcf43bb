"""`confirm=replicas:1` in a Cluster whose shards have a replica each, one of which is dead: only its shard is not confirmed."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bide import AsyncQueue, ConfirmTimeout, Outgoing
from bide.engines.redis.topology import slot_of
from bide.types import Sent
from tests.redis.away import COLOURS, SHARDS, Either, engine_of, keys_of
from tests.servers.cluster import RedisCluster
from tests.servers.fixtures import NewCluster

EACH = 5  # messages of each shard
pytestmark = pytest.mark.timeout(120)


@pytest.mark.always
@pytest.mark.parametrize("colour", COLOURS)
async def test_each_send_gets_the_answer_of_its_own_shard(new_cluster: NewCluster, colour: str) -> None:
    cluster = new_cluster(SHARDS, 1)
    url = f"{cluster.url}?confirm=replicas:1&timeout=2"
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        keys = {shard: keys_of(shard, 3 * EACH) for shard in range(SHARDS)}
        some = [Outgoing(0, key=keys[shard].pop()) for shard in keys]
        assert all(each.created for each in await other.do("send_many", "t", some))
        cluster.kill(cluster.replica_of(cluster.node_of(slot_of((await engine_of(queue))._namespace.tag(2)))))

        singly = {shard: [other.begin("send", "t", 1, key=keys[shard].pop()) for _ in range(EACH)] for shard in keys}
        told = {shard: await asyncio.gather(*sends, return_exceptions=True) for shard, sends in singly.items()}
        assert [kinds(told[shard]) for shard in keys] == [{Sent}, {Sent}, {ConfirmTimeout}]

        together = [Outgoing(2, key=keys[shard].pop()) for shard in keys for _ in range(EACH)]
        with pytest.raises(ConfirmTimeout) as caught:
            await other.do("send_many", "t", together)
        answers = caught.value.answers
        assert (kinds(answers[: 2 * EACH]), kinds(answers[2 * EACH :])) == ({Sent}, {type(None)})

        keyless = await asyncio.gather(*[other.begin("send", "t", 3) for _ in range(EACH)], return_exceptions=True)
        assert kinds(keyless) <= {Sent, ConfirmTimeout}
        assert (await other.do("stats", "t")).ready == SHARDS * (1 + 2 * EACH) + EACH


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_shard_that_must_hear_first_how_messages_are_spread(
    masters: RedisCluster, masters_url: str, colour: str
) -> None:
    """That is not confirmed, either; what was asked for is done all the same."""
    url = f"{masters_url}&timeout=0.5"
    async with AsyncQueue(url) as queue, Either(f"{url}&confirm=replicas:1", colour) as other:
        before, key = keys_of(1, 2)
        with pytest.raises(ConfirmTimeout):
            await other.do("send", "t", 1, key=before)
        namespace = (await engine_of(queue))._namespace
        masters.node_of(slot_of(namespace.tag(1))).ask("HDEL", f"{namespace.prefix(1)}meta", "shards")
        with pytest.raises(ConfirmTimeout):
            await other.do("send", "t", 2, key=key)
        assert (await queue.stats("t")).ready == 2


def kinds(told: Sequence[Any]) -> set[type]:
    return {type(each) for each in told}
