"""A polled table and a queue with a TTL, whose old programs go on while their messages are adopted by one that is killed.

`python -m pytest -m slow -s tests/adopt/test_dual_others.py` prints what became of every message.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from subprocess import Popen

import psycopg
import pytest

from tests.adopt.dual_run import OLD, DualRun
from tests.adopt.killing import FILLED, PRODUCED, adopt_amid, judge
from tests.servers.rabbitmq_fixtures import NewRabbit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TOTAL = FILLED + PRODUCED
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

        assert start("fill", str(FILLED), "0", "40", "120").wait(300) == 0
        start("work")
        start("work")
        start("produce", str(PRODUCED), str(FILLED), "40", "60")
        run.until(lambda: run.count(OLD) > 0, "the first row of the old pollers")
        command = ["table", "--query", QUERY, "--take", "delete from timers where id = :id", "--topic", "order"]

        def is_held() -> bool:
            return server.execute("select 1 from bide_adopt limit 1").fetchone() is not None

        told = adopt_amid(run, is_held, [*command, "--source", postgres_url], TOTAL, last=2)
        judge(run, "table", told, TOTAL)
        assert told["refused"] == {}
        assert server.execute("select count(*) from timers").fetchone() == (0,)
        assert not is_held()


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

        assert start("fill", str(FILLED), "0", "75", "150").wait(300) == 0
        start("work")
        start("produce", str(PRODUCED), str(FILLED), "75", "60")
        run.until(lambda: run.count(OLD) > 0, "the first message of the old consumer")
        command = ["rabbitmq-ttl", "wait", "--topic", "order", "--source", old.url]
        told = adopt_amid(run, lambda: is_noted(tmp_path / "bide-adopt.db"), command, TOTAL)
        judge(run, f"rabbitmq-ttl, {kind}", told, TOTAL)
        assert told["refused"] == {}
