"""A polled table and a queue with a TTL, whose old programs go on while their messages are adopted by one that is killed.

`python -m pytest -m slow -s tests/adopt/test_dual_others.py` prints what became of every message.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from subprocess import Popen

import psycopg
import pytest

from tests.adopt.dual_run import DualRun
from tests.adopt.killing import Dues, dual_run
from tests.servers.rabbitmq_fixtures import NewRabbit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TABLE = "create table timers (id bigint generated always as identity primary key, n int not null, due timestamptz not null)"
BODY = "jsonb_build_object('n', n, 'due', (extract(epoch from due) * 1000)::bigint) as body"
QUERY = f"select id, due, {BODY} from timers order by due"


def test_a_polled_table(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as server, DualRun(tmp_path, redis_url, "order") as run:
        server.execute(TABLE)
        server.execute("create index on timers (due)")
        server.execute(
            "create table bide_adopt (name text primary key, source text not null, taken bigint not null, entry text)"
        )

        def start(*arguments: str) -> Popen[bytes]:
            return run.python("poller.py", postgres_url, *arguments)

        def is_held() -> bool:
            return server.execute("select 1 from bide_adopt limit 1").fetchone() is not None

        command = ["table", "--query", QUERY, "--take", "delete from timers where id = :id", "--topic", "order"]
        command += ["--source", postgres_url]
        pollers, filled, produced = ("work", "work"), Dues(40, 120), Dues(40, 60)
        dual_run(run, "table", start, command, is_held, workers=pollers, filled=filled, produced=produced, last=2)
        assert server.execute("select count(*) from timers").fetchone() == (0,)


def is_noted(file: Path) -> bool:
    """Whether messages are held in the adopter's file. While it runs, it has the file to itself."""
    if not file.exists():
        return False
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, timeout=0)) as connection:
        try:
            return connection.execute("select 1 from held limit 1").fetchone() is not None
        except sqlite3.OperationalError:
            return True


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_with_a_ttl(tmp_path: Path, new_rabbitmq: NewRabbit, redis_url: str, kind: str) -> None:
    old = new_rabbitmq()
    with DualRun(tmp_path, redis_url, "order") as run:

        def start(*arguments: str) -> Popen[bytes]:
            return run.python("ttl_queue.py", old.url, kind, *arguments)

        def is_held() -> bool:
            return is_noted(tmp_path / "bide-adopt.db")

        command = ["rabbitmq-ttl", "wait", "--topic", "order", "--source", old.url]
        filled, produced = Dues(75, 150), Dues(75, 60)
        dual_run(run, f"rabbitmq-ttl, {kind}", start, command, is_held, filled=filled, produced=produced)
