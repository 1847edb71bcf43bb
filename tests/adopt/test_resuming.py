"""A run that was killed is resumed: nothing is lost, and nothing is put twice."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from bide import Queue
from bide.adopt.adoption import Adoption
from bide.adopt.redis.bullmq import BullMQ
from bide.adopt.redis.plain import ReadyList, SortedSet
from bide.adopt.redis.server import SourceServer
from bide.adopt.redis.take import WaitingEntries
from bide.adopt.shape import Shape
from bide.errors import OutcomeUnknown, QueueFull
from tests.adopt.reading import URL, everything
from tests.cli.running import Bide

COMMAND = ("adopt", "redis-zset", "delayed", "--topic", "t", "--json")
NOTHING = {"adopted": 0, "resumed": 0, "gone": 0, "given_back": 0, "forgotten": 0, "held": 0, "refused": {}}


class Killed(Exception):
    """The end of a run, at some place."""


def die(*_: Any) -> None:
    raise Killed


@pytest.fixture
def filled(old: redis.Redis) -> redis.Redis:
    old.zadd("delayed", {json.dumps({"order": number}): 4_000_000_000 + number for number in range(30)})
    return old


def run(url: str, *, dies_in: str) -> None:
    """A run that is killed in a verb of the source, or in the put."""
    source = SortedSet(SourceServer(url), "delayed", Shape(topic="t"))
    with Queue(URL) as queue:
        adoption = Adoption(source, queue, batch=10)
        queue.session.open()
        victim: Any = queue.session if dies_in == "put_many" else source
        setattr(victim, dies_in, die)
        with pytest.raises(Killed):
            adoption.run(lambda _: None, lambda: False)
    source.close()


def orders(found: Sequence[Any]) -> list[int]:
    return sorted(each.body["order"] for each in found)


@pytest.mark.parametrize("place", ["put_many", "finish"])
def test_a_killed_run_goes_on_where_it_was(bide: Bide, filled: redis.Redis, redis_url: str, place: str) -> None:
    run(redis_url, dies_in=place)
    assert filled.zcard("delayed") == 10  # a batch is put, and the next one is taken
    looked = json.loads(bide(*COMMAND, "--dry-run", "--source", redis_url).out)
    assert (looked["count"], looked["held"]) == (10, 20)
    ended = bide(*COMMAND, "--source", redis_url)
    assert json.loads(ended.out) == NOTHING | {"adopted": 30, "resumed": 20}
    assert orders(everything("t")) == list(range(30))
    assert filled.keys() == []


def test_what_was_taken_for_one_queue_does_not_go_to_another(bide: Bide, filled: redis.Redis, redis_url: str) -> None:
    run(redis_url, dies_in="finish")
    ended = bide(*COMMAND, "--source", redis_url, "--url", "sqlite:///other.db")
    assert ended.code == 1
    assert "A run was stopped while it moved 20 messages to another queue, which may have them" in ended.err
    assert not everything("t", "sqlite:///other.db")
    looked = bide(*COMMAND[:-1], "--dry-run", "--source", redis_url, "--url", "sqlite:///other.db").out
    assert "20 messages of a run that was stopped: it moved them to another queue, so the next run to this one stops." in looked
    looked = bide(*COMMAND[:-1], "--dry-run", "--source", redis_url).out
    assert "20 messages of a run that was stopped: the next run begins with them." in looked
    assert bide(*COMMAND, "--source", redis_url).code == 0
    assert orders(everything("t")) == list(range(30))


def test_what_was_taken_for_a_queue_that_is_gone_can_be_given_back(bide: Bide, filled: redis.Redis, redis_url: str) -> None:
    run(redis_url, dies_in="put_many")
    ended = bide(*COMMAND, "--source", redis_url, "--url", "sqlite:///other.db", "--doubtful", "give-back")
    assert json.loads(ended.out) == NOTHING | {"adopted": 10, "given_back": 20}
    assert bide(*COMMAND, "--source", redis_url, "--url", "sqlite:///other.db").code == 0
    assert orders(everything("t", "sqlite:///other.db")) == list(range(30))


def aged(client: redis.Redis, minutes: int) -> None:
    """What is held was taken so long ago."""
    [held] = client.keys("*bide-adopt")
    fields: Any = client.hgetall(held)
    for name, value in fields.items():
        since, _, rest = name.decode().partition("-")
        client.hset(held, f"{int(since) - minutes * 60_000}-{rest}", value)
        client.hdel(held, name)


@pytest.mark.parametrize("place", ["put_many", "finish"])
@pytest.mark.parametrize("answer", ["send", "forget", "give-back"])
def test_after_ten_minutes_the_operator_says_what_became_of_a_batch(
    bide: Bide, filled: redis.Redis, redis_url: str, place: str, answer: str
) -> None:
    run(redis_url, dies_in=place)
    aged(filled, 11)
    asked = bide(*COMMAND, "--source", redis_url)
    assert (asked.code, json.loads(asked.out)) == (1, NOTHING | {"held": 20})
    assert "A run was stopped 11 minutes ago while it moved 20 messages" in asked.err
    assert "--doubtful forget, if it has them" in asked.err
    looked = bide(*COMMAND[:-1], "--dry-run", "--source", redis_url).out
    assert "20 messages of a run that was stopped: that was 11 minutes ago, so the next run stops. Look whether" in looked
    ended = bide(*COMMAND, "--source", redis_url, "--doubtful", answer)
    told = json.loads(ended.out)
    assert (ended.code, told["given_back"], told["forgotten"]) == (0, 20 * (answer == "give-back"), 20 * (answer == "forget"))
    assert filled.zcard("delayed") == (20 if answer == "give-back" else 0)
    put, sent = place == "finish", answer == "send"  # sent though it was put, or forgotten though it was not: as asked
    assert orders(everything("t")) == sorted([*range(20, 30), *(range(20) if put else ()), *(range(20) if sent else ())])


def test_what_cannot_be_given_back_is_told_as_held(filled: redis.Redis, redis_url: str, folder: Path) -> None:
    run(redis_url, dies_in="put_many")
    aged(filled, 11)
    source: Any = SortedSet(SourceServer(redis_url), "delayed", Shape(topic="t"))
    source.give_back = die
    with Queue(URL) as queue:
        adoption = Adoption(source, queue, doubt="give-back")
        with pytest.raises(Killed):
            adoption.run(lambda _: None, lambda: False)
    assert (adoption.in_hand, adoption.given_back) == (20, 0)
    source.close()


def test_a_take_whose_answer_was_lost_is_finished_by_the_same_run(filled: redis.Redis, redis_url: str, folder: Path) -> None:
    source = SortedSet(SourceServer(redis_url), "delayed", Shape(topic="t"))
    take = source.take
    source.take = lambda limit: take(limit)._replace(found=())  # type: ignore[method-assign]  # as one sent twice
    with Queue(URL) as queue:
        adoption = Adoption(source, queue)
        adoption.run(lambda _: None, lambda: False)
    assert (adoption.adopted, orders(everything("t"))) == (30, list(range(30)))
    assert filled.keys() == []


def test_what_a_full_queue_refuses_goes_back(filled: redis.Redis, redis_url: str, folder: Path) -> None:
    def full(*_: Any) -> None:
        raise QueueFull("no room")

    before = filled.zrange("delayed", 0, -1, withscores=True)
    source = SortedSet(SourceServer(redis_url), "delayed", Shape(topic="t"))
    with Queue(URL) as queue:
        adoption = Adoption(source, queue)
        queue.session.open()
        queue.session.put_many = full  # type: ignore[assignment]
        with pytest.raises(QueueFull):
            adoption.run(lambda _: None, lambda: False)
    assert (adoption.in_hand, filled.zrange("delayed", 0, -1, withscores=True)) == (0, before)
    assert filled.keys() == [b"delayed"]


def test_what_a_lost_answer_leaves_open_is_held_for_the_next_run(
    bide: Bide, filled: redis.Redis, redis_url: str, folder: Path
) -> None:
    with Queue(URL) as queue:
        session: Any = queue.session
        session.open()
        put = session.put_many

        def cut_off(messages: Sequence[Any]) -> None:
            told = put(messages)
            raise OutcomeUnknown("the connection was lost", answers=[*told[:10], *[None] * 20])

        session.put_many = cut_off
        adoption = Adoption(SortedSet(SourceServer(redis_url), "delayed", Shape(topic="t")), queue)
        with pytest.raises(OutcomeUnknown):
            adoption.run(lambda _: None, lambda: False)
    assert (adoption.adopted, adoption.in_hand) == (10, 20)
    ended = json.loads(bide(*COMMAND, "--source", redis_url).out)
    assert (ended["adopted"], ended["resumed"]) == (20, 20)
    assert orders(everything("t")) == list(range(30))


def picture(client: redis.Redis) -> dict[Any, Any]:
    return {key: client.dump(key) for key in client.scan_iter() if b"marker" not in key}


def job(client: redis.Redis, id: str) -> None:
    client.hset(f"bull:mail:{id}", mapping={"name": "n", "data": '{"a":1}', "opts": "{}", "deid": id})


def fill_zset(client: redis.Redis) -> None:
    client.zadd("key", {"a": 4_000_000_000.123, "b": 4_000_000_001})
    client.hset("jobs", mapping={"a": "1", "b": "2"})


def fill_list(client: redis.Redis) -> None:
    client.rpush("key", "a", "b", "a")


def fill_bullmq(client: redis.Redis) -> None:
    for number, place in enumerate(("delayed", "prioritized", "wait", "paused", "wait", "paused", "wait")):
        job(client, str(number))
        if number < 2:
            client.zadd(f"bull:mail:{place}", {str(number): 4_000_000_000_000 * 4096})
        else:
            client.rpush(f"bull:mail:{place}", str(number))
    client.set("bull:mail:de:0", "0")


def zset(url: str) -> WaitingEntries:
    from bide.adopt.redis.plain import Jobs

    server = SourceServer(url)
    return SortedSet(server, "key", Shape(topic="t"), jobs=Jobs(server, "jobs"))


SOURCES: dict[str, tuple[Callable[[redis.Redis], None], Callable[[str], WaitingEntries]]] = {
    "redis-zset": (fill_zset, zset),
    "redis-list": (fill_list, lambda url: ReadyList(SourceServer(url), "key", Shape(topic="t", body="raw"), end="right")),
    "bullmq": (fill_bullmq, lambda url: BullMQ(SourceServer(url), "mail", Shape(topic="t"), waiting=True)),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_what_is_given_back_is_as_it_was(old: redis.Redis, redis_url: str, kind: str) -> None:
    fill, opened = SOURCES[kind]
    fill(old)
    before = picture(old)
    first = opened(redis_url)
    taken = first.take(1_000)
    assert len(taken.found) > 1
    first.close()
    source = opened(redis_url)  # a later run finds it, and gives it back
    held = source.held()
    assert [each.message for each in held.found] == [each.message for each in taken.found]
    source.give_back([each.name for each in held.found])
    assert picture(old) == before
    assert not source.take(1_000).found
    source.close()


def test_two_batches_that_the_queue_refuses_go_back_to_a_list_in_their_order(old: redis.Redis, redis_url: str) -> None:
    old.rpush("key", *map(str, range(50)))
    source = ReadyList(SourceServer(redis_url), "key", Shape(topic="t"), end="left")
    with Queue(URL) as queue:
        queue.session.open()

        def full(_: Any) -> None:
            raise QueueFull("The disk is full.")

        vars(queue.session)["put_many"] = full
        with pytest.raises(QueueFull):
            Adoption(source, queue, batch=10).run(lambda _: None, lambda: False)
    source.close()
    assert old.lrange("key", 0, -1) == [str(number).encode() for number in range(50)]


def test_what_other_options_cannot_read_is_not_given_back(bide: Bide, filled: redis.Redis, redis_url: str) -> None:
    run(redis_url, dies_in="finish")
    ended = bide(*COMMAND, "--member", "missing", "--source", redis_url)
    assert (ended.code, json.loads(ended.out)) == (1, NOTHING | {"held": 20})
    assert "20 messages can't be read now" in ended.err
    assert "One has no field missing" in ended.err
    looked = bide(*COMMAND, "--member", "missing", "--dry-run", "--source", redis_url)
    assert json.loads(looked.out)["held"] == 20
    looked = bide(*COMMAND[:-1], "--member", "missing", "--dry-run", "--source", redis_url)
    assert "20 messages of a run that was stopped can't be read now: the next run stops. One has no field missing" in looked.out
    assert json.loads(bide(*COMMAND, "--source", redis_url).out) == NOTHING | {"adopted": 30, "resumed": 20}
    assert orders(everything("t")) == list(range(30))


def test_a_run_that_stood_still_for_too_long_sends_nothing(
    bide: Bide, filled: redis.Redis, redis_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SortedSet(SourceServer(redis_url), "delayed", Shape(topic="t"))
    with Queue(URL) as queue:
        adoption = Adoption(source, queue, batch=10)
        take = source.take

        def freezing(limit: int) -> Any:
            taken = take(limit)
            now = time.time
            later.setattr(time, "time", lambda: now() + 600)
            return taken

        source.take = freezing  # type: ignore[method-assign]
        with monkeypatch.context() as later, pytest.raises(OutcomeUnknown):
            adoption.run(lambda _: None, lambda: False)
    source.close()
    assert (adoption.adopted, adoption.in_hand) == (0, filled.hlen("{delayed}:bide-adopt") // 2)
    ended = bide(*COMMAND, "--source", redis_url)
    assert json.loads(ended.out)["adopted"] == 30, ended.err
