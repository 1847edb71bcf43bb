"""Queues on every engine that may have a clock which tests step."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide import Queue
from tests.model.stepped import Place
from tests.servers.programs import needs_postgres, needs_program
from tests.servers.redis import RedisServer
from tests.servers.stepped import SteppedClock, SteppedPostgres, stepped_clock

ENGINES = ["memory", "sqlite", "redis", "redis, three shards", "postgres"]


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


@pytest.fixture
def exact(place: Place) -> Place:
    """One whose instants wait for the clock as it stands."""
    if not place.queue.capabilities.instants:
        pytest.skip("on this engine, an instant waits for engine time")
    return place
