"""Connections that are ended under load: what was accepted is there, and nothing is ended twice."""

import os
from pathlib import Path

import pytest

from tests.redis.failing_over import Crowd, judge
from tests.servers.fixtures import NewPostgres
from tests.servers.postgres import PostgresServer

LONG = os.environ.get("BIDE_LONG")
BACKENDS = 200 if LONG else 5
pytestmark = pytest.mark.timeout(3_600 if LONG else 180)


def end_backends(server: PostgresServer) -> None:
    """All connections of bide are ended, as by an administrator."""
    server.ask("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'bide'")


@pytest.mark.always
def test_connections_that_are_ended_lose_nothing(new_postgres: NewPostgres, tmp_path: Path) -> None:
    server = new_postgres()
    crowd = Crowd(f"{server.url}?timeout=2", tmp_path, loses=False)
    with crowd.at_work():
        for _ in range(BACKENDS):
            with crowd.fault("kill") as dealt:
                end_backends(server)
                dealt.now()
    assert judge(crowd).lost == 0
