"""`bide adopt redis-zset`: members of a sorted set become messages, at their times."""

import json
import math
import time
from typing import Any

import pytest
import redis

from bide import Queue
from bide.adopt.redis.plain import Jobs, SortedSet
from bide.adopt.redis.server import SourceServer
from bide.adopt.shape import Shape
from tests.adopt.reading import URL, everything
from tests.cli.running import Bide

HOUR = 3600
NOTHING = {"adopted": 0, "resumed": 0, "gone": 0, "given_back": 0, "forgotten": 0, "held": 0, "refused": {}}


def test_members_become_messages_at_the_instants_of_their_scores(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    now = time.time()
    scores = {json.dumps({"order": number}): now + HOUR + number / 7 for number in range(2_500)}
    old.zadd("delayed", scores)
    ended = bide("adopt", "redis-zset", "delayed", "--topic", "order.cancel", "--source", redis_url, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out) == NOTHING | {"adopted": 2_500}
    assert old.keys("*delayed*") == []
    found = {each.body["order"]: each.due for each in everything("order.cancel")}
    assert found == {json.loads(member)["order"]: math.ceil(score * 1000) for member, score in scores.items()}


def test_scores_of_php_are_seconds_and_those_of_java_milliseconds(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    due = int(time.time()) + HOUR
    old.zadd("php", {'{"order":42,"url":"https:\\/\\/shop.example\\/42","name":"\\u5f20"}': due})  # as json_encode writes it
    old.zadd("java", {"order:43": due * 1000 + 7})
    assert bide("adopt", "redis-zset", "php", "--topic", "php", "--source", redis_url).code == 0
    assert bide("adopt", "redis-zset", "java", "--member", "raw", "--topic", "java", "--source", redis_url).code == 0
    [php], [java] = everything("php"), everything("java")
    assert (php.due, php.body) == (due * 1000, {"order": 42, "url": "https://shop.example/42", "name": "张"})
    assert (java.due, java.body) == (due * 1000 + 7, "order:43")


def test_a_dry_run_shows_the_first_ten_due_times_and_changes_nothing(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    old.zadd("delayed", {f'{{"order":{number}}}': 4_000_000_000 + number * 60 for number in range(30)})
    old.zadd("delayed", {"broken": 4_000_000_000})
    before = old.dump("delayed")
    ended = bide("adopt", "redis-zset", "delayed", "--topic", "t", "--key-field", "order", "--source", redis_url, "--dry-run")
    lines = ended.out.splitlines()
    assert lines[:2] == [f"delayed at {redis_url}: 31 waiting.", "Due first:"]
    assert [line.split("  ")[2:] for line in lines[2:12]] == [["t", str(n), f'{{"order":{n}}}'] for n in range(10)]
    assert "2096-10-02" in lines[2]
    assert lines[12:] == [
        "Left at the source: 1 of 31 that were read. An entry is not JSON, for example: broken",
        "Nothing was changed.",
    ]
    assert (old.dump("delayed"), old.keys(), ended.code) == (before, [b"delayed"], 0)


def test_a_dry_run_shows_the_first_sixty_characters_of_a_body(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    old.zadd("delayed", {json.dumps("a" * 58): 4_000_000_000, json.dumps("b" * 59 + "\x1b"): 4_000_000_001})
    command = ("adopt", "redis-zset", "delayed", "--topic", "t", "--source", redis_url, "--dry-run")
    shown = [line.split("  ")[-1] for line in bide(*command).out.splitlines()[2:4]]
    assert shown == [json.dumps("a" * 58), f'"{"b" * 58}…']
    first = json.loads(bide(*command, "--json").out)["first"]
    assert [each["body"] for each in first] == ["a" * 58, "b" * 59 + "\x1b"]


def test_a_body_that_is_no_object_may_become_one(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    members = ["42", '"text"', "[1, 2]", "null", ' {"order": 43}']
    command = ("adopt", "redis-zset", "delayed", "--topic", "t", "--body-as", "order", "--source", redis_url)
    old.zadd("delayed", {member: 4_000_000_000 + n for n, member in enumerate(members)})
    assert '  t  {"order":42}\n' in bide(*command, "--dry-run").out
    assert bide(*command).code == 0
    old.zadd("delayed", {"order:44": 4_000_000_009})
    assert bide(*command, "--member", "raw").code == 0
    found = [each.body["order"] for each in sorted(everything("t"), key=lambda each: each.due)]
    assert found == [42, "text", [1, 2], None, 43, "order:44"]
    empty = bide(*command, "--body-as", "")
    assert (empty.code, "--body-as is empty" in empty.err) == (2, True)


def test_what_cannot_be_read_stays_and_holds_nothing_up(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    bad = {f"bad {number}": 1_000 + number for number in range(2_100)}
    old.zadd("delayed", {**bad, '{"order":1}': 5_000, '{"order":2}': 10_000_000_000_000_000, '{"order":"x"}': math.inf})
    ended = bide("adopt", "redis-zset", "delayed", "--topic", "t", "--source", redis_url, "--score", "ms", "--json")
    refused = {"is not JSON": 2_100, "has a score that is no time": 1, "is due in more than 36,525 days": 1}
    assert (ended.code, json.loads(ended.out)) == (1, NOTHING | {"adopted": 1, "refused": refused})
    assert old.zcard("delayed") == 2_102
    assert [each.body for each in everything("t")] == [{"order": 1}]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("--key-field", "bad\n{}", "has a key that is not 1 to 256 printable characters"),
        ("--topic-field", "bad {}", "names a topic that is not 1 to 128 characters of A-Z a-z 0-9 . _ -"),
    ],
)
def test_entries_that_cannot_be_sent_for_one_reason_are_counted_together(
    bide: Bide, old: redis.Redis, redis_url: str, field: str, value: str, reason: str
) -> None:
    old.zadd("delayed", {json.dumps({"k": value.format(number)}): 4_000_000_000 + number for number in range(300)})
    topic = ("--topic", "t") if field == "--key-field" else ()
    ended = bide("adopt", "redis-zset", "delayed", *topic, field, "k", "--source", redis_url)
    first = json.dumps({"k": value.format(0)})
    assert ended.out.splitlines()[1:] == [f"Left at the source: 300. An entry {reason}, for example: {first}"]


def test_jobs_in_a_hash_are_taken_with_their_ids(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    due = int(time.time() * 1000) + HOUR * 1000
    for number in range(20):
        job = {"topic": f"order.{number % 2}", "id": str(number), "delayTime": due, "ttrTime": 60, "message": '{"n": 1}'}
        old.hset("JobPool", str(number), json.dumps(job))
        old.zadd("DelayBucket", {str(number): due + number})
    old.hdel("JobPool", "19")  # cancelled
    command = ("adopt", "redis-zset", "DelayBucket", "--job-hash", "JobPool", "--topic-field", "topic", "--key-field", "id")
    ended = bide(*command, "--member", "message", "--source", redis_url, "--json")
    assert json.loads(ended.out) == NOTHING | {
        "adopted": 19,
        "refused": {"has no job in the hash: it was cancelled, a consumer has it, or it went with another entry": 1},
    }
    assert (old.hlen("JobPool"), old.zrange("DelayBucket", 0, -1)) == (0, [b"19"])
    even, odd = everything("order.0"), everything("order.1")
    assert [each.key for each in even] == [str(number) for number in range(0, 20, 2)]
    assert [each.due - due for each in odd] == list(range(1, 19, 2))
    assert {each.body for each in (*even, *odd)} == {'{"n": 1}'}


def test_a_job_that_a_consumer_takes_while_a_page_is_read_is_gone_and_not_refused(old: redis.Redis, redis_url: str) -> None:
    old.zadd("bucket", {str(number): 4_000_000_000 for number in range(3)})
    old.hset("jobs", mapping={str(number): "{}" for number in range(2)})  # the third is cancelled
    server = SourceServer(redis_url)
    call = server.call

    def overtaken(*command: Any, **options: Any) -> Any:
        if command[0] == "HMGET":
            old.zrem("bucket", "0")
            old.hdel("jobs", "0")
        return call(*command, **options)

    server.call = overtaken  # type: ignore[method-assign]
    source = SortedSet(server, "bucket", Shape(topic="t"), jobs=Jobs(server, "jobs"))
    taken = source.take(10)
    assert ([each.message.body for each in taken.found], taken.gone) == ([b"{}"], 1)
    assert [each.entry for each in taken.refused] == ["2"]
    source.close()


def test_the_id_of_a_job_may_be_a_field_of_the_member(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    old.zadd("bucket", {'{"topic":"mail","id":"a-1"}': 4_000_000_000})
    old.hset("jobs", "a-1", '{"to":"ada"}')
    command = ("adopt", "redis-zset", "bucket", "--job-hash", "jobs", "--job-id", "id", "--topic", "mail")
    assert bide(*command, "--source", redis_url).code == 0
    assert [each.body for each in everything("mail")] == [{"to": "ada"}]
    assert old.keys() == []


def test_a_member_may_be_a_topic_and_a_key(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    """As RedisDelayQueue lays them out: the set and the hash name a job TOPIC:ID."""
    for number, name in enumerate(("order:42", "pay:44", "order:43:2", "alone", ":45", "order:")):
        old.zadd("RD_ZSET_BUCKET", {name: 4_000_000_000_000 + number})
        old.hset("Redis_Delay_Table", name, json.dumps({"order": number}))
    old.rpush("RD_LIST_TOPIC:order", "order:46")
    old.hset("Redis_Delay_Table", "order:46", "{}")
    command = ("--job-hash", "Redis_Delay_Table", "--split", ":", "--source", redis_url, "--json")
    told = json.loads(bide("adopt", "redis-zset", "RD_ZSET_BUCKET", *command).out)
    assert told == NOTHING | {"adopted": 3, "refused": {"has an id that is not a topic and a key with : between them": 3}}
    assert [(each.key, each.body) for each in everything("order")] == [("42", {"order": 0}), ("43:2", {"order": 2})]
    assert [(each.key, each.body) for each in everything("pay")] == [("44", {"order": 1})]
    assert json.loads(bide("adopt", "redis-list", "RD_LIST_TOPIC:order", *command).out)["adopted"] == 1
    assert "46" in [each.key for each in everything("order")]
    assert bide("adopt", "redis-zset", "RD_ZSET_BUCKET", "--split", "", "--source", redis_url).code == 2


def test_of_two_members_with_one_job_the_later_one_stays(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    for number in range(3):
        old.zadd("bucket", {f'{{"id":"{number}","n":{twice}}}': 4_000_000_000 + twice for twice in range(2)})
        old.hset("jobs", str(number), str(number))
    command = ("adopt", "redis-zset", "bucket", "--job-hash", "jobs", "--job-id", "id", "--topic", "t", "--json")
    told = json.loads(bide(*command, "--source", redis_url).out)
    reason = "has no job in the hash: it was cancelled, a consumer has it, or it went with another entry"
    assert told == NOTHING | {"adopted": 3, "refused": {reason: 3}}
    assert {(each.body, each.due) for each in everything("t")} == {(number, 4_000_000_000_000) for number in range(3)}
    assert old.zcard("bucket") == 3


def test_an_entry_whose_key_is_taken_stays_at_the_source(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    with Queue(URL) as queue:
        queue.send("t", "newer", key="42", delay="1h")
    old.zadd("delayed", {'{"order":42}': 4_000_000_000, '{"order":43}': 4_000_000_000.0625})
    score = old.zscore("delayed", '{"order":42}')
    ended = bide("adopt", "redis-zset", "delayed", "--topic", "t", "--key-field", "order", "--source", redis_url)
    assert ended.out.splitlines()[1:] == [
        "Left at the source: 1. An entry has the key of a message that waits in the queue, for example: 42"
    ]
    assert old.zrange("delayed", 0, -1, withscores=True) == [(b'{"order":42}', score)]
    assert sorted(each.key or "" for each in everything("t")) == ["42", "43"]


def test_the_command_line_may_replace_what_has_the_key(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    with Queue(URL) as queue:
        queue.send("t", "older", key="42", delay="1h", max_attempts=9)
    old.zadd("delayed", {'{"order":42}': 4_000_000_000})
    command = ("adopt", "redis-zset", "delayed", "--topic", "t", "--key-field", "order", "--source", redis_url)
    assert bide(*command, "--if-exists", "replace", "--max-attempts", "7").code == 0
    [found] = everything("t")
    assert (found.body, found.due, found.max_attempts) == ({"order": 42}, 4_000_000_000_000, 7)
    assert old.keys() == []


def test_errors_say_what_to_do_and_no_password(bide: Bide, redis_url: str, old: redis.Redis) -> None:
    old.set("text", "x")
    wrong = bide("adopt", "redis-zset", "text", "--topic", "t", "--source", redis_url)
    assert (wrong.code, wrong.out[:7]) == (1, "Adopted")
    assert f"At {redis_url}, text is a string, and this command reads another type." in wrong.err
    old.zadd("ids", {"1": 4_000_000_000})
    wrong = bide("adopt", "redis-zset", "ids", "--job-hash", "text", "--topic", "t", "--source", redis_url)
    assert f"At {redis_url}, text is a string, and this command reads another type." in wrong.err
    wrong = bide("adopt", "redis-list", "ids", "--topic", "t", "--source", redis_url, "--dry-run")
    assert f"At {redis_url}, ids is a zset, and" in wrong.err
    nowhere = bide("adopt", "redis-zset", "k", "--topic", "t", "--source", "redis://ann:geheim@127.0.0.1:1/0")
    assert (nowhere.code, "geheim" in nowhere.err) == (1, False)
    assert "does not answer" in nowhere.err
    assert "Nothing waits there" not in wrong.err + nowhere.err
    for dry in ((), ("--dry-run",)):
        misspelt = bide("adopt", "redis-zset", "delaid", "--topic", "t", "--source", redis_url, *dry)
        assert (misspelt.code, misspelt.err) == (0, "Nothing waits there. Is the name right?\n")
    assert bide("adopt", "redis-zset", "k", "--source", redis_url).code == 2
    assert bide("adopt", "redis-zset", "k", "--topic", "t").code == 2


def test_ids_in_json_may_be_escaped_and_what_is_no_json_holds_nothing_up(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    members = (rb'{"id":"order\/42"}', rb'{"id":"caf\u00e9"}', b'{"id":43}', b'{"id":"1","x":' + b"[" * 5_000, b'{"\xff":1}')
    old.zadd("bucket", dict.fromkeys(members, 4e9))
    old.hset("jobs", mapping={"order/42": "1", "café": "2", "43": "3"})
    command = ("adopt", "redis-zset", "bucket", "--job-hash", "jobs", "--job-id", "id", "--topic", "t", "--json")
    told = json.loads(bide(*command, "--source", redis_url).out)
    assert (told["adopted"], told["refused"]) == (3, {"has no field id": 2})
    assert sorted(each.body for each in everything("t")) == [1, 2, 3]


def test_a_body_that_is_text_with_json_in_it_may_be_parsed(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    command = ("adopt", "redis-zset", "bucket", "--job-hash", "jobs", "--topic", "t", "--member", "message")
    messages = [json.dumps({"order": 42}), {"order": 43}, "44", "text", 45]
    for number, message in enumerate(messages):
        old.zadd("bucket", {str(number): 1})
        old.hset("jobs", str(number), json.dumps({"message": message}))
    assert bide(*command, "--parse-body", "--body-as", "order", "--source", redis_url).code == 0
    handled: list[object] = []
    with Queue(URL) as queue:
        for each in queue.receive("t", limit=10):
            handled.append(each.body)
            each.ack()
    assert sorted(handled, key=str) == [{"order": "text"}, *({"order": number} for number in (42, 43, 44, 45))]
