"""`bide adopt rq`: scheduled jobs become messages, and nothing is unpickled."""

import json
import pickle
import time
import zlib
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from bide import Queue
from bide.adopt.adoption import Adoption
from bide.adopt.redis.rq import _Jobs, rq
from bide.adopt.redis.server import SourceServer
from bide.adopt.shape import Shape, TaskShape
from bide.core.times import MAX_DELAY_MS
from tests.adopt.reading import URL, everything
from tests.cli.running import Bide

COMMAND = ("adopt", "rq", "mail", "--args", "shop.cancel=order", "--topic", "t", "--json")


def by_pickle(value: Any) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def by_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def job(client: redis.Redis, known: str, call: Any, *, serializer: Any = by_pickle, at: int | None = None, **more: Any) -> None:
    """A job as RQ 2.12 stores it: scheduled, or in the queue."""
    data: Any = {
        "status": "queued" if at is None else "scheduled",
        "created_at": "2026-11-24T22:59:44.676852Z",
        "data": zlib.compress(serializer(call)),
        **dict.fromkeys(("success_callback_name", "failure_callback_name", "stopped_callback_name", "started_at"), ""),
        **dict.fromkeys(("ended_at", "last_heartbeat", "worker_name", "group_id"), ""),
        "origin": "mail",
        "description": "shop.cancel(…)",
        "timeout": "180",
        **more,
    }
    client.hset(f"rq:job:{known}", mapping=data)
    client.sadd("rq:queues", "rq:queue:mail")
    if at is None:
        client.rpush("rq:queue:mail", known)
    else:
        client.zadd("rq:scheduled:mail", {known: at})


def soon(seconds: int = 3_600) -> int:
    return int(time.time()) + seconds


@pytest.mark.parametrize("serializer", [by_pickle, by_json])
def test_scheduled_jobs_become_messages(bide: Bide, old: redis.Redis, redis_url: str, serializer: Any) -> None:
    at = soon()
    for number in range(1_100):
        call = ("shop.cancel", None, (number,), {"why": "é", "tags": ["a", "a"]})
        meta = serializer({"tenant": "7"})
        job(old, f"job-{number}", call, serializer=serializer, at=at, retries_left=3, retry_intervals="[10]", meta=meta, ttl=60)
    ended = bide(*COMMAND, "--source", redis_url)
    assert (ended.code, ended.err, json.loads(ended.out)["adopted"]) == (0, "", 1_100)
    found = {each.key: each for each in everything("t")}
    assert len(found) == 1_100
    one = found["job-42"]
    assert one.body == {"order": 42, "why": "é", "tags": ["a", "a"]}
    assert (one.due, one.max_attempts, one.expires) == (at * 1_000, 4, at * 1_000 + 60_000)
    assert one.headers == {"rq-id": "job-42", "rq-meta": '{"tenant":"7"}'}
    assert old.keys() == [b"rq:queues"]


