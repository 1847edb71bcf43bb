"""A topic that is paused while a claim is under way: once the pause has answered, nothing more is handed out."""

from concurrent.futures import ThreadPoolExecutor

import psycopg

from bide import Queue

CLAIM = "select id from bide.hand_out('{t}', array[-1::bigint], 10, 60000, 'r', '{}', null) where id is not null"
WAITING = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


def test_a_pause_waits_for_a_claim_that_is_under_way(postgres_url: str, other: psycopg.Connection) -> None:
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as own, ThreadPoolExecutor(1) as threads:
        queue.send("t")
        assert own.execute(CLAIM).fetchall()
        pausing = threads.submit(queue.pause, "t")
        while other.execute(WAITING).fetchone() is None:
            assert not pausing.done()
        own.commit()
        pausing.result()
        assert queue.stats("t").leased


def test_a_claim_waits_for_a_pause_and_then_takes_nothing(postgres_url: str, other: psycopg.Connection) -> None:
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as own, ThreadPoolExecutor(1) as threads:
        queue.send("t")
        own.execute("select bide.pause('t', true)")
        claiming = threads.submit(lambda: other.execute(CLAIM).fetchall())
        while own.execute(WAITING).fetchone() is None:
            assert not claiming.done()
        own.commit()
        assert claiming.result() == []
