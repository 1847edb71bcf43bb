"""`bide doctor` on a Redis Cluster, and on a master that Sentinels watch: what they know, and each server."""

import re
import time
from typing import Any

import pytest
import redis
import redis.asyncio as aioredis
from redis.asyncio.sentinel import Sentinel as AioSentinel
from redis.sentinel import Sentinel

from bide import Finding, Queue
from bide.engines.redis.doctor import slots, visits
from bide.engines.redis.protocol.encoding import SPREAD
from bide.engines.redis.topology import slot_of
from tests.redis.test_doctor import NAMES, OF_CLUSTERS, OF_COPIES, OF_SENTINELS, run
from tests.servers.cluster import RedisCluster
from tests.servers.fixtures import NewCluster, NewSentinels
from tests.servers.redis import RedisServer
from tests.servers.sentinel import SentinelGroup

SOMETIMES = {"moving", "confirm", "versions"}  # told only where there is something to tell


def examined(url: str, **options: Any) -> dict[str, list[Finding]]:
    """All findings, by name."""
    found: dict[str, list[Finding]] = {}
    for each in Queue(url, **options).examine():
        found.setdefault(each.name, []).append(each)
    return found


def only(url: str, name: str, **options: Any) -> Finding:
    [found] = examined(url, **options)[name]
    return found


def seeds(group: RedisCluster | SentinelGroup) -> list[tuple[str, int]]:
    nodes: list[Any] = list(group.sentinels if isinstance(group, SentinelGroup) else group.nodes)
    return [("127.0.0.1", node.port) for node in nodes]


def dumps(*nodes: RedisServer) -> dict[bytes, bytes | None]:
    found: dict[bytes, bytes | None] = {}
    for node in nodes:
        with node.client() as client:
            found |= {key: client.dump(key) for key in client.scan_iter()}
    return found


# -- a Cluster


def test_a_cluster_is_described_and_not_changed(redis_cluster: RedisCluster, redis_cluster_url: str) -> None:
    masters = redis_cluster.masters()
    with Queue(redis_cluster_url) as queue:
        queue.send_many("t", range(3_000))
        before = dumps(*masters)
        told = examined(redis_cluster_url)
        assert dumps(*masters) == before
    assert told.keys() == (NAMES | OF_CLUSTERS | OF_COPIES) - SOMETIMES
    assert told["mode"] == [Finding("mode", "Redis Cluster, 3 masters, 3 replicas")]
    assert told["cluster"] == [Finding("cluster", "cluster_state:ok")]
    assert told["slots"] == [Finding("slots", "all 16,384 have a node")]
    assert told["nodes"] == [Finding("nodes", "6, all well")]
    assert told["layout"] == [Finding("layout", SPREAD)]
    assert told["eviction"] == [Finding("eviction", "noeviction")]  # equal on all, so told once
    assert told["rights"] == [Finding("rights", "all that a worker needs")]
    [shards] = told["shards"]
    assert shards.level == "ok"
    assert shards.value.startswith("3: ")
    assert all(f"on {node.host_and_port}" in shards.value for node in masters)
    places = [node.host_and_port for node in masters]
    counts = {each.where: int(each.value.partition(", about")[0].replace(",", "")) for each in told["messages"]}
    by_place = {place: count for where, count in counts.items() for place in (where.split(", ") if where else places)}
    assert by_place.keys() == set(places)
    assert sum(by_place.values()) == 3_000


def test_an_empty_cluster_stays_empty(redis_cluster: RedisCluster, redis_cluster_url: str) -> None:
    told = examined(redis_cluster_url)
    assert told["layout"] == [Finding("layout", "nothing is there yet: it is made on first use")]
    assert told["shards"][0].value.startswith("3: ")
    assert dumps(*redis_cluster.masters()) == {}


def test_the_queue_still_learns_how_a_cluster_is_spread(redis_cluster_url: str) -> None:
    with Queue(redis_cluster_url + "?shards=2") as queue:
        queue.send("t", 1)
    queue = Queue(redis_cluster_url)
    assert next(each for each in queue.examine() if each.name == "shards").value.startswith("2: ")
    with queue:
        assert queue.stats("t").ready == 1


def test_what_the_doctor_expects_of_an_empty_cluster_binds_nobody(redis_cluster_url: str) -> None:
    queue = Queue(redis_cluster_url)
    assert next(each for each in queue.examine() if each.name == "shards").value.startswith("3: ")
    with Queue(redis_cluster_url + "?shards=2") as other:
        other.send("t", 1)
    with queue:
        queue.send("t", 2)
        assert queue.stats("t").ready == 2


