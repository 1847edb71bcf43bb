"""Which rights `bide adopt` needs at a Redis, and what it says and leaves if one is missing."""

from collections.abc import Callable

import pytest
import redis

from bide.adopt.arguments import TaskShape
from bide.adopt.redis.celery import celery
from bide.adopt.redis.celery_limits import Rules
from bide.adopt.redis.rq import rq
from bide.adopt.redis.server import Server
from bide.adopt.shaping import Shape
from bide.adopt.source import Source
from bide.errors import ConfigError
from tests.adopt.celery_worker import delivered, envelope, queued
from tests.adopt.test_resuming import picture
from tests.adopt.test_rq import CALL, TASKS, job
from tests.cli.running import Bide


def fill_rq(client: redis.Redis) -> None:
    job(client, "one", CALL, at=4_000_000_000)


def fill_celery(client: redis.Redis) -> None:
    queued(client, envelope("shop.cancel", [], {"order": 1}, 4e9))


def fill_unacked(client: redis.Redis) -> None:
    delivered(client, envelope("shop.cancel", [], {"order": 1}, 4e9))


def opened_rq(url: str) -> Source:
    return rq(Server(url), "mail", Shape(topic="t"), TASKS, queued=False)


def opened_celery(url: str) -> Source:
    return celery(Server(url), ["celery"], Shape(topic="t"), TaskShape(), Rules(stopped=True))


SOURCES: dict[str, tuple[Callable[[redis.Redis], None], Callable[[str], Source]]] = {
    "rq": (fill_rq, opened_rq),
    "celery": (fill_celery, opened_celery),
    "unacked": (fill_unacked, opened_celery),
}


@pytest.mark.parametrize(
    ("kind", "right"), [*((kind, right) for kind in SOURCES for right in ("hset", "hdel")), ("unacked", "zrem")]
)
def test_a_user_who_lacks_a_right_takes_no_tasks(old: redis.Redis, redis_url: str, kind: str, right: str) -> None:
    fill, opened = SOURCES[kind]
    fill(old)
    before = picture(old)
    old.acl_setuser("weak", enabled=True, passwords=["+w"], keys=["*"], channels=["*"], commands=["+@all", f"-{right}"])
    source = opened(redis_url.replace("redis://", "redis://weak:w@"))
    try:
        with pytest.raises(ConfigError, match="lacks a right"):
            source.take(1_000)
    finally:
        source.close()
        old.acl_deluser("weak")
    assert picture(old) == before


def test_a_field_that_an_earlier_release_has_left_stops_nobody(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    old.zadd("delayed", {"1": 4_000_000_000})
    old.hset("{delayed}:bide-adopt", "right", "")
    ended = bide("adopt", "redis-zset", "delayed", "--topic", "t", "--source", redis_url)
    assert (ended.code, ended.err, old.keys()) == (0, "", [])