def test_queued_jobs_stay_unless_they_are_asked_for(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    job(old, "one", ("shop.cancel", None, (1,), {}))
    assert json.loads(bide(*COMMAND, "--source", redis_url).out)["adopted"] == 0
    assert json.loads(bide(*COMMAND, "--queued", "--source", redis_url).out)["adopted"] == 1
    assert not old.exists("rq:queue:mail", "rq:job:one")


def test_what_a_living_scheduler_may_have_read_is_left_to_it(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    job(old, "near", ("shop.cancel", None, (1,), {}), at=soon(30))
    job(old, "far", ("shop.cancel", None, (2,), {}), at=soon())
    old.set("rq:scheduler-lock:mail", 1)
    assert json.loads(bide(*COMMAND, "--source", redis_url).out) | {"gone": 0} == {
        **dict.fromkeys(("resumed", "gone", "given_back", "forgotten", "held"), 0),
        "adopted": 1,
        "refused": {},
    }
    assert old.zrange("rq:scheduled:mail", 0, -1) == [b"near"]
    old.delete("rq:scheduler-lock:mail")
    assert json.loads(bide(*COMMAND, "--source", redis_url).out)["adopted"] == 1


def test_a_time_before_1970_is_overdue_or_told(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    job(old, "old", CALL, at=-5)
    job(old, "never", CALL)
    old.zadd("rq:scheduled:mail", {"never": "-inf"})
    ended = bide(*COMMAND, "--source", redis_url)
    told = json.loads(ended.out)
    assert (ended.code, told["adopted"], told["refused"]) == (1, 1, {"has a score that is no time": 1})
    assert [each.key for each in everything("t")] == ["old"]


CALL: tuple[Any, ...] = ("shop.cancel", None, (1,), {})
TASKS = TaskShape(names={"shop.cancel": ("order",)})
REFUSED: list[tuple[str, Any, dict[str, Any], str]] = [
    ("a", ("shop.cancel", None, (datetime(2030, 1, 1, tzinfo=UTC),), {}), {}, "has arguments that are objects of Python"),
    ("b", ("shop.cancel", None, (1, 2), {}), {}, "has 2 arguments without a name"),
    ("c", ("cancel", "shop", (1,), {}), {}, "calls a method of an object"),
    ("d", CALL, {"success_callback_name": "shop.done"}, "has callbacks"),
    ("e", CALL, {"repeats_left": 3}, "is to be repeated"),
    ("f", CALL, {"dependency_ids": '["x"]'}, "depends on other jobs"),
    ("g", "nonsense", {}, "is no job of RQ"),
    ("h", CALL, {"data": b"]]"}, "has arguments that can't be read"),
    ("i", ("shop.cancel", None, ("x" * 5_000_000,), {}), {}, "has arguments over 4,194,304 bytes"),
    ("l", CALL, {"ttl": 0}, "has a ttl of 0"),
    ("m", CALL, {"retries_left": 1_000}, "has more than 1,000 attempts left"),
    ("n", CALL, {"meta": by_json("x" * 8_192)}, "has headers over 8,192 bytes"),
]


@pytest.mark.parametrize("ttl", [281_474_976_710_657, 9_223_372_036_854_775, 10**20])
def test_a_ttl_of_more_than_a_hundred_years_is_a_hundred_years(bide: Bide, old: redis.Redis, redis_url: str, ttl: int) -> None:
    at = soon()
    job(old, "one", CALL, at=at, ttl=ttl)
    job(old, "two", CALL, at=at, ttl=-1)
    ended = bide(*COMMAND, "--source", redis_url)
    assert (ended.code, json.loads(ended.out)["adopted"]) == (0, 2)
    assert {each.key: each.expires for each in everything("t")} == {"one": at * 1_000 + MAX_DELAY_MS, "two": None}


def test_what_cannot_be_read_stays_and_blocks_nothing(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    for known, call, more, _ in REFUSED:
        job(old, known, call, at=soon(), **more)
    job(old, "j", CALL, at=soon())
    old.sadd("rq:job:j:dependents", "other")
    old.zadd("rq:scheduled:mail", {"k": soon(), "text": soon()})
    old.set("rq:job:text", "x")
    job(old, "set", CALL, at=soon())
    old.set("rq:job:set:dependents", "x")
    job(old, "well", CALL, at=soon(7_200))
    before = {key: old.dump(key) for key in old.scan_iter("rq:job:*") if key != b"rq:job:well"}
    told = json.loads(bide(*COMMAND, "--source", redis_url).out)
    assert told["adopted"] == 1
    reasons = [*(reason for *_, reason in REFUSED), "has no job"]
    for reason in reasons:
        assert any(each.startswith(reason) for each in told["refused"]), reason
    assert sum(told["refused"].values()) == len(REFUSED) + 4
    assert told["refused"]["has a job that is no hash"] == 2
    assert {key: old.dump(key) for key in old.scan_iter("rq:job:*")} == before
    assert old.zcard("rq:scheduled:mail") == len(REFUSED) + 4


class Killed(Exception):
    """The end of a run, at some place."""


@pytest.mark.parametrize("place", ["put_many", "finish"])
def test_a_killed_run_goes_on_where_it_was(bide: Bide, old: redis.Redis, redis_url: str, folder: Any, place: str) -> None:
    for number in range(20):
        job(old, f"scheduled-{number}", ("shop.cancel", None, (number,), {}), at=soon())
        job(old, f"queued-{number}", ("shop.cancel", None, (number + 20,), {}))
    with Queue(URL) as queue:
        queue.session.open()
        source = rq(SourceServer(redis_url), "mail", Shape(topic="t"), TASKS, queued=True)

        def die(*_: Any) -> None:
            raise Killed

        setattr(queue.session if place == "put_many" else source, place, die)
        with pytest.raises(Killed):
            Adoption(source, queue, batch=15).run(lambda _: None, lambda: False)
        source.close()
    told = json.loads(bide(*COMMAND, "--queued", "--source", redis_url).out)
    assert (told["adopted"], told["resumed"]) == (40, 20)  # two batches
    assert sorted(each.body["order"] for each in everything("t")) == list(range(40))
    assert old.keys() == [b"rq:queues"]


def test_a_job_that_the_queue_does_not_take_goes_back_as_it_was(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    job(old, "one", CALL, at=soon())
    job(old, "two", CALL)
    before = {key: old.dump(key) for key in old.scan_iter()}
    with Queue(URL) as queue:
        for key in ("one", "two"):
            queue.send("t", "first", key=key, delay="1h")
    told = json.loads(bide(*COMMAND, "--queued", "--source", redis_url).out)
    assert (told["adopted"], list(told["refused"].values())) == (0, [2])
    assert {key: old.dump(key) for key in old.scan_iter()} == before


def test_jobs_that_waited_in_the_queue_go_back_in_their_order(old: redis.Redis, redis_url: str) -> None:
    for number in range(5):
        job(old, str(number), CALL)
    source = _Jobs(SourceServer(redis_url), "mail", "list", Shape(topic="t"), TASKS)
    taken = source.take(3).found
    source.give_back([each.name for each in taken])
    source.close()
    assert old.lrange("rq:queue:mail", 0, -1) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_job_that_changes_before_it_is_taken_is_moved_as_it_is_then(old: redis.Redis, redis_url: str) -> None:
    at = soon()
    for known in ("later", "saved", "called back", "as it was"):
        job(old, known, CALL, at=at)
    source = _Jobs(SourceServer(redis_url), "mail", "set", Shape(topic="t"), TASKS)
    page = source.page

    def changed(first: int, limit: int) -> Any:
        found = page(first, limit)
        if not first:
            old.zadd("rq:scheduled:mail", {"later": at + 7_200}, xx=True)
            old.hset("rq:job:saved", "data", zlib.compress(by_pickle(("shop.cancel", None, (2,), {}))))
            old.hset("rq:job:called back", "success_callback_name", "shop.done")
        return found

    source.page = changed  # type: ignore[method-assign]
    taken = source.take(10)
    assert {each.message.key: (each.message.at, each.message.body) for each in taken.found} == {
        "later": ((at + 7_200) * 1_000, b'{"order":1}'),
        "saved": (at * 1_000, b'{"order":2}'),
        "as it was": (at * 1_000, b'{"order":1}'),
    }
    [refused] = taken.refused
    assert (refused.entry, refused.reason) == ("called back", "has callbacks: let an RQ worker do it")
    source.give_back([refused.held])
    source.close()
    assert old.zrange("rq:scheduled:mail", 0, -1, withscores=True) == [(b"called back", at)]
    assert old.hget("rq:job:called back", "success_callback_name") == b"shop.done"


def test_jobs_with_one_id_after_each_other_are_both_kept(old: redis.Redis, redis_url: str) -> None:
    source = rq(SourceServer(redis_url), "mail", Shape(topic="t"), TASKS, queued=False)
    taken = []
    for number in range(2):
        job(old, "one", ("shop.cancel", None, (number,), {}), at=soon())
        taken.append(source.take(10).found)
    [first], [second] = taken
    assert {each.message.body for each in source.held().found} == {first.message.body, second.message.body}
    source.finish([first.name], lambda _: None)
    source.give_back([second.name])
    source.close()
    assert {key.decode() for key in old.scan_iter()} == {"rq:job:one", "rq:queues", "rq:scheduled:mail"}
    again = rq(SourceServer(redis_url), "mail", Shape(topic="t"), TASKS, queued=False)
    assert [each.message.body for each in again.take(10).found] == [second.message.body]
    again.close()


def test_a_dry_run_says_how_many_jobs_it_has_read(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    for number in range(601):
        job(old, f"s{number}", "nonsense", at=soon())
        job(old, f"q{number}", "nonsense")
    looked = bide(*COMMAND[:-1], "--queued", "--dry-run", "--source", redis_url)
    assert "Left at the source: 1,202 of 1,202 that were read. An entry is no job of RQ" in looked.out
