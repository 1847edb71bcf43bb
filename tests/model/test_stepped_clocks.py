"""The clock of a server is stepped forward and back under a queue that is in use."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from bide import Queue
from tests.servers.programs import needs_postgres, needs_program
from tests.servers.redis import RedisServer
from tests.servers.stepped import SteppedClock, SteppedPostgres, stepped_clock

ENGINES = ["memory", "sqlite", "redis", "redis, three shards", "postgres"]
HOUR = 3_600.0
PATIENCE = 15.0
TOPIC = "t"


class Place(NamedTuple):
    queue: Queue
    clock: SteppedClock

    def wall(self) -> float:
        """As the server has it, rounded down to the millisecond."""
        return self.clock.now_ns() // 1_000_000 / 1_000

    def send_at(self, wall: float) -> str:
        return str(self.queue.send(TOPIC, ["at", wall], at=datetime.fromtimestamp(wall, UTC)))

    def send_after(self, seconds: float) -> str:
        return str(self.queue.send(TOPIC, ["after", time.monotonic(), seconds], delay=seconds))


@pytest.fixture(scope="module")
def clock() -> Iterator[SteppedClock]:
    with stepped_clock() as made:
        yield made


@pytest.fixture(scope="module")
def stepped_redis(clock: SteppedClock) -> Iterator[str]:
    needs_program("redis-server")
    with RedisServer(under=clock.under) as server:
        yield server.url


@pytest.fixture(scope="module")
def stepped_postgres(clock: SteppedClock) -> Iterator[str]:
    needs_postgres()
    with SteppedPostgres(clock) as server:
        yield server.url


@pytest.fixture(params=ENGINES)
def place(request: pytest.FixtureRequest, clock: SteppedClock, tmp_path: Path) -> Iterator[Place]:
    clock.set_right()
    name = f"ns{time.monotonic_ns()}"
    if request.param in ("memory", "sqlite"):
        url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/bide.db"
        made = Queue(url, namespace=name, clock=clock)
    elif request.param == "postgres":
        made = Queue(request.getfixturevalue("stepped_postgres"), namespace=name)
    else:
        shards = "?shards=3" if "shards" in request.param else ""
        made = Queue(request.getfixturevalue("stepped_redis") + shards, namespace=name)
    with made:
        yield Place(made, clock)


def come_until(place: Place, wanted: set[str], patience: float = PATIENCE) -> dict[str, float]:
    """When each came, by the server's clock. Raises for what came before its instant."""
    came: dict[str, float] = {}
    give_up = time.monotonic() + patience
    while wanted - came.keys():
        assert time.monotonic() < give_up, f"{wanted - came.keys()} did not come"
        for each in place.queue.receive(TOPIC, limit=10, wait=0.2):
            came[each.id] = place.wall()
            if each.body[0] == "at":
                assert came[each.id] >= each.body[1], f"{each.body[1] - came[each.id]:.3f} s too early"
            each.ack()
    return came


def be_ahead(place: Place, seconds: float) -> None:
    """For as long as it takes that the engine knows of it, each shard; then the clock is set right."""
    place.clock.step(seconds)
    for number in range(20):
        place.queue.send("other", key=str(number))
    left = 20
    while left:
        found = place.queue.receive("other", limit=left, wait=PATIENCE)
        left -= len(found)
        place.queue.ack_many(found)
    place.clock.set_right()


def test_a_delay_is_no_instant_and_takes_at_most_twice_as_long_after_the_clock_was_set_back(place: Place) -> None:
    be_ahead(place, HOUR)
    began = time.monotonic()
    id = place.send_after(1.0)
    come_until(place, {id})
    passed = time.monotonic() - began
    assert passed >= 0.999
    assert passed < 2 + PATIENCE / 3  # not the hour


def test_an_instant_comes_when_a_step_forward_reaches_it(place: Place) -> None:
    id = place.send_at(place.wall() + HOUR)
    assert place.queue.receive(TOPIC) == []
    place.clock.step(HOUR + 1)
    come_until(place, {id})
