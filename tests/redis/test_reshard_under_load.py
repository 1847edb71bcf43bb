"""`bide reshard` while programs work and masters are killed: nothing confirmed is lost, and each key has one message."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from bide import EngineError
from bide.engines.base import Settings
from bide.engines.redis import resharding, source
from tests.redis.failing_over import Crowd, judge
from tests.servers.fixtures import NewCluster, NewSentinels
from tests.servers.redis import RedisServer

LONG = os.environ.get("BIDE_LONG")
pytestmark = pytest.mark.timeout(1_800 if LONG else 240)
SIZES = [6, 3, 1, 4] if LONG else [6, 3]
PATIENCE = 60.0  # seconds
PAUSE = 0.2  # between two looks whether the old shards are empty
LOOKS = 300 if LONG else 5


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old shards are given up while the crowd is at work, and not after ten minutes."""
    monkeypatch.setattr(resharding, "REMEMBERED", 2_000 if LONG else 0)


@contextmanager
def being_resharded(url: str, size: int) -> Iterator[None]:
    """It begins with the block. Afterwards it is over, or dead letters keep old shards."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(reshard, url, size)
        yield
        done.result(2 * PATIENCE)


def reshard(url: str, size: int) -> None:
    """As the command does, and again after each error."""
    begun, looks, give_up = False, 0, time.monotonic() + PATIENCE
    with source(Settings(url=url)).resharding() as work:
        while looks < LOOKS and time.monotonic() < give_up:
            try:
                if not begun:
                    work.begin(size)
                begun, looks = True, looks + 1
                if work.step() is None:
                    break
            except EngineError as error:
                print(f"reshard {size}: {error!r}"[:200])
            time.sleep(PAUSE)
    assert begun


@pytest.mark.always
def test_a_server_is_resharded_under_load(redis_url: str, redis_server: RedisServer, tmp_path: Path) -> None:
    crowd = Crowd(f"{redis_url}?shards=3", tmp_path, loses=False)
    with crowd.at_work():
        for size in SIZES:
            with crowd.fault(f"reshard {size}"), being_resharded(redis_url, size):
                pass
    assert judge(crowd).lost == 0


@pytest.mark.slow
def test_a_cluster_is_resharded_while_its_masters_are_killed(new_cluster: NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster()
    crowd = Crowd(cluster.url, tmp_path, confirm="replicas:1")
    with crowd.at_work():
        for turn, size in enumerate(SIZES):
            with crowd.fault(f"reshard {size}"), being_resharded(f"{cluster.url}?confirm=replicas:1", size):
                old = cluster.masters()[turn % 3]
                cluster.kill(old)
                cluster.wait_for_promotion(of=old)
                cluster.restart(old)
                cluster.wait_until_whole()
    assert judge(crowd).lost == 0


@pytest.mark.slow
def test_a_sentinel_group_is_resharded_while_its_master_is_killed(new_sentinels: NewSentinels, tmp_path: Path) -> None:
    group = new_sentinels()
    crowd = Crowd(f"{group.url}?shards=3", tmp_path, confirm="replicas:2")
    with crowd.at_work():
        for size in SIZES:
            with crowd.fault(f"reshard {size}"), being_resharded(f"{group.url}?confirm=replicas:2", size):
                old = group.kill_master()
                group.wait_for_promotion(of=old)
                group.restart(old)
                group.wait_until_whole()
    assert judge(crowd).lost == 0
