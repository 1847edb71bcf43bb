"""Processes hammer a few gates while shards become others and processes die: nobody is ever inside beside somebody else."""

import os
import time
from pathlib import Path

import pytest

from bide.engines.base import Settings
from bide.engines.redis import resharding, source
from tests.redis.gate_crew import Crew, Stay, overlaps
from tests.redis.invariants import invariants_hold
from tests.redis.keyspace import names
from tests.redis.test_reshard_under_load import being_resharded
from tests.servers.fixtures import NewCluster
from tests.servers.redis import RedisServer

LONG = os.environ.get("BIDE_LONG")
SIZES = [6, 1, 4, 3] if LONG else [5, 2]
MANY = 4_000 if LONG else 300  # entries between two things that happen
pytestmark = pytest.mark.timeout(1_200 if LONG else 180)


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old shards are given up while the crew is at work, and not after ten minutes; but not before the clock has passed their
    tokens, which run ahead of it when many are given in a millisecond or when it was set back."""
    monkeypatch.setattr(resharding, "REMEMBERED", 500)


def empty(url: str) -> None:
    """All that anybody has left behind is over by then."""
    engine = source(Settings(url=url)).sync()
    engine.open()
    now = time.time_ns() // 1_000_000
    while (next_in := engine.tend(now=now).next_in) is not None:
        now += max(next_in, 1)
    engine.close()


def judge(crew: Crew) -> None:
    stays = crew.stays()
    assert overlaps(stays) == []
    assert len({each.whose for some in stays.values() for each in some}) > 3


@pytest.mark.always
def test_nobody_is_inside_beside_somebody_else(redis_url: str, redis_server: RedisServer, tmp_path: Path) -> None:
    url = f"{redis_url}?shards=3"
    crew = Crew(url, tmp_path)
    with crew.at_work(4):
        crew.let_in(MANY)
        for size in SIZES:
            with being_resharded(url, size):
                crew.let_in(MANY)
            crew.kill_one()
            crew.join_in(1)
        crew.let_in(MANY)
    judge(crew)
    empty(url)
    with redis_server.client() as client:
        invariants_hold(client)
        assert {name.partition("}:")[2].partition(":")[0] for name in names(client)} == {"meta", "lanes"}


@pytest.mark.slow
def test_nobody_is_inside_beside_somebody_else_in_a_cluster(new_cluster: NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster()
    crew = Crew(cluster.url, tmp_path)
    with crew.at_work(4):
        for _ in SIZES:
            crew.let_in(MANY)
            crew.kill_one()
            crew.join_in(1)
    judge(crew)


def test_two_who_are_inside_at_once_are_found() -> None:
    one, after = Stay("1", 1.0, 2.0, "a"), Stay("2", 2.5, 3.0, "b")
    assert overlaps({"g": [one, after]}) == []
    assert overlaps({"g": [one, Stay("2", 1.9, 3.0, "b")]})
    assert overlaps({"g": [one, Stay("0", 2.5, 3.0, "b")]})
