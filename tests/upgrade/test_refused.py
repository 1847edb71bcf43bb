"""What the release before does not understand, it refuses, and changes nothing."""

import json
import re
from pathlib import Path

import pytest

from bide import Queue
from bide.engines.base import Settings
from bide.engines.redis import source
from bide.engines.redis.resharding import Resharding
from bide.prove import read
from tests.servers.cluster import RedisCluster
from tests.servers.fixtures import NewRedis
from tests.upgrade.judge import drained
from tests.upgrade.release import Release
from tests.worker.processes import until

SHARE = 500
UPDATE = re.compile(
    "SchemaMismatch: What is stored at .* has layout 4, and this release of bide reads layout 3: update bide, or "
)
ELSEWHERE = re.compile("EngineError: .* Nothing was changed.")  # its node sends callers to another one


def reshard(url: str, size: int) -> None:
    with Resharding(source(Settings(url=url, namespace="bide"))._namespace) as work:
        assert work.begin(size)


def test_a_queue_that_was_resharded_is_refused_with_every_verb(
    before: Release, now: Release, new_redis: NewRedis, tmp_path: Path
) -> None:
    url, path = new_redis().url, tmp_path / "told.json"
    before.do("send", url=url)
    held = before.do("hold", url=url, lease=0.2)
    with Queue(url) as queue:
        with before.busy("try_all", url=url, path=str(path)) as begin:
            reshard(url, 3)
            queue.send_many("new", list(range(9)))
            seen = counts(queue)
            begin()
        told = json.loads(path.read_text(encoding="utf-8"))
        assert {verb: error for verb, error in told.items() if not UPDATE.match(error)} == {}
        assert len(told) == 12
        for shards in ("", "?shards=1", "?shards=3", "?shards=4", "?shards=7"):
            assert UPDATE.match(before.do("use_as", url=url + shards))
        assert counts(queue) == seen
        back: set[str] = set()
        while not back >= set(held):  # what the release before has held comes back
            back |= {each.id for each in queue.receive("t", limit=100, wait=10)}
        assert counts(queue) == seen


def counts(queue: Queue) -> dict[str, int]:
    return {topic: each.pending + each.leased + each.dead for topic, each in queue.stats().topics.items()}


def test_programs_of_the_release_before_lose_nothing_when_the_queue_is_resharded_under_them(
    before: Release, now: Release, new_redis: NewRedis, tmp_path: Path
) -> None:
    url, folder = new_redis().url, tmp_path / "histories"
    folder.mkdir()
    common = {"url": url, "folder": str(folder), "share": SHARE}
    with (
        now.busy("crowd", name="now", seed=2, **common) as begin_now,
        before.busy("crowd", name="before", seed=1, **common) as begin_before,
        Queue(url) as queue,
    ):
        begin_before()
        begin_now()
        until(queue.topics)
        reshard(url, 3)
    report = drained(url, folder)
    assert report.valid is True, str(report)
    records = [record for path in folder.glob("before-producer-*.jsonl") for record in read(path)]
    assert 0 < sum(record.op == "send" and record.result == "ok" for record in records) < SHARE


def test_a_queue_whose_shards_are_named_for_a_proxy_is_refused(before: Release, now: Release, new_redis: NewRedis) -> None:
    url = f"{new_redis().url}?wake=poll&shards=3"
    now.do("send", url=url)
    seen = now.do("look", url=url)
    assert UPDATE.match(before.do("use_as", url=url))
    assert now.do("look", url=url) == seen


def test_a_queue_that_the_release_before_began_keeps_its_shards_behind_a_proxy(
    before: Release, now: Release, new_redis: NewRedis
) -> None:
    url = f"{new_redis().url}?wake=poll&shards=3"
    before.do("send", url=url)
    seen = before.do("look", url=url)
    assert now.do("look", url=url) == seen
    for n in range(9):
        now.do("send_one", url=url, topic="new", key=f"k{n}")
    assert len(before.do("look", url=url)["stored"]["new"]) == 9


@pytest.mark.parametrize(
    ("url", "options", "error"),
    [
        ("redis+cluster://127.0.0.1:1", {}, "UnknownEngine"),
        ("redis+sentinel://127.0.0.1:1/mymaster", {}, "UnknownEngine"),
        ("redis://127.0.0.1:1?confirm=replicas:1", {}, "BadUrl"),
        ("redis://127.0.0.1:1", {"confirm": "aof"}, "TypeError"),
    ],
)
def test_urls_and_options_that_came_later_are_refused_by_name(
    before: Release, url: str, options: dict[str, str], error: str
) -> None:
    told = before.do("use_as", url=url, **options)
    assert told.startswith(f"{error}: "), told


def test_a_queue_that_is_spread_over_a_cluster_is_refused_on_each_of_its_nodes(
    before: Release, now: Release, redis_cluster_url: str, redis_cluster: RedisCluster
) -> None:
    now.do("send", url=redis_cluster_url)
    seen = now.do("look", url=redis_cluster_url)
    for node in redis_cluster.nodes:
        for shards in ("", "?shards=3"):
            told = before.do("use_as", url=node.url + shards)
            assert UPDATE.match(told) or ELSEWHERE.match(told), told
    assert now.do("look", url=redis_cluster_url) == seen