def test_another_number_of_shards_than_the_stored_one_is_bad(redis_cluster_url: str) -> None:
    with Queue(redis_cluster_url) as queue:
        queue.send("t", 1)
    told = examined(redis_cluster_url + "?shards=5")["shards"]
    assert [each.level for each in told] == ["bad", "ok"]
    assert "write shards=3 in the URL" in told[0].advice


def test_a_master_with_more_than_its_share_is_told(redis_cluster: RedisCluster, redis_cluster_url: str) -> None:
    slot = slot_of("bide:0")
    owner = redis_cluster.node_of(slot)
    [other, *_] = [node for node in redis_cluster.masters() if node is not owner]
    with Queue(redis_cluster_url) as queue:
        queue.send_many("t", range(30))
    try:
        redis_cluster.migrate(slot, other).finish()
        told = only(redis_cluster_url, "shards")
    finally:
        redis_cluster.migrate(slot, owner).finish()
    assert told.level == "warn"
    assert f"{other.host_and_port} does more than its share" in told.advice
    assert f"to {owner.host_and_port} (`redis-cli --cluster reshard`)" in told.advice


def test_a_slot_that_was_left_half_moved_is_named(redis_cluster: RedisCluster, redis_cluster_url: str) -> None:
    """Also that of the first shard, whose keys say how the others are spread."""
    slot = slot_of("bide:0")
    owner = redis_cluster.node_of(slot)
    [other, *_] = [node for node in redis_cluster.masters() if node is not owner]
    with Queue(redis_cluster_url) as queue:
        queue.send_many("t", range(300))
    with redis_cluster.migrate(slot, other, keys_at_once=2) as migration:
        migration.until("moved")
        told = examined(redis_cluster_url)
        left = migration.keys_left()
    try:
        [moving] = told["moving"]
        assert moving.level == "bad"
        place = f"from {owner.host_and_port} to {other.host_and_port}"
        assert moving.value == f"slot {slot} of shard 0 is MIGRATING {place}, and none of {left:,} keys went in 1 s"
        assert f"`redis-cli --cluster fix {owner.host_and_port}`" in moving.advice
        assert told["shards"][0].value.startswith("3: ")
        assert "moving" not in examined(redis_cluster_url)
    finally:
        redis_cluster.migrate(slot, owner).finish()


