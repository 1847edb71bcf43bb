"""`bide adopt bullmq`: jobs as BullMQ 6.7.0 stores them."""

import json
import math
from typing import Any

import redis

from tests.adopt.reading import everything
from tests.cli.running import Bide

DUE = 4_000_000_000_123


def add(old: redis.Redis, id: str, place: str, **fields: Any) -> None:
    """A job as addDelayedJob and addStandardJob write it."""
    stored: dict[Any, Any] = {"name": "welcome", "data": json.dumps({"user": id}), "opts": '{"attempts":0}'}
    old.hset(f"bull:mail:{id}", mapping=stored | {"priority": 0, "timestamp": 1, "delay": 0} | fields)
    if place == "wait":
        old.lpush("bull:mail:wait", id)
    else:
        old.zadd(f"bull:mail:{place}", {id: DUE * 4096 + old.zcard(f"bull:mail:{place}")})


def filled(old: redis.Redis) -> None:
    add(old, "1", "delayed", opts='{"backoff":{"delay":1000,"type":"exponential"},"delay":3600000,"attempts":5}', atm=2)
    add(old, "my:2", "delayed", deid="u2")
    add(old, "3", "wait")
    add(old, "4", "prioritized", priority=9)
    old.set("bull:mail:de:u2", "my:2")
    old.hset("bull:mail:meta", "version", "bullmq:6.7.0")


def test_delayed_jobs_become_messages_with_their_attempts_left(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    filled(old)
    ended = bide("adopt", "bullmq", "mail", "--topic", "mail", "--source", redis_url)
    assert (ended.code, ended.err) == (0, "")
    first, second = everything("mail")
    assert (first.due, first.max_attempts, first.body) == (DUE, 3, {"user": "1"})
    assert first.headers == {"bullmq-id": "1", "bullmq-name": "welcome", "bide-attempts": "3"}
    assert (second.due, second.max_attempts, second.headers["bullmq-id"]) == (DUE, 1, "my:2")
    left = {"bull:mail:3", "bull:mail:4", "bull:mail:meta", "bull:mail:prioritized", "bull:mail:wait"}
    assert {*map(bytes.decode, old.scan_iter())} == left


def test_jobs_that_are_due_are_adopted_if_asked(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    filled(old)
    command = ("adopt", "bullmq", "mail", "--topic-field", "name", "--key-field", "data.user", "--waiting")
    assert bide(*command, "--source", redis_url).code == 0
    found = everything("welcome")
    assert sorted(each.key or "" for each in found) == ["1", "3", "4", "my:2"]
    assert old.keys() == [b"bull:mail:meta"]


def test_data_that_is_no_object_may_become_one(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    add(old, "1", "delayed", data="42")
    assert bide("adopt", "bullmq", "mail", "--topic", "t", "--body-as", "order", "--source", redis_url).code == 0
    assert [each.body for each in everything("t")] == [{"order": 42}]


def test_jobs_of_schedulers_and_flows_stay(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    add(old, "repeat:every:1", "delayed", rjk="every")
    add(old, "5", "delayed", parentKey="bull:other:1")
    add(old, "6", "delayed")
    old.hset("bull:mail:6:processed", "bull:other:2", "{}")
    add(old, "7", "delayed")
    old.delete("bull:mail:7")
    ended = bide("adopt", "bullmq", "mail", "--topic", "mail", "--source", redis_url, "--json")
    assert ended.code == 1
    assert json.loads(ended.out)["refused"] == {
        "has no job: it was removed": 1,
        "is part of a flow": 2,
        "is the next one of a repeated job: make it a schedule of bide, and remove it in BullMQ": 1,
    }
    assert old.zcard("bull:mail:delayed") == 4


def test_a_job_of_another_type_and_a_score_that_is_no_time_hold_nothing_up(
    bide: Bide, old: redis.Redis, redis_url: str
) -> None:
    for id, score in (("1", math.inf), ("2", -math.inf), ("3", 1e300), ("4", DUE * 4096)):
        add(old, id, "delayed")
        old.zadd("bull:mail:delayed", {id: score})
    old.zadd("bull:mail:delayed", {"text": DUE * 4096})
    old.set("bull:mail:text", "x")
    ended = bide("adopt", "bullmq", "mail", "--topic", "mail", "--source", redis_url)
    assert (ended.code, [each.body for each in everything("mail")]) == (1, [{"user": "4"}])
    assert ended.out.splitlines()[1:] == [
        "Left at the source: 1. An entry has a job that is no hash, for example: text",
        "Left at the source: 2. An entry has a score that is no time, for example: 2",
        "Left at the source: 1. An entry is due in more than 36,525 days, for example: 3",
    ]
    assert (old.zcard("bull:mail:delayed"), old.get("bull:mail:text")) == (4, b"x")


def test_a_queue_that_bullmq_does_not_have_is_told_from_an_empty_one(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    filled(old)
    command = ("--topic", "mail", "--source", redis_url)
    for more in ((), ("--dry-run",)):
        ended = bide("adopt", "bullmq", "mial", *command, *more)
        assert ended.code == 1
        assert ended.err == f"bide: {redis_url} has no queue mial of BullMQ: check its name and --prefix.\n"
    old.delete("bull:mail:delayed")
    empty = bide("adopt", "bullmq", "mail", *command)
    assert (empty.code, empty.err) == (0, "Nothing waits there. Is the name right?\n")
