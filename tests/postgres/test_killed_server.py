"""A server that is killed, or crashes, under load: what was accepted is there, and nothing is ended twice.

A process that is killed leaves the system what it has written, so this shows nothing of a machine that loses its power.
"""

import os
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.redis.failing_over import Crowd, judge
from tests.servers.fixtures import NewPostgres
from tests.servers.postgres import PostgresServer

LONG = os.environ.get("BIDE_LONG")
SYNC = "select pg_logical_emit_message(true, 'bide', '')"  # a commit that is synced, and with it all claims before it
RECOVERED = "database system is ready to accept connections"
KILLS = 50 if LONG else 2
pytestmark = pytest.mark.timeout(3_600 if LONG else 180)


def kill_server(server: PostgresServer) -> None:
    server.kill()
    server.start()


def crash_backend(server: PostgresServer) -> None:
    """A process of the server dies, so that it ends all others and recovers."""
    with psycopg.connect(server.url, application_name="bide") as own:  # nobody else ends it meanwhile
        recovered = server.log_text().count(RECOVERED)
        os.kill(own.info.backend_pid, 9)
    while server.log_text().count(RECOVERED) == recovered:  # until then, what it goes on doing may be undone
        assert server.running


def play(fault: Callable[[PostgresServer], None], times: int, crowd: Crowd, server: PostgresServer) -> None:
    with crowd.at_work():
        for _ in range(times):
            with crowd.fault("kill") as dealt:
                server.ask(SYNC)
                fault(server)
                dealt.now()
    outcome = judge(crowd)
    assert outcome.lost == 0
    assert outcome.report.counts["undone"] == 0


@pytest.mark.always
@pytest.mark.parametrize("fault", [kill_server, crash_backend])
def test_a_server_that_is_killed_loses_claims_and_nothing_else(
    fault: Callable[[PostgresServer], None], new_postgres: NewPostgres, tmp_path: Path
) -> None:
    """A claim is not synced: its message may be handed out again at once, and the ack of the lost delivery is refused."""
    server = new_postgres()
    play(fault, KILLS, Crowd(f"{server.url}?timeout=2", tmp_path), server)
