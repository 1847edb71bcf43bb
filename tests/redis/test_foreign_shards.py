"""Messages sent by the script of `bide script send` to several shards: a key has one message, whoever sends."""

import re
from collections import Counter
from collections.abc import Iterator

import pytest
import redis.exceptions as theirs

from bide import Queue
from bide.engines.base import NewMessage
from bide.engines.redis.protocol.encoding import name_of
from bide.engines.redis.resharding import Resharding
from bide.engines.redis.topology import slot_of
from bide.testing.contract.bench import Bench
from tests.redis.foreign import WITH_TIME, Foreign, arguments, client_of
from tests.redis.keyspace import bench_at, held, shop
from tests.redis.test_reshard import KEYS, forgetful, reshard, shards_of
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer

__all__ = ["forgetful"]
OTHER = re.compile(r"OTHERSHARD (\S+) (\S+) This message belongs to another shard: call again with these two keys\.")


@pytest.fixture
def foreign(redis_server: RedisServer) -> Iterator[Foreign]:
    with redis_server.client() as client:
        yield Foreign(client, "shop", WITH_TIME)


def keys_of(shard: int, rest: str = "", namespace: str = "shop") -> tuple[str, str]:
    return f"{{{namespace}:{shard}}}:meta", f"{{{namespace}:{shard}}}:-{rest}"


def put(foreign: Foreign, bench: Bench, **what: object) -> tuple[str, str]:
    """Its id and outcome."""
    id, _, outcome = foreign.send(*arguments(NewMessage("t", b"x", **what), bench.now))  # type: ignore[arg-type]
    return id.decode(), outcome.decode()


async def test_a_key_and_an_operation_have_the_shard_that_python_gives_them(redis_url: str, foreign: Foreign) -> None:
    async with bench_at(f"{redis_url}?shards=3") as bench:
        await bench.put("t", key="first")
        for key in KEYS:
            by_script = put(foreign, bench, key=key)
            assert foreign.calls == (1 if shards_of([by_script[0]]) == {0} else 2)
            assert (await bench.put("t", key=key)).id == by_script[0]
            by_python = await bench.put("t", key=f"other {key}")
            assert put(foreign, bench, key=f"other {key}") == (by_python.id, "kept")
            once = await bench.put("t", operation=key)
            assert put(foreign, bench, operation=key) == (once.id, "created")
        assert shards_of([each.id for each in await bench.stored("t")]) == {0, 1, 2}


async def test_a_shard_that_a_key_does_not_belong_to_refuses_it_and_names_the_right_one(
    redis_url: str, foreign: Foreign, redis_server: RedisServer
) -> None:
    async with bench_at(f"{redis_url}?shards=3") as bench:
        sent = {key: (await bench.put("t", key=key)).id for key in KEYS}
        for key, id in sent.items():
            right = name_of(id).shard
            with redis_server.client() as client:
                before = held(client)
                for wrong in {0, 1, 2} - {right}:
                    with pytest.raises(theirs.ResponseError, match=OTHER.pattern) as error:
                        foreign.call(keys_of(wrong), *arguments(NewMessage("t", b"x", key=key, if_exists="replace"), bench.now))
                    found = OTHER.match(str(error.value))
                    assert found
                    assert found.groups() == keys_of(right, "0=3")
                assert held(client) == before


async def test_what_has_no_name_is_taken_by_the_shard_that_is_called(redis_url: str, foreign: Foreign) -> None:
    async with bench_at(f"{redis_url}?shards=3") as bench:
        await bench.put_all(*[NewMessage("t", b"x", key=key) for key in KEYS])
        for shard in (0, 1, 2):
            id, *_ = foreign.call(keys_of(shard), "t", "1")
            assert shards_of([id.decode()]) == {shard}


