"""How the ways that people build on Redis lose messages."""

import time
from typing import Any

import pytest
from redis import Redis

from examples.roads import key_expiry, redis_list, rpoplpush, zset_lua, zset_polled
from tests.roads.conftest import Start


class Killed(BaseException):
    """Where a process is killed."""


@pytest.fixture
def server(redis_url: str) -> Any:
    with zset_polled.connect(redis_url) as client:
        yield client


@pytest.mark.parametrize("way", [redis_list, zset_polled, zset_lua], ids=lambda way: way.__name__.rpartition(".")[2])
def test_what_a_killed_consumer_had_in_hand_is_lost(way: Any, redis_url: str, server: Redis, start: Start) -> None:
    # Given a consumer that has taken a message
    way.send(server, "lost", 0)
    killed = start(way.__name__.rpartition(".")[2], redis_url, "--stuck")
    assert killed.handled() == "lost"
    # When it is killed, and another one is there
    killed.kill()
    way.send(server, "later", 0)
    other = start(way.__name__.rpartition(".")[2], redis_url)
    # Then the other one gets what was sent later, and the server has nothing left
    assert other.handled() == "later"
    other.kill()
    assert server.keys() == []


def test_a_list_loses_a_message_that_is_not_even_due(server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    redis_list.send(server, "in an hour", 3_600)

    def killed(*_: object) -> None:
        raise Killed

    # When its consumer is killed between its look and putting the message back
    monkeypatch.setattr(server, "lpush", killed)
    with pytest.raises(Killed):
        redis_list.work(server, print)
    assert server.keys() == []


def test_equal_messages_are_one_in_a_sorted_set(server: Redis) -> None:
    zset_polled.send(server, "remind ann", 60)
    zset_polled.send(server, "remind ann", 3_600)
    # Then the first one is gone, and nobody is told
    assert server.zcard("orders") == 1
    assert server.zscore("orders", "remind ann") > server.time()[0] + 3_000  # type: ignore[operator]


def test_a_sorted_set_looks_once_a_period(server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[str] = []
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        if slept:
            raise Killed
        slept.append(seconds)
        zset_polled.send(server, "due now", 0)

    monkeypatch.setattr(time, "sleep", sleep)
    # When a message falls due just after a look
    with pytest.raises(Killed):
        zset_polled.work(server, handled.append, period=1.0)
    # Then it waits for the whole period
    assert (slept, handled) == ([1.0], ["due now"])


def test_a_script_that_takes_many_loses_them_all(redis_url: str, server: Redis, start: Start) -> None:
    for number in range(100):
        zset_lua.send(server, f"{number:02}", 0)
    killed = start("zset_lua", redis_url, "--stuck")
    assert killed.handled() == "00"
    killed.kill()
    # Then those that nobody has begun are gone, too
    assert server.keys() == []


def test_nobody_returns_what_rpoplpush_has_moved(redis_url: str, server: Redis, start: Start) -> None:
    rpoplpush.send(server, "stays", 0)
    killed = start("rpoplpush", redis_url, "--stuck")
    assert killed.handled() == "stays"
    killed.kill()
    rpoplpush.send(server, "later", 0)
    other = start("rpoplpush", redis_url)
    assert other.handled() == "later"
    other.kill()
    # Then the first one is still in the server, where no consumer looks
    assert "stays" in server.lrange("doing", 0, -1)
    assert server.zcard("orders") + server.llen("due") == 0


def test_an_expiry_that_nobody_listens_to_is_lost(redis_url: str, start: Start) -> None:
    with key_expiry.connect(redis_url) as server:
        # Given a key that expires while no consumer is there
        key_expiry.send(server, "lost", 0.001)
        while server.exists("timer:lost"):
            pass
        # When a consumer comes
        consumer = start("key_expiry", redis_url)
        while server.pubsub_numpat() == 0:  # it listens
            pass
        key_expiry.send(server, "heard", 0.001)
        # Then it is told of later expiries only
        assert consumer.handled() == "heard"


def test_each_consumer_is_told_of_each_expiry(redis_url: str, start: Start) -> None:
    with key_expiry.connect(redis_url) as server:
        consumers = [start("key_expiry", redis_url) for _ in range(2)]
        while server.info("stats")["pubsub_patterns"] < 1 or len(_listeners(server)) < 2:
            pass
        key_expiry.send(server, "twice", 0.001)
        assert [each.handled() for each in consumers] == ["twice", "twice"]


def _listeners(server: Any) -> list[Any]:
    return [each for each in server.client_list(_type="pubsub") if int(each["psub"])]
