"""`bide adopt redis-list`: what is in a list is due now."""

import json

import pytest
import redis

from bide import Queue
from tests.adopt.reading import URL, everything
from tests.cli.running import Bide


@pytest.mark.parametrize(("end", "expected"), [("left", [0, 1, 1, 2]), ("right", [2, 1, 1, 0])])
def test_elements_come_in_the_order_in_which_consumers_took_them(
    bide: Bide, old: redis.Redis, redis_url: str, end: str, expected: list[int]
) -> None:
    old.rpush("ready", "0", "1", "1", "2", "{broken")
    ended = bide("adopt", "redis-list", "ready", "--topic", "t", "--end", end, "--source", redis_url)
    assert ended.code == 1
    assert "Left at the source: 1. An entry is not JSON, for example: {broken" in ended.out
    with Queue(URL) as queue:
        assert [each.body for each in queue.receive("t", limit=10)] == expected
    assert old.lrange("ready", 0, -1) == [b"{broken"]


@pytest.mark.parametrize("end", ["left", "right"])
def test_equal_elements_that_are_left_are_all_counted(bide: Bide, old: redis.Redis, redis_url: str, end: str) -> None:
    with Queue(URL) as queue:
        queue.send("t", "first", key="7", delay="1h")
    for number in range(700):
        old.rpush("ready", "{broken", f'{{"n":{number}}}', "{broken", '{"n":7}')
    command = ("adopt", "redis-list", "ready", "--topic", "t", "--key-field", "n", "--end", end, "--source", redis_url)
    told = json.loads(bide(*command, "--json").out)
    assert (told["adopted"], told["refused"]["is not JSON"], told["gone"]) == (699, 1_400, 0)
    assert sum(told["refused"].values()) == old.llen("ready") == 2_101


def test_ids_of_jobs_are_taken_with_their_jobs(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    for number in range(2_500):
        old.hset("JobPool", f"id-{number}", json.dumps({"order": number}))
    old.rpush("ready", *(f"id-{number}" for number in range(2_500)))
    ended = bide("adopt", "redis-list", "ready", "--job-hash", "JobPool", "--topic", "t", "--source", redis_url, "--json")
    assert json.loads(ended.out)["adopted"] == 2_500
    assert [each.body["order"] for each in everything("t")] == list(range(2_500))
    assert old.keys() == []


def test_elements_that_are_no_objects_may_become_some(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    old.rpush("ready", "42", '{"order":43}')
    assert bide("adopt", "redis-list", "ready", "--topic", "t", "--body-as", "order", "--source", redis_url).code == 0
    assert [each.body for each in everything("t")] == [{"order": 42}, {"order": 43}]