@pytest.mark.parametrize("shard", ["3", "7", "1.5", "127"])
async def test_a_shard_that_there_is_not_sends_on_to_one_that_is_there(redis_url: str, foreign: Foreign, shard: str) -> None:
    async with bench_at(f"{redis_url}?shards=3") as bench:
        await bench.put_all(*[NewMessage("t", b"x", key=key) for key in KEYS])
        before = await bench.stored("t")
        foreign.first = (f"{{shop:{shard}}}:meta", f"{{shop:{shard}}}:-")
        for key in KEYS:
            assert put(foreign, bench, key=key)[1] == "kept"
        assert await bench.stored("t") == before
        assert put(foreign, bench)[1] == "created"


async def test_shards_that_nobody_used_yet_are_told_of_the_others(
    redis_url: str, foreign: Foreign, redis_server: RedisServer
) -> None:
    async with bench_at(f"{redis_url}?shards=3") as bench, bench_at(f"{redis_url}?shards=2", now=bench.now) as other:
        for key in KEYS:
            foreign.send("t", "1", "key", key, "shards", 3)
        with redis_server.client() as client:
            assert [client.hmget(f"{{shop:{n}}}:meta", "layout", "shards") for n in range(3)] == [[b"3", b"3"]] * 3
        assert len(await bench.stored("t")) == len(KEYS)
        with pytest.raises(Exception, match="are spread over 3 shards"):
            await other.put("t")


async def test_a_key_has_one_message_in_old_shards_and_new_ones(redis_url: str, foreign: Foreign) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url) as bench:
        old = {key: (await bench.put("t", b"old", key=key, delay=5_000)).id for key in KEYS}
        reshard(url, 4)
        for key, id in old.items():
            assert put(foreign, bench, key=key) == (id, "kept")
            assert put(foreign, bench, key=key, if_exists="replace", delay=7_000) == (id, "replaced")
            with pytest.raises(theirs.ResponseError, match=f"EXISTS {id} "):
                put(foreign, bench, key=key, if_exists="error")
        for key in KEYS:
            await bench.cancel(topic="t", key=key)
        new = {key: put(foreign, bench, key=key)[0] for key in KEYS}
        assert shards_of(list(new.values())) <= {3, 4, 5, 6}
        assert {key: (await bench.put("t", key=key)).id for key in KEYS} == new
        assert {key: put(foreign, bench, key=key)[0] for key in KEYS} == new
        assert Counter(each.id for each in await bench.stored("t")) == Counter(new.values())
        assert shards_of([put(foreign, bench)[0] for _ in range(40)]) == {3, 4, 5, 6}


async def test_the_successor_of_a_running_message_goes_to_a_new_shard(redis_url: str, foreign: Foreign) -> None:
    url = f"{redis_url}?shards=2"
    async with bench_at(url) as bench:
        running = await bench.running("t", key="k")
        reshard(url, 3)
        assert put(foreign, bench, key="k") == (running.id, "kept")
        id, outcome = put(foreign, bench, key="k", if_exists="replace")
        assert outcome == "created"
        assert shards_of([id]) <= {2, 3, 4}
        assert (await bench.put("t", key="k")).id == id
        assert await bench.end(running, "retry") == "scheduled"
        assert put(foreign, bench, key="k") == (id, "kept")


async def test_what_was_sent_before_is_not_sent_again_by_its_operation(redis_url: str, foreign: Foreign) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url) as bench:
        await bench.put("first")
        names = [f"operation {n}" for n in range(9)]
        before = [put(foreign, bench, operation=name) for name in names]
        reshard(url, 5)
        assert [put(foreign, bench, operation=name) for name in names] == before
        reshard(url, 2)
        assert [put(foreign, bench, operation=name) for name in names] == before
        new = put(foreign, bench, operation="new")
        assert shards_of([new[0]]) <= {8, 9}
        assert (await bench.put("t", operation="new")).id == new[0]
        assert len(await bench.stored("t")) == 10


