"""A message of its own is stored as any other, though a shorter script does it where all is as usual."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bide.engines.base import End, NewMessage, Settings
from bide.engines.redis.script import Script, scripts
from bide.engines.registry import source
from bide.engines.sync import Engine
from tests.servers.redis import RedisServer

START = 4_000_000_000_000
MINUTE, DAY = 60_000, 86_400_000
SHORT = "if ARGV[9] == '1' and #ARGV == 14 then"


@contextmanager
def engine_at(url: str) -> Iterator[Engine]:
    engine = source(Settings(url=url)).sync()
    engine.open()
    yield engine
    engine.close()


@pytest.fixture
def opened(redis_url: str) -> Iterator[Engine]:
    with engine_at(redis_url) as engine:
        yield engine


def new(chance: random.Random, now: int) -> NewMessage:
    wait = chance.choice((0, 1, 5_000, MINUTE, 15 * MINUTE, DAY, 40 * DAY)) + chance.randrange(4)
    at = now + wait - 2 if chance.random() < 0.3 else None
    return NewMessage(
        chance.choice("tu"),
        b"x" * chance.randrange(50),
        delay=0 if at else wait,
        at=at,
        level=chance.choice((0, 0, 1)),
        max_attempts=chance.choice((3, 3, 5)),
        headers=chance.choice(({}, {}, {"a": "b"})),
    )


def stored(client: Any) -> dict[bytes, Any]:
    """All that is stored but for the time of the server, and the lane, which has a name of its own."""
    found: dict[bytes, Any] = {}
    for key in client.keys("*"):
        kind = client.type(key)
        if kind == b"hash":
            found[key] = {name: told for name, told in client.hgetall(key).items() if name != b"raw"}
            if b":lanes:" in key:
                found[key] = sorted(found[key].values())
        else:
            found[key] = client.lrange(key, 0, -1) if kind == b"list" else client.zrange(key, 0, -1, withscores=True)
    return found


def put_by_turns(engine: Engine, seed: int) -> list[Any]:
    """Put one by one, and claim at times, so that slots are entered and left."""
    chance, now, answers = random.Random(seed), START + seed, list[Any]()
    for step in range(400):
        now += chance.choice((0, 1, 500, 20 * MINUTE))
        answers += engine.put([new(chance, now)], now=now)
        if step % 40 == 39:
            for each in engine.claim(["t", "u"], 30, MINUTE, request=f"{step}", now=now).messages:
                engine.settle([End(each.topic, each.id, each.token, "done")], now=now)
    return answers


@pytest.mark.parametrize("seed", range(4))
def test_one_by_one_they_are_stored_as_by_the_longer_script(
    redis_server: RedisServer, redis_url: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("os.urandom", lambda size: b"s" * size)
    usual, longer = scripts()["put"], dict(scripts())
    assert usual.text.count(SHORT) == 1
    longer["put"] = Script("put", usual.text.replace(SHORT, "if false then"), "0" * 40)
    seen = []
    with redis_server.client() as client:
        for known in (scripts(), longer):
            client.flushall()
            monkeypatch.setattr("bide.engines.redis.sync.calls.scripts", lambda known=known: known)
            with engine_at(redis_url) as engine:
                answers = put_by_turns(engine, seed)
                seen.append((answers, stored(client)))
    assert seen[0] == seen[1]


def test_what_is_as_usual_takes_the_shorter_way(redis_server: RedisServer, opened: Engine) -> None:
    opened.put([NewMessage("t", b"x", delay=20 * MINUTE)] * 2, now=START)
    with redis_server.client() as client:
        client.config_resetstat()
        opened.put([NewMessage("t", b"x", delay=20 * MINUTE)], now=START)
        told = client.info("commandstats")
    assert "cmdstat_rpush" in told
    assert "cmdstat_hgetall" not in told, "the topic was read as a whole"


def test_a_message_for_now_is_due_at_once_also_between_two_milliseconds(opened: Engine) -> None:
    [first] = opened.put([NewMessage("t", b"x")])
    [second] = opened.put([NewMessage("t", b"x")])
    claim = opened.claim(["t"], 2, MINUTE)
    assert {each.id for each in claim.messages} == {first.id, second.id}