def test_a_slot_that_goes_on_moving_is_no_fault(
    redis_cluster: RedisCluster, redis_cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = slot_of("bide:0")
    owner = redis_cluster.node_of(slot)
    [other, *_] = [node for node in redis_cluster.masters() if node is not owner]
    with Queue(redis_cluster_url) as queue:
        queue.send_many("t", range(300))
    with redis_cluster.migrate(slot, other, keys_at_once=1) as migration:
        migration.until("migrating")
        monkeypatch.setattr(slots, "PAUSE", 0)
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(time, "sleep", lambda _: migration.until("moved"))
            told = only(redis_cluster_url, "moving")
    redis_cluster.migrate(slot, owner).finish()
    assert told.level == "warn"
    assert told.advice == "its shard waits until they are there"


def test_a_slot_that_nobody_gives_is_named_and_slots_of_others_are_not(
    redis_cluster: RedisCluster, redis_cluster_url: str
) -> None:
    slot = slot_of("bide:0")
    owner = redis_cluster.node_of(slot)
    [other, *_] = [node for node in redis_cluster.masters() if node is not owner]
    for each in (slot, slot + 1):
        other.ask("CLUSTER", "SETSLOT", each, "IMPORTING", redis_cluster.node_of(each).id)
    try:
        told = only(redis_cluster_url, "moving")
    finally:
        for each in (slot, slot + 1):
            other.ask("CLUSTER", "SETSLOT", each, "STABLE")
    assert told.level == "warn"
    assert told.value == f"slot {slot} of shard 0 is IMPORTING on {other.host_and_port}, and no node gives it"


def test_a_cluster_that_lacks_slots_and_a_node_that_fails_are_told(new_cluster: NewCluster) -> None:
    cluster = new_cluster(masters=3, replicas=0)
    with Queue(cluster.url) as queue:
        queue.send("t", 1)
    assert only(cluster.url, "replicas").level == "warn"  # no master has one
    dead, *others = cluster.masters()
    cluster.kill(dead)
    for node in others:
        cluster.wait_until_down(node)
    told = examined(cluster.url)
    assert told["cluster"][0].level == "bad"
    assert {each.level for each in told["nodes"]} == {"bad"}
    assert any(f"{dead.host_and_port} fails" in each.value for each in told["nodes"])


def test_slots_without_a_node_are_named(new_cluster: NewCluster) -> None:
    cluster = new_cluster(masters=3, replicas=0)
    cluster.take_away([0, *range(12_000, 12_010)])
    told = only(cluster.url, "slots")
    assert (told.value, told.level) == ("no node has 0, 12000-12009", "bad")


@pytest.mark.always
def test_a_frozen_node_does_not_hold_the_doctor_up(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    with Queue(cluster.url) as queue:
        queue.send("t", 1)
    frozen = [cluster.nodes[0], cluster.nodes[4]]
    for node in frozen:
        cluster.freeze(node)
    told = examined(cluster.url)
    lost = [each.value for each in told["nodes"] if "can't be reached" in each.value]
    assert {value.partition(" ")[0] for value in lost} <= {node.host_and_port for node in frozen}
    assert len(lost) == 2
    assert told["eviction"] == [Finding("eviction", "noeviction")]  # on all that can be asked


@pytest.mark.parametrize("url", ["redis_cluster_url", "redis_sentinels_url"])
def test_servers_that_are_slow_in_everything_are_given_up(
    url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visits, "LIMIT", 0.0)
    told = Queue(request.getfixturevalue(url)).examine()
    assert {each.name for each in told} == {"server"}
    assert all("the questions took too long" in each.value for each in told)


def test_a_client_of_a_cluster_is_examined(redis_cluster: RedisCluster, redis_cluster_url: str) -> None:
    host, port = seeds(redis_cluster)[0]
    with redis.RedisCluster(host=host, port=port) as client:
        assert only("redis://", "mode", client=client).value == "Redis Cluster, 3 masters, 3 replicas"
    assert only("redis://", "mode", client=aioredis.RedisCluster(host=host, port=port)).level == "ok"


def test_no_cluster_at_a_url_of_one(redis_server: RedisServer, redis_url: str, redis_sentinels: SentinelGroup) -> None:
    [told] = Queue(f"redis+cluster://127.0.0.1:{redis_server.port}").examine()
    assert told.level == "bad"
    assert f"write redis://127.0.0.1:{redis_server.port}/0" in told.advice
    [told] = Queue(f"redis+cluster://{redis_sentinels.sentinels[0].host_and_port}").examine()
    assert "redis+sentinel://" in told.advice


# -- Sentinels


def test_a_group_is_described_and_not_changed(redis_sentinels: SentinelGroup, redis_sentinels_url: str) -> None:
    master = redis_sentinels.master()
    with Queue(redis_sentinels_url) as queue:
        queue.send_many("t", range(100))
        before = dumps(master)
        told = examined(redis_sentinels_url)
        assert dumps(master) == before
    assert told.keys() == (NAMES | OF_SENTINELS | OF_COPIES) - SOMETIMES
    assert told["mode"] == [Finding("mode", "the master of mymaster, watched by 3 Sentinels")]
    assert told["sentinels"] == [Finding("sentinels", "3 of 3 answer")]
    assert told["master"] == [Finding("master", f"{master.address}:{master.port}, as all say")]
    assert told["quorum"] == [Finding("quorum", "enough for a failover")]
    assert told["nodes"] == [Finding("nodes", "2 replicas known to the Sentinels")]
    assert told["messages"][0].value.startswith("100, about ")


def test_a_long_down_after_is_told_beside_the_time_that_calls_wait(new_sentinels: NewSentinels) -> None:
    group = new_sentinels(replicas=1, sentinels=1, down_after_milliseconds=20_000)
    told = only(group.url, "down-after")
    assert (told.value, told.level) == ("20s", "warn")
    assert "calls fail after 15s" in told.advice
    assert only(group.url + "?timeout=10", "down-after").level == "ok"
    assert "there should be 3 or more" in only(group.url, "sentinels").advice


def test_sentinels_that_are_away_are_named_and_the_quorum_is_missed(new_sentinels: NewSentinels) -> None:
    group = new_sentinels(replicas=1)
    stays, *others = group.sentinels
    for each in others:
        group.kill(each)
    while len([row for row in stays.rows("SENTINELS", group.service) if "s_down" in row["flags"]]) < 2:
        stays.ask("PING")
    told = examined(group.url)
    [sentinels], [quorum] = told["sentinels"], told["quorum"]
    assert (sentinels.level, sentinels.value.partition(";")[0]) == ("bad", "1 of 3 answer")
    assert all(f"{each.host_and_port} can't be reached" in sentinels.value for each in others)
    assert quorum.level == "bad"
    assert f"{stays.host_and_port}: NOQUORUM" in quorum.value


def test_a_master_that_is_cut_off_and_sentinels_that_disagree_are_told(new_sentinels: NewSentinels) -> None:
    group = new_sentinels()
    old = group.master()
    group.cut_off(old, group.sentinels[0])
    new = group.wait_for_promotion(old)
    told = examined(group.url)
    [master] = told["master"]
    assert master.level == "bad"
    assert f"{old.address}:{old.port} by {group.sentinels[0].host_and_port}" in master.value
    assert f"{new.address}:{new.port} by " in master.value
    assert only(group.url, "server").level == "ok"


def test_replicas_that_are_gone_are_named(new_sentinels: NewSentinels) -> None:
    group = new_sentinels(replicas=1)
    [replica] = group.replicas()
    group.kill(replica)
    while not any("s_down" in row["flags"] for row in group.sentinels[0].rows("REPLICAS", group.service)):
        group.sentinels[0].ask("PING")
    told = examined(group.url)
    assert any("down: " in each.value and str(replica.port) in each.value for each in told["nodes"])
    assert (told["replicas"][0].value, told["replicas"][0].level) == ("0", "warn")
    assert any("can't be reached from here" in each.value for each in told["copies"])


def test_an_unknown_service_and_no_sentinel(
    redis_sentinels: SentinelGroup, redis_sentinels_url: str, redis_server: RedisServer
) -> None:
    [told] = Queue(redis_sentinels_url.replace("/mymaster", "/other")).examine()
    assert told.level == "bad"
    assert told.advice == "correct the URL: known are mymaster"
    [told] = Queue(f"redis+sentinel://127.0.0.1:{redis_server.port}/mymaster").examine()
    assert "names a server that is no Sentinel" in told.advice
    told = only(redis_sentinels.sentinels[0].url, "mode")
    assert told.level == "bad"
    assert f"write redis+sentinel://{redis_sentinels.sentinels[0].host_and_port}/mymaster" in told.advice


def test_a_password_that_the_sentinels_refuse_is_told_from_that_of_the_master(redis_sentinels: SentinelGroup) -> None:
    found = examined(f"{redis_sentinels.url}?sentinel_username=nobody&sentinel_password=geheim")["server"]
    assert len(found) == len(redis_sentinels.sentinels)
    for told in found:
        assert told.level == "bad"
        assert "write sentinel_password=…" in told.advice
        assert "geheim" not in told.value


def test_clients_of_sentinels_are_examined(redis_sentinels: SentinelGroup, redis_sentinels_url: str) -> None:
    kinds: list[Any] = [Sentinel, AioSentinel]
    for client in [kind(seeds(redis_sentinels)).master_for("mymaster") for kind in kinds]:
        told = examined("redis://", client=client)
        assert told["mode"] == [Finding("mode", "the master of mymaster, watched by 3 Sentinels")]
        assert told["quorum"][0].level == "ok"
        assert told["messages"] == [Finding("messages", "0")]


def test_a_group_with_passwords_shows_none_of_them(new_sentinels: NewSentinels) -> None:
    group = new_sentinels(replicas=1, sentinels=1, requirepass="geheim")
    url = group.url.replace("://", "://:geheim@")
    assert only(url, "layout").level == "ok"
    wrong = run("--url", url.replace("geheim", "falsch"))
    assert wrong.returncode == 1
    assert "refused the user or the password" in wrong.stdout
    assert "falsch" not in wrong.stdout + wrong.stderr


def test_the_table_names_the_servers(redis_cluster: RedisCluster, redis_cluster_url: str) -> None:
    with Queue(redis_cluster_url) as queue:
        queue.send("t", 1)  # to one of the shards
    told = run("--url", redis_cluster_url).stdout
    assert "Redis Cluster, 3 masters, 3 replicas" in told
    places = "|".join(re.escape(node.host_and_port) for node in redis_cluster.masters())
    assert re.search(rf"^messages +({places}): 1, about ", told, re.MULTILINE)
    assert re.search(rf"^messages +({places}), ({places}): 0$", told, re.MULTILINE)
