"""An outbox in PostgreSQL: what the caller's transaction commits is handed on to a queue elsewhere."""

import psycopg

from bide import Queue


def test_a_commit_is_handed_on_and_a_rollback_never_is(postgres_url: str) -> None:
    with Queue("memory://", outbox=postgres_url) as queue, psycopg.connect(postgres_url) as own:
        assert queue.relay(wait=False) == 0  # makes the tables
        queue.send("t", "rolled back", connection=own)
        own.rollback()
        queue.send("t", "committed", delay=0, key="k", connection=own)
        assert queue.relay(wait=False) == 0  # nothing is seen before the commit
        own.commit()
        assert queue.relay(wait=False) == 1
        assert [(each.body, each.key) for each in queue.receive("t", limit=9)] == [("committed", "k")]
