"""`bide adopt celery`: each waiting task is run by Celery or by bide, also while workers have tasks in their memory."""

import base64
import json
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from bide import Queue
from bide.adopt.adoption import Adoption
from bide.adopt.redis.celery import celery
from bide.adopt.redis.celery_tasks import Rules
from bide.adopt.redis.server import SourceServer
from bide.adopt.shape import Shape, TaskShape
from bide.core.times import MAX_DELAY_MS
from bide.errors import QueueFull
from tests.adopt.celery_worker import Worker, delivered, envelope, queued
from tests.adopt.reading import URL, everything
from tests.cli.running import Bide

HOUR = 3_600.0
COMMAND = ("adopt", "celery", "--topic", "t", "--json")


def soon(seconds: float = HOUR) -> float:
    return round(time.time() + seconds, 3)


def left(client: redis.Redis) -> set[str]:
    return {key.decode() for key in client.scan_iter()}


def test_tasks_in_lists_become_messages(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    at = soon()
    headers: Any = {"tenant": "7", "retries": 2, "expires": "2100-01-01T00:00:00+00:00"}
    known = queued(old, envelope("shop.cancel", [42], {"why": "é", "big": 12345678901234567890123}, at, **headers))
    queued(old, envelope("shop.mail", [], {"when": {"__type__": "datetime", "__value__": "2030-01-01T00:00:00"}}, at))
    queued(old, envelope("shop.mail", [], {"to": "a"}, at), key="celery\x06\x163")
    ended = bide("adopt", "celery", "--args", "shop.cancel=order", "--map", "shop.mail=mail", "--source", redis_url)
    assert (ended.code, ended.err) == (0, "")
    [found] = everything("shop.cancel")
    assert (found.body["order"], found.body["why"], found.key, found.due) == (42, "é", known, round(at * 1_000))
    assert found.headers == {"tenant": "7", "celery-id": known, "celery-retries": "2"}
    assert found.expires == 4_102_444_800_000
    assert sorted(str(each.body) for each in everything("mail")) == ["{'to': 'a'}", "{'when': '2030-01-01T00:00:00'}"]
    assert left(old) == set()


def test_a_task_without_an_eta_expires_when_it_would_have(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    before = time.time() * 1_000
    for expires in ("2100-01-01T00:00:00+00:00", "9999-12-31T00:00:00+00:00"):
        queued(old, envelope("a", [], {}, id=expires[:4], expires=expires))
    assert bide(*COMMAND, "--immediate", "--source", redis_url).code == 0
    after = time.time() * 1_000
    found = {each.key: each.expires or 0 for each in everything("t")}
    assert 4_102_444_800_000 <= found["2100"] <= 4_102_444_800_000 + after - before + 1
    assert before + MAX_DELAY_MS - 1 <= found["9999"] <= after + MAX_DELAY_MS + 1


def test_an_overdue_task_expires_when_it_would_have(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    now = time.time()
    queued(old, envelope("a", [], {}, now - 7_200, id="lives", expires=datetime.fromtimestamp(now + 3_600, UTC).isoformat()))
    queued(old, envelope("a", [], {}, now - 7_200, id="over", expires=datetime.fromtimestamp(now - 3_600, UTC).isoformat()))
    assert bide(*COMMAND, "--source", redis_url).code == 0
    with Queue(URL) as queue:
        [lives] = queue.receive("t", limit=5)
        assert lives.key == "lives"
        left = queue.get(lives.id)
    assert left is not None
    assert now + 3_590 <= (left.expires or 0) / 1000 <= now + 3_610


REFUSED: list[tuple[dict[str, Any], str]] = [
    (envelope("a", [1], {}, 4e9), "has 1 argument without a name"),
    (envelope("a", [], {}, 4e9, after={"chain": [{"task": "b"}]}), "has a chain"),
    (envelope("a", [], {}, 4e9, after={"chord": {"task": "b"}}), "has a chord"),
    (envelope("a", [], {"x": {"__type__": "bytes", "__value__": "eA=="}}, 4e9), "has an argument of the type bytes"),
    (envelope("a", [], {"x": {"__type__": {}}}, 4e9), "has an argument whose type has no name"),
    (envelope("a", [], {}, 4e9, expires="2030-01-01T00:00:00+00:00"), "expires before it is due"),
    (envelope("a", [], {}, 4e9) | {"content-type": "application/x-python-serialize"}, "has arguments that are not JSON"),
    (envelope("a", [], {}, 4e9, compression="application/x-gzip"), "has compressed arguments"),
    (envelope("a", [], {}) | {"headers": {"task": "a", "id": "1", "eta": "tomorrow"}}, "has an eta that is no time"),
    (envelope("a", [], {}), "has no ETA: with --immediate it is moved, too"),
    ({"body": "e30=", "properties": {}, "headers": {}}, "is no task of Celery 4 or later"),
]


def test_what_cannot_be_read_stays_and_blocks_nothing(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    for task, _ in REFUSED:
        old.lpush("celery", json.dumps(task))
    for text in (b'{"x":1e999}', b'{"x":{"__type__":"datetime","__value__":1e999}}'):
        body = base64.b64encode(b"[[],%s,{}]" % text).decode()
        old.lpush("celery", json.dumps(envelope("a", [], {}, 4e9) | {"body": body}))
    old.lpush("celery", "no json")
    queued(old, envelope("a", [], {}, soon()))
    ended = bide(*COMMAND, "--source", redis_url)
    told = json.loads(ended.out)
    assert (ended.code, told["adopted"]) == (1, 1)
    for _, reason in REFUSED:
        assert [count for each, count in told["refused"].items() if each.startswith(reason)] == [1], reason
    assert told["refused"]["is not JSON"] == 3
    assert old.llen("celery") == len(REFUSED) + 3
    looked = json.loads(bide(*COMMAND, "--dry-run", "--source", redis_url).out)
    shown = {each["reason"]: each["entry"] for each in looked["refused"]}
    assert shown["has an eta that is no time"] == "a[1]"
    assert shown["has compressed arguments"] == f"a[{REFUSED[7][0]['headers']['id']}]"
    assert shown["is not JSON"] == "no json"  # of several, the one that was put last


def test_a_task_in_the_memory_of_workers_is_revoked_in_all_of_them(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    with Worker(old) as one, Worker(old) as other:
        ids = {delivered(old, envelope("a", [], {"n": number}, soon())) for number in range(1_200)}
        near = delivered(old, envelope("a", [], {}, soon(30)))
        active = delivered(old, envelope("a", [], {}))
        foreign = envelope("a", [], {}, soon())
        foreign["properties"]["delivery_info"]["routing_key"] = "another"
        apart = delivered(old, foreign)
        ended = bide(*COMMAND, "--source", redis_url)
        assert (ended.code, json.loads(ended.out)["adopted"]) == (0, 1_200)
    assert set(one.revoked) == set(other.revoked) == ids
    kept: Any = old.hvals("unacked")
    assert {json.loads(each)[0]["headers"]["id"] for each in kept} == {near, active, apart}
    assert {each.key for each in everything("t")} == ids
    assert left(old) == {"unacked", "unacked_index"}


def test_a_worker_that_does_not_answer_leaves_the_batch_held(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    known = delivered(old, envelope("a", [], {}, soon()))
    with Worker(old) as well, Worker(old, deaf=("revoke",)) as deaf:
        ended = bide(*COMMAND, "--margin", "2s", "--source", redis_url)
        assert ended.code == 1
        assert "Of 2 Celery workers that listen, 1 answered" in ended.err
        assert everything("t") == []
        assert not old.exists("unacked")
        deaf.deaf = ()  # it answers again, and then the same command goes on
        ended = bide(*COMMAND, "--margin", "2s", "--source", redis_url)
    told = json.loads(ended.out)
    assert (ended.code, told["adopted"], told["resumed"]) == (0, 1, 1)
    assert well.revoked == deaf.revoked == [known, known]
    assert left(old) == set()


def test_a_task_that_fell_due_before_a_worker_answered_is_in_doubt(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    delivered(old, envelope("a", [], {}, soon()))
    with Worker(old, deaf=("revoke",)) as worker:
        assert bide(*COMMAND, "--margin", "2s", "--source", redis_url).code == 1
        worker.deaf = ()
        _have_it_due(old)
        ended = bide(*COMMAND, "--margin", "2s", "--source", redis_url)
        assert ended.code == 1
        assert "workers may have begun some of them" in ended.err
        ended = bide(*COMMAND, "--margin", "2s", "--doubtful", "forget", "--source", redis_url)
    assert ended.code == 0
    assert everything("t") == []
    assert left(old) == set()


def _have_it_due(client: redis.Redis) -> None:
    """What is held fell due a second ago, as if so much time had passed."""
    fields: Any = client.hgetall("{unacked}:bide-adopt")
    [(name, stored)] = [each for each in fields.items() if each[0].endswith(b":job")]
    task, *more = json.loads(stored)
    task["headers"]["eta"] = datetime.fromtimestamp(time.time() - 1, UTC).isoformat()
    client.hset("{unacked}:bide-adopt", name, json.dumps([task, *more]))


def test_workers_remember_only_so_many_and_only_so_long(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    with Worker(old) as worker:
        for number in range(10):
            delivered(old, envelope("a", [], {"n": number}, soon()))
        late = delivered(old, envelope("shop.cancel", [], {}, soon(4 * HOUR)))
        worker.revoked.append("another")
        ended = bide(*COMMAND, "--revokes", "7", "--source", redis_url)
    told = json.loads(ended.out)
    assert (ended.code, told["adopted"], len(worker.revoked)) == (1, 5, 6)
    assert sorted(told["refused"].values()) == [1, 5]
    assert all(reason.endswith("and run the command again with --workers-stopped") for reason in told["refused"])
    assert old.hlen("unacked") == 6
    with Worker(old):
        ended = bide(*COMMAND[:-1], "--source", redis_url)
    assert f"with --workers-stopped, for example: shop.cancel[{late}]" in ended.out


def test_what_is_due_later_is_taken_when_all_workers_are_stopped(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    delivered(old, envelope("a", [], {}, soon(4 * HOUR)))
    delivered(old, envelope("a", [], {}, soon(-5)))
    delivered(old, envelope("a", [], {}))
    with Worker(old):
        ended = bide(*COMMAND, "--workers-stopped", "--source", redis_url)
        assert (ended.code, old.hlen("unacked")) == (1, 3)
        assert "1 Celery worker answers: stop" in ended.err
    ended = bide(*COMMAND, "--workers-stopped", "--immediate", "--source", redis_url)
    assert (ended.code, json.loads(ended.out)["adopted"]) == (0, 3)
    assert left(old) == set()


def test_a_worker_without_remote_control_is_seen(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    delivered(old, envelope("a", [], {}, soon()))
    blocked = threading.Thread(target=lambda: old.brpop(["celery", "celery\x06\x163"], timeout=60))
    blocked.start()
    while not any(each["cmd"] == "brpop" for each in old.client_list()):
        pass
    ended = bide(*COMMAND, "--source", redis_url)
    assert (ended.code, old.hlen("unacked")) == (1, 1)
    assert "1 client waits with BRPOP in this database, but 0 Celery workers answer" in ended.err
    assert bide(*COMMAND, "--workers", "1", "--source", redis_url).code == 1
    assert bide(*COMMAND, "--workers", "0", "--source", redis_url).code == 0
    old.lpush("celery", "end")
    blocked.join()


class Killed(Exception):
    """The end of a run, at some place."""


@pytest.mark.parametrize("place", ["put_many", "finish"])
def test_a_killed_run_goes_on_where_it_was(bide: Bide, old: redis.Redis, redis_url: str, folder: Any, place: str) -> None:
    with Worker(old):
        for number in range(20):
            delivered(old, envelope("a", [], {"n": number}, soon()))
            queued(old, envelope("a", [], {"n": number + 20}, soon()))
        with Queue(URL) as queue:
            queue.session.open()
            source = celery(SourceServer(redis_url), ["celery"], Shape(topic="t"), TaskShape(), Rules())

            def die(*_: Any) -> None:
                raise Killed

            setattr(queue.session if place == "put_many" else source, place, die)
            with pytest.raises(Killed):
                Adoption(source, queue, batch=15).run(lambda _: None, lambda: False)
            source.close()
        told = json.loads(bide(*COMMAND, "--source", redis_url).out)
    assert (told["adopted"], told["resumed"]) == (40, 20)  # two batches
    assert sorted(each.body["n"] for each in everything("t")) == list(range(40))
    assert left(old) == set()


def test_what_goes_back_gets_a_new_id_if_workers_drop_the_old_one(old: redis.Redis, redis_url: str, folder: Any) -> None:
    first, second = envelope("a", [], {"n": 1}, soon()), envelope("a", [], {"n": 2}, soon())
    known, fresh = delivered(old, first), queued(old, second)
    with Worker(old) as worker, Queue(URL) as queue:
        queue.session.open()
        run_into_a_full_disk(queue, redis_url, Rules(), batch=1)
    assert worker.revoked == [known]
    unacked: Any = old.hgetall("unacked")
    [(tag, stored)] = unacked.items()
    again, exchange, key = json.loads(stored)
    assert (exchange, key, old.zscore("unacked_index", tag)) == ("", "celery", 0)
    assert again["headers"]["id"] not in (known, fresh)
    assert again["headers"]["id"] == again["headers"]["root_id"] == again["properties"]["correlation_id"]
    assert again["properties"]["delivery_tag"] == tag.decode()
    assert again["body"] == first["body"]
    [listed] = old.lrange("celery", 0, -1)
    assert json.loads(listed) == second


@pytest.mark.parametrize("properties", [b"", b'"properties": {"x": 1e5},'])
def test_what_no_worker_was_told_to_drop_goes_back_as_it_was(
    old: redis.Redis, redis_url: str, folder: Any, properties: bytes
) -> None:
    eta = datetime.fromtimestamp(soon(), UTC).isoformat().encode()
    for place in (b"list", b"hash"):
        task = b'{"body": "[[], {}, {}]", %s "headers": {"task": "a", "id": "%s", "eta": "%s"}, "mine": 1e999,' % (
            properties,
            place,
            eta,
        )
        task += b' "content-type": "application/json"}'
        if place == b"list":
            old.lpush("celery", task)
        else:
            old.zadd("unacked_index", {"tag": 1})
            old.hset("unacked", "tag", b'[%s, "", "celery"]' % task)
    before = old.lrange("celery", 0, -1), old.hvals("unacked")
    with Queue(URL) as queue:
        queue.session.open()
        run_into_a_full_disk(queue, redis_url, Rules(stopped=True), batch=10)
    assert (old.lrange("celery", 0, -1), old.hvals("unacked")) == before
    assert left(old) == {"celery", "unacked", "unacked_index"}


def test_a_task_without_properties_goes_back_though_workers_were_told(old: redis.Redis, redis_url: str, folder: Any) -> None:
    task = envelope("a", [], {}, soon(), mine={"x": 0.1}, redelivered=True)
    task["body"] = base64.b64decode(task["body"]).decode()
    del task["properties"]
    known = queued(old, task)
    with Worker(old) as worker, Queue(URL) as queue:
        queue.session.open()
        run_into_a_full_disk(queue, redis_url, Rules(), batch=10)
    assert worker.revoked == [known]
    [listed] = old.lrange("celery", 0, -1)
    again = json.loads(listed)
    assert again["headers"]["id"] != known
    assert again["properties"].keys() == {"correlation_id", "delivery_tag"}
    same = dict.fromkeys(("id", "root_id"), again["headers"]["id"])
    assert again == task | {"headers": task["headers"] | same, "properties": again["properties"]}


def run_into_a_full_disk(queue: Queue, url: str, rules: Rules, *, batch: int) -> None:
    """A run that takes tasks, and gives them back."""
    source = celery(SourceServer(url), ["celery"], Shape(topic="t"), TaskShape(), rules)

    def full(_: Any) -> None:
        raise QueueFull("The disk is full.")

    setattr(queue.session, "put_many", full)  # noqa: B010
    with pytest.raises(QueueFull):
        Adoption(source, queue, batch=batch).run(lambda _: None, lambda: False)
    source.close()


def test_a_task_that_was_revoked_stays(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    with Worker(old) as worker, Worker(old):
        for task in (delivered, queued):
            worker.revoked.append(task(old, envelope("a", [], {"n": 1}, soon())))
            task(old, envelope("a", [], {"n": 2}, soon()))
        told = json.loads(bide(*COMMAND, "--source", redis_url).out)
    assert (told["adopted"], told["refused"]) == (2, {"was revoked: workers drop it when it is due": 2})
    assert [each.body["n"] for each in everything("t")] == [2, 2]


def test_a_task_that_was_revoked_stays_when_the_workers_have_been_stopped(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    """Workers put what they have back into the lists when they stop, and forget what was revoked."""
    with Worker(old) as worker:
        revoked = delivered(old, envelope("a", [], {"n": 1}, soon()))
        worker.revoked.append(revoked)
        looked = json.loads(bide(*COMMAND, "--dry-run", "--source", redis_url).out)
        assert [each["reason"] for each in looked["refused"]] == ["was revoked: workers drop it when it is due"]
        assert looked["first"] == []
        told = json.loads(bide(*COMMAND, "--source", redis_url).out)
        assert (told["adopted"], told["refused"]) == (0, {"was revoked: workers drop it when it is due": 1})
    old.delete("unacked", "unacked_index")
    queued(old, envelope("a", [], {"n": 1}, soon(), id=revoked))
    queued(old, envelope("a", [], {"n": 2}, soon()))
    told = json.loads(bide(*COMMAND, "--workers-stopped", "--immediate", "--source", redis_url).out)
    assert (told["adopted"], told["refused"]) == (
        1,
        {"was revoked, as a worker said that has been stopped since: it is not moved": 1},
    )
    assert [each.body["n"] for each in everything("t")] == [2]


def test_a_tag_without_a_task_holds_nothing_up(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    old.zadd("unacked_index", {"stale": 1})
    queued(old, envelope("a", [], {}, soon()))
    told = json.loads(bide(*COMMAND, "--source", redis_url).out)
    reason = "has no task in unacked: remove it from unacked_index"
    assert (told["adopted"], told["gone"], told["refused"]) == (1, 0, {reason: 1})


def test_a_task_that_the_index_does_not_have_is_told(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    for number in range(1_500):
        delivered(old, envelope("a", [], {"n": number}, soon()))
    lost = [envelope("a", [], {}, soon(), id=f"lost-{number}") for number in range(3)]
    lost[2]["properties"]["delivery_info"]["routing_key"] = "another"
    for task in lost:
        delivered(old, task)
        old.zrem("unacked_index", task["properties"]["delivery_tag"])
    looked = json.loads(bide(*COMMAND, "--dry-run", "--source", redis_url).out)
    assert looked["count"] == 1_503
    for more in ((), ("--workers-stopped", "--immediate")):
        told = json.loads(bide(*COMMAND, *more, "--source", redis_url).out)
        assert told["adopted"] == (0 if more else 1_500)
        [(reason, number)] = told["refused"].items()
        assert (reason.partition(",")[0], number) == ("is not in unacked_index", 2)
    looked = json.loads(bide(*COMMAND, "--dry-run", "--source", redis_url).out)
    assert {each["entry"] for each in looked["refused"]} == {
        f"a[lost-{number}] with the tag {lost[number]['properties']['delivery_tag']}" for number in range(2)
    }
    assert old.hlen("unacked") == 3
