"""`confirm=replicas:1` in a namespace that is new while a replica is away: what is done is told as done, and only that."""

import contextlib
from collections.abc import Iterator

import pytest

from bide import AsyncQueue, ConfirmTimeout, OutcomeUnknown, Outgoing
from bide.engines.redis.topology import slot_of
from bide.types import Sent
from tests.redis.away import COLOURS, SHARDS, Either, engine_of, keys_of
from tests.redis.test_confirm_apart import kinds
from tests.redis.test_sweeps_away import back, place_of
from tests.servers.cluster import RedisCluster

both_colours = pytest.mark.parametrize("colour", COLOURS)
pytestmark = pytest.mark.timeout(120)
names = iter(map("fresh{}".format, range(1_000)))


@pytest.fixture(params=["alone", "in three shards", "in a Cluster"])
def plain(request: pytest.FixtureRequest) -> str:
    """A new namespace of servers without replicas."""
    if request.param == "in a Cluster":
        return f"{request.getfixturevalue('masters_url')}&timeout=0.5"
    shards = SHARDS if request.param == "in three shards" else 1
    return f"{request.getfixturevalue('redis_url')}?shards={shards}&timeout=0.5"


@both_colours
async def test_each_send_is_done(plain: str, colour: str) -> None:
    async with Either(f"{plain}&confirm=replicas:1", colour) as other, AsyncQueue(plain) as queue:
        for shard in range(SHARDS):
            with pytest.raises(ConfirmTimeout):
                await other.do("send", "t", shard, key=keys_of(shard, 1)[0])
        with pytest.raises(ConfirmTimeout):
            await other.do("send", "t", 3)
        assert (await queue.stats("t")).ready == SHARDS + 1


@both_colours
async def test_what_is_sent_later_is_sent(plain: str, colour: str) -> None:
    async with Either(f"{plain}&confirm=replicas:1", colour) as other:
        for n in range(5):
            other.queue.later("t", n)
        told = await other.do("flush")
    async with AsyncQueue(plain) as queue:
        assert (await queue.stats("t")).ready == told.sent == 5


@both_colours
async def test_a_topic_is_paused_and_resumed(plain: str, colour: str) -> None:
    async with Either(f"{plain}&confirm=replicas:1", colour) as other, AsyncQueue(plain) as queue:
        for verb in ("pause", "resume"):
            with pytest.raises(ConfirmTimeout, match="has done it, but did not confirm it"):
                await other.do(verb, "t")
            assert (await queue.stats("t")).paused is (verb == "pause")
            await queue.send_many("t", [Outgoing(0, key=key) for shard in range(SHARDS) for key in keys_of(shard, 1)])
            assert len(await queue.receive("t", limit=9)) == (SHARDS if verb == "resume" else 0)


@contextlib.contextmanager
def replica_away(group: RedisCluster, tag: str) -> Iterator[None]:
    replica = group.replica_of(group.node_of(slot_of(tag)))
    group.freeze(replica)
    try:
        yield
    finally:
        group.thaw(replica)


@both_colours
async def test_the_other_shards_confirm(group: RedisCluster, colour: str) -> None:
    namespace = next(names)
    with replica_away(group, f"{namespace}:0"):
        async with Either(f"{group.url}?namespace={namespace}&timeout=1&confirm=replicas:1", colour) as other:
            told = []
            for shard in range(SHARDS):
                try:
                    told.append(await other.do("send", "t", shard, key=keys_of(shard, 1)[0]))
                except ConfirmTimeout as error:
                    told.append(error)
            assert [kinds([each]) for each in told] == [{ConfirmTimeout}, {Sent}, {Sent}]
            assert (await other.do("stats", "t")).ready == SHARDS


@both_colours
async def test_what_is_lost_and_what_is_not_confirmed_are_told_apart(group: RedisCluster, colour: str) -> None:
    url = f"{group.url}?namespace={next(names)}&timeout=1"
    async with AsyncQueue(url) as queue, Either(f"{url}&confirm=replicas:1", colour) as other:
        keys = [keys_of(shard, 2)[0] for shard in range(SHARDS)]
        await queue.send_many("t", [Outgoing(0, key=key, delay="1h") for key in keys])
        await other.do("stats")
        place = await place_of(group, queue, 2)
        tag = (await engine_of(queue))._namespace.tag
        master = group.node_of(slot_of(tag(2)))
        with replica_away(group, tag(1)):
            group.freeze(master)
            try:
                with pytest.raises(OutcomeUnknown, match=f"perhaps not everywhere: {place} did not answer") as lost:
                    await other.do("pause", "t")
                assert not isinstance(lost.value, ConfirmTimeout)
                some = [Outgoing(1, key=keys_of(shard, 2)[1]) for shard in (1, 2)]
                with pytest.raises(OutcomeUnknown, match=place) as lost:
                    await other.do("send_many", "t", some)
                assert not isinstance(lost.value, ConfirmTimeout)
                assert "others of the batch were done, though not all of them are confirmed" in str(lost.value)
            finally:
                group.thaw(master)
        await back(other)
