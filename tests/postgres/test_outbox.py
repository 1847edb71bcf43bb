"""An outbox in PostgreSQL: what the caller's transaction commits is handed on to a queue elsewhere."""

import psycopg
import pytest

from bide import AsyncQueue, Queue, ResultPending, Worker


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


async def test_the_result_of_what_it_handed_on_is_asked_for_by_the_id_that_the_sender_was_told(postgres_url: str) -> None:
    async with AsyncQueue("memory://", outbox=postgres_url) as queue:

        @queue.task("add", keep="1h")
        def add(a: int, b: int) -> int:
            return a + b

        assert await queue.relay(wait=False) == 0  # makes the tables
        async with await psycopg.AsyncConnection.connect(postgres_url) as own:
            sent = await add.options(connection=own).send_many([{"a": 1, "b": 2}, {"a": 3, "b": 4}])
        with pytest.raises(ResultPending, match="it is in the outbox"):
            await sent[0].result(timeout=0)
        async with Worker(queue):
            assert [await each.result(timeout="30s") for each in sent] == [3, 7]
