"""A single server is killed under load and starts again with its append-only file: what it accepted is there.

A process that is killed leaves the system what it has written, so this shows nothing of a machine that loses its power.
"""

import os
from pathlib import Path

import pytest

from tests.redis.failing_over import Crowd, judge
from tests.servers.fixtures import NewRedis
from tests.servers.redis import RedisServer

LONG = os.environ.get("BIDE_LONG")
KILLS = 200 if LONG else 2
pytestmark = pytest.mark.timeout(3_600 if LONG else 120)


def kill_often(server: RedisServer, crowd: Crowd) -> None:
    with crowd.at_work():
        for _ in range(KILLS):
            with crowd.fault("kill") as dealt:
                server.kill()
                server.start()
                dealt.now()


def test_a_server_that_syncs_always_loses_nothing_when_it_is_killed(new_redis: NewRedis, tmp_path: Path) -> None:
    server = new_redis(appendonly="yes", appendfsync="always")
    crowd = Crowd(server.url, tmp_path, loses=False)
    kill_often(server, crowd)
    assert judge(crowd).lost == 0


def test_a_server_that_syncs_every_second_loses_only_what_was_not_written(new_redis: NewRedis, tmp_path: Path) -> None:
    server = new_redis(appendonly="yes", appendfsync="everysec")
    crowd = Crowd(server.url, tmp_path)
    kill_often(server, crowd)
    judge(crowd)