async def test_when_a_reshard_was_broken_off_it_tells_the_old_shards_before_it_goes_by_it(
    redis_url: str, foreign: Foreign, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url) as bench, bench_at(url) as late:
        old = [(await bench.put("t", key=key)).id for key in KEYS]
        with monkeypatch.context() as patch, Resharding(shop(url)._namespace) as work:
            patch.setattr(work, "_tell_all", lambda shards: work._shards.anchor.calls.pin())
            work.begin(4)
        assert [put(foreign, bench, key=key) for key in KEYS] == [(id, "kept") for id in old]
        with redis_server.client() as client:
            for number in range(3):
                layout, shards, since = client.hmget(f"{{shop:{number}}}:meta", "layout", "shards", "respread")
                assert (layout, shards) == (b"4", b"1:3|4@3")
                assert number == 0 or int(since or 0) > 0
        new = put(foreign, bench, key="new")
        assert shards_of([new[0]]) <= {3, 4, 5, 6}
        # Then one who has not heard of it meets an old shard that has, and does not send it a second time
        assert (await late.put("t", key="new")).id == new[0]


async def test_keys_that_a_caller_kept_from_before_a_reshard_are_still_good(
    redis_url: str, foreign: Foreign, redis_server: RedisServer, forgetful: None
) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, now=0) as bench:
        await bench.put_all(*[NewMessage("t", b"x", key=key) for key in KEYS])
        kept = keys_of(1, "0=3")
        reshard(url, 4)
        foreign.first = kept
        assert put(foreign, bench, key=KEYS[0])[1] == "kept"
        for _ in range(4):
            for each in await bench.claim("t", limit=100):
                assert await bench.end(each, "done") == "done"
        with Resharding(shop(redis_url)._namespace) as work:
            assert work.step() is None
        for first in (kept, keys_of(0), keys_of(2), keys_of(5)):
            foreign.first = first
            ids = [put(foreign, bench, key=f"{first} {key}")[0] for key in KEYS]
            assert shards_of(ids) <= {3, 4, 5, 6}
            assert [(await bench.put("t", key=f"{first} {key}")).id for key in KEYS] == ids


async def test_a_client_of_a_cluster_is_led_to_the_right_node(redis_cluster_url: str) -> None:
    async with bench_at(redis_cluster_url) as bench:
        await bench.put("t", key="first")
        client = client_of(redis_cluster_url)
        foreign = Foreign(client, "shop", WITH_TIME)
        sent = {key: put(foreign, bench, key=key)[0] for key in KEYS}
        assert shards_of(list(sent.values())) == {0, 1, 2}
        assert {key: (await bench.put("t", key=key)).id for key in KEYS} == sent
        reshard(redis_cluster_url, 4)
        assert {key: put(foreign, bench, key=key)[0] for key in KEYS} == sent
        new = {key: put(foreign, bench, key=f"new {key}")[0] for key in KEYS}
        assert shards_of(list(new.values())) <= {3, 4, 5, 6}
        assert {key: (await bench.put("t", key=f"new {key}")).id for key in KEYS} == new
        client.close()


def test_while_a_slot_moves_nothing_is_done_by_halves(redis_cluster: RedisCluster, redis_cluster_url: str) -> None:
    slot = slot_of("bide:0")
    owner = redis_cluster.node_of(slot)
    [other, *_] = [node for node in redis_cluster.masters() if node is not owner]
    with Queue(redis_cluster_url + "?shards=1") as queue:
        queue.send_many("t", range(300), operation="a")
        refusals = []
        with redis_cluster.migrate(slot, other, keys_at_once=1) as migration:
            for stage in migration:
                if stage != "moved":
                    continue
                for node, first in ((owner, ()), (other, ("ASKING",))):  # as a client does that was told to ask there
                    with node.client() as client, client.pipeline(transaction=False) as calls:
                        calls.execute_command(*first or ("PING",))
                        Foreign(calls).call(keys_of(0, namespace="bide"), "t", "1")
                        with pytest.raises(theirs.ResponseError) as refused:
                            calls.execute()
                        refusals.append(str(refused.value))
        try:
            assert {"Multiple"} == {each.partition("caused error: ")[2].split(" ")[0] for each in refusals[1::2]}
            assert len(refusals) >= 6
            assert queue.stats("t").ready == 300
            with other.client() as client:
                Foreign(client).send("t", "1")
            assert queue.stats("t").ready == 301
        finally:
            redis_cluster.migrate(slot, owner).finish()
