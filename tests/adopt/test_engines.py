"""Adoption into each engine that outlives its process."""

import json
import time
from typing import Any

import pytest
import redis

from bide import Queue
from bide.adopt.adoption import Adoption
from bide.adopt.redis.plain import SortedSet
from bide.adopt.redis.server import SourceServer
from bide.adopt.shape import Shape
from tests.adopt.reading import everything
from tests.adopt.test_resuming import Killed, die, orders
from tests.cli.running import Bide

COUNT = 2_500


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "redis"])
def test_a_killed_run_is_resumed_and_nothing_is_there_twice(
    bide: Bide, old: redis.Redis, redis_url: str, engine: str, request: pytest.FixtureRequest
) -> None:
    url = "sqlite:///bide.db" if engine == "sqlite" else request.getfixturevalue(f"{engine}_url")
    old.zadd("delayed", {json.dumps({"order": number}): 4_000_000_000 + number for number in range(COUNT)})
    killed_in_finish(url, redis_url)
    ended = bide("adopt", "redis-zset", "delayed", "--topic", "t", "--source", redis_url, "--url", url, "--json")
    told = json.loads(ended.out)
    assert (ended.code, told["adopted"], told["resumed"]) == (0, COUNT, 2_000)
    assert orders(everything("t", url)) == list(range(COUNT))


def killed_in_finish(url: str, source_url: str) -> None:
    source: Any = SortedSet(SourceServer(source_url), "delayed", Shape(topic="t"))
    source.finish = die
    with Queue(url) as queue, pytest.raises(Killed):
        Adoption(source, queue).run(lambda _: None, lambda: False)
    source.close()


def test_rabbitmq_may_have_a_batch_twice_and_the_command_says_so(
    bide: Bide, old: redis.Redis, redis_url: str, rabbitmq_url: str
) -> None:
    past = time.time() - 60
    old.zadd("delayed", {json.dumps({"order": number}): past for number in range(10)})
    killed_in_finish(rabbitmq_url, redis_url)
    ended = bide("adopt", "redis-zset", "delayed", "--topic", "t", "--source", redis_url, "--url", rabbitmq_url)
    assert ended.out.splitlines()[1:] == [
        "10 of them had been taken by a run that was stopped.",
        "The queue remembers no operations: if that run had sent them already, they come twice.",
    ]


def test_rabbitmq_takes_what_has_no_key(bide: Bide, old: redis.Redis, redis_url: str, rabbitmq_url: str) -> None:
    past = time.time() - 60
    old.zadd("delayed", {json.dumps({"order": number}): past for number in range(COUNT)})
    command = ("adopt", "redis-zset", "delayed", "--topic", "t", "--source", redis_url, "--url", rabbitmq_url, "--json")
    assert json.loads(bide(*command).out)["adopted"] == COUNT
    seen: list[int] = []
    with Queue(rabbitmq_url) as queue:
        while len(seen) < COUNT:
            taken = queue.receive("t", limit=500, wait="30s")
            assert taken
            seen += [each.body["order"] for each in taken]
            queue.ack_many(taken)
    assert sorted(seen) == list(range(COUNT))
