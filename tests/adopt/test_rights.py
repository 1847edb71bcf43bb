"""Which rights `bide adopt` needs at a Redis, and what it says and leaves if one is missing."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import redis

from bide.adopt.redis.celery import celery
from bide.adopt.redis.celery_tasks import Rules
from bide.adopt.redis.rq import rq
from bide.adopt.redis.server import CLUSTER, RIGHTS, SourceServer, lacking, lacks
from bide.adopt.shape import Shape, TaskShape
from bide.adopt.source import AdoptSource
from bide.errors import ConfigError, EngineError
from tests.adopt import test_resuming
from tests.adopt.celery_worker import Worker, delivered, envelope, queued
from tests.adopt.test_resuming import fill_bullmq, picture
from tests.adopt.test_rq import CALL, TASKS, job
from tests.cli.running import Bide


def fill_rq(client: redis.Redis) -> None:
    job(client, "one", CALL, at=4_000_000_000)


def fill_celery(client: redis.Redis) -> None:
    for order in range(3):
        queued(client, envelope("shop.cancel", [], {"order": order}, 4e9))


def fill_unacked(client: redis.Redis) -> None:
    delivered(client, envelope("shop.cancel", [], {"order": 1}, 4e9))


def opened_rq(url: str) -> AdoptSource:
    return rq(SourceServer(url), "mail", Shape(topic="t"), TASKS, queued=False)


def opened_celery(url: str) -> AdoptSource:
    return celery(SourceServer(url), ["celery"], Shape(topic="t"), TaskShape(), Rules(stopped=True))


SOURCES: dict[str, tuple[Callable[[redis.Redis], None], Callable[[str], AdoptSource]]] = {
    **test_resuming.SOURCES,
    "rq": (fill_rq, opened_rq),
    "celery": (fill_celery, opened_celery),
    "unacked": (fill_unacked, opened_celery),
}


def takes_nothing(old: redis.Redis, redis_url: str, kind: str, rule: list[str]) -> None:
    """A user with this rule is told so, and all is as it was."""
    fill, opened = SOURCES[kind]
    fill(old)
    before = picture(old)
    old.execute_command("ACL", "SETUSER", "weak", "on", ">w", *rule)  # type: ignore[no-untyped-call]
    source = opened(redis_url.replace("redis://", "redis://weak:w@"))
    try:
        with pytest.raises(ConfigError, match="lacks a right"):
            source.take(1_000)
    finally:
        source.close()
        old.acl_deluser("weak")
    assert picture(old) == before


@pytest.mark.parametrize(
    ("kind", "right"),
    [
        *((kind, right) for kind in SOURCES for right in ("hset", "hdel")),
        *((kind, "zrem") for kind in ("redis-zset", "bullmq", "unacked")),
        *((kind, "lrem") for kind in ("redis-list", "bullmq")),
        *(("bullmq", right) for right in ("get", "del")),
        *(("rq", right) for right in ("rename", "del")),
    ],
)
def test_a_user_who_lacks_a_right_takes_nothing(old: redis.Redis, redis_url: str, kind: str, right: str) -> None:
    takes_nothing(old, redis_url, kind, ["~*", "&*", "+@all", f"-{right}"])


def test_tasks_of_celery_go_back_in_their_order(old: redis.Redis, redis_url: str) -> None:
    fill_celery(old)
    before = picture(old)
    source = opened_celery(redis_url)
    taken = source.take(1_000).found
    assert len(taken) == 3
    source.give_back([each.name for each in taken])
    source.close()
    assert picture(old) == before


def test_a_field_that_an_earlier_release_has_left_stops_nobody(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    old.zadd("delayed", {"1": 4_000_000_000})
    old.hset("{delayed}:bide-adopt", "right", "")
    ended = bide("adopt", "redis-zset", "delayed", "--topic", "t", "--source", redis_url)
    assert (ended.code, ended.err, old.keys()) == (0, "", [])


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("rq", ["~rq:scheduled:*", "~{rq:*", "~rq:scheduler*", "%R~rq:job:*"]),
        ("bullmq", ["~bull:mail:", "~bull:mail:[dpw]*", "~{bull:*", "%R~bull:mail:*"]),
    ],
)
def test_a_user_who_may_only_read_jobs_takes_none(old: redis.Redis, redis_url: str, kind: str, keys: list[str]) -> None:
    takes_nothing(old, redis_url, kind, ["+@all", *keys])


PAGE = (Path(__file__).parents[2] / "docs" / "adopt.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("### Rights in Redis")[2].partition("\n## ")[0]
KEYS = dict(re.findall(r"^\| `(redis-zset|bullmq|rq|celery)\b[^|]*\| (.*) \|$", SECTION, re.MULTILINE))


def rule(kind: str) -> list[str]:
    """What docs/adopt.md says that the user of a source needs."""
    parts: list[str] = re.findall(r"[~&][^\s`]+", KEYS[kind])
    return [*parts, *RIGHTS.split()]


def test_the_docs_have_the_rights_that_an_error_names() -> None:
    assert f"{RIGHTS}\n```" in PAGE
    assert f"In a Cluster, add `{CLUSTER}`." in PAGE
    assert f"{RIGHTS} {CLUSTER}. The user" in lacking("redis+cluster://old", "NOPERM", "")
    assert KEYS.keys() == {"redis-zset", "bullmq", "rq", "celery"}


@pytest.mark.parametrize("kind", ["redis-zset", "redis-list", "bullmq", "rq", "celery"])
def test_the_rights_that_the_docs_name_are_enough(bide: Bide, old: redis.Redis, redis_url: str, kind: str) -> None:
    commands = {
        "redis-zset": ("delayed", "--job-hash", "jobs"),
        "redis-list": ("delayed",),
        "bullmq": ("mail", "--waiting"),
        "rq": ("default", "--queued"),
        "celery": ("--immediate", "--workers", "1"),
    }
    if kind == "redis-zset":
        old.zadd("delayed", {"1": 4_000_000_000})
        old.hset("jobs", "1", "{}")
    elif kind == "redis-list":
        old.rpush("delayed", "1")
    elif kind == "bullmq":
        fill_bullmq(old)
    elif kind == "rq":
        for at in (None, 4_000_000_000):
            job(old, str(at), CALL, at=at, origin="default")
            old.zadd("rq:scheduled:default", {str(at): at}) if at else old.rpush("rq:queue:default", str(at))
    else:
        queued(old, envelope("t", [], {}, time.time() + 3_600))
        queued(old, envelope("t", [], {}, time.time() + 3_600), key="celery\x06\x163")
        delivered(old, envelope("t", [], {}, time.time() + 3_600))
    client: Any = old
    client.execute_command(
        "ACL", "SETUSER", "adopter", "reset", "on", ">w", *rule("redis-zset" if kind == "redis-list" else kind)
    )
    args = "shop.cancel=order" if kind == "rq" else ""
    command = ("adopt", kind, *commands[kind], "--topic", "t", *(("--args", args) if args else ()), "--json")
    source = ("--source", redis_url.replace("redis://", "redis://adopter:w@"))
    try:
        with Worker(old) if kind == "celery" else nullcontext():
            looked = bide(*command, *source, "--dry-run")
            assert (looked.code, looked.err) == (0, "")
            ended = bide(*command, *source)
    finally:
        old.acl_deluser("adopter")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out)["adopted"] == json.loads(looked.out)["count"] > 0


SCRIPT = "-- script\nredis.call('HDEL', KEYS[1], 'right')\nredis.call(ARGV[2] == 'left' and 'LPUSH' or 'RPUSH', KEYS[1])"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("this user has no permissions to run the 'hset' command", ": Redis refused the command HSET."),
        (
            "NOPERM this user has no permissions to run the 'hset' command or its subcommand",
            ": Redis refused the command HSET.",
        ),
        ("ACL failure in script: User w has no permissions to run the 'client|list' command", " the command CLIENT|LIST."),
        ("NOPERM No permissions to access a key", ": Redis refused a key."),
        ("this user has no permissions to access one of the keys used as arguments", ": Redis refused a key."),
        ("ACL failure in script: User w has no permissions to access the 'jobs' key", ": Redis refused the key jobs."),
        (
            "this user has no permissions to access one of the channels used as arguments",
            ": Redis refused a channel of Pub/Sub.",
        ),
        ("The user executing the script can't run this command or subcommand script: 1a, on @user_script:2.", "HDEL."),
        (
            "The user executing the script can't run this command or subcommand script: 1a, on @user_script:3.",
            "LPUSH or RPUSH.",
        ),
        ("The user executing the script can't run this command or subcommand", "lacks a right. Let"),
        ("NOPERM", "lacks a right. Let"),
    ],
)
def test_the_error_names_what_redis_refused(text: str, told: str) -> None:
    assert lacks(text)
    assert told in lacking("redis://old", text, SCRIPT)


def test_an_error_of_rights_tells_what_to_grant(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    old.zadd("delayed", {"1": 4_000_000_000})
    client: Any = old
    client.execute_command("ACL", "SETUSER", "weak", "reset", "on", ">w", "~*", *RIGHTS.split(), "-hdel")
    source = redis_url.replace("redis://", "redis://weak:w@")
    try:
        ended = bide("adopt", "redis-zset", "delayed", "--topic", "t", "--source", source)
    finally:
        old.acl_deluser("weak")
    said = " ".join(ended.err.split())
    assert ended.code == 1
    assert "lacks a right: Redis refused the command HDEL." in said
    assert f"with the user's name and: {RIGHTS}. " in said
    assert "doctor" not in said


@pytest.fixture
def full(old: redis.Redis) -> Iterator[redis.Redis]:
    """The same server, which has no limit again at the end."""
    yield old
    client: Any = old
    client.config_set("maxmemory", "0")


def fill_up(client: Any) -> None:
    client.config_set("maxmemory", "1")
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        client.set("more", 1)


@pytest.mark.parametrize("kind", ["redis-zset", "redis-list"])
def test_a_redis_at_its_maxmemory_can_be_emptied(bide: Bide, full: redis.Redis, redis_url: str, kind: str) -> None:
    members = {str(number): 4_000_000_000 + number for number in range(2_500)}
    full.zadd("delayed", members) if kind == "redis-zset" else full.rpush("delayed", *members)
    fill_up(full)
    ended = bide("adopt", kind, "delayed", "--topic", "t", "--json", "--source", redis_url)
    assert (ended.code, json.loads(ended.out)["adopted"], full.keys()) == (0, 2_500, [])


def test_a_write_that_has_no_memory_is_told(full: redis.Redis, redis_url: str) -> None:
    fill_up(full)
    server = SourceServer(redis_url)
    with pytest.raises(EngineError, match="is at its maxmemory and refused a write") as told:
        server.call("SADD", "key", "1")
    assert "drained" not in str(told.value)
    server.close()
