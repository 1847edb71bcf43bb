"""What a caller's open transaction must not hold up: the work and the upkeep of all others."""

import psycopg
import pytest

from bide import Outgoing, Queue

IN_A_MINUTE = 90_000  # ms


@pytest.mark.parametrize("before", [0, 1], ids=["the first of its topic", "not the first"])
def test_a_dead_letter_that_is_not_committed_holds_up_no_other_ones(before: int, postgres_url: str) -> None:
    with Queue(f"{postgres_url}?timeout=2") as queue, psycopg.connect(postgres_url) as own:
        queue.send_many("t", [Outgoing(n, max_attempts=1) for n in range(3 + before)])
        engine = queue.session.open().engine
        mine, others, lost, *more = queue.receive("t", limit=4, lease="1m")
        for each in more:
            each.bury("before")
        mine.bury("not committed", connection=own)
        others.bury("by another one")
        tended = engine.tend(now=engine.claim(["none"], 1, 1).now + IN_A_MINUTE)
        assert (tended.returned, tended.buried) == (1, 1)
        assert lost.id in {each.id for each in queue.messages("t", state="dead")}
        assert queue.stats("t").dead == 2 + before
        own.commit()
        assert queue.stats("t").dead == 3 + before


def test_many_who_bury_and_drop_and_purge_at_once_count_right(postgres_url: str) -> None:
    with Queue(postgres_url, dead_max=5) as queue, psycopg.connect(postgres_url) as one, psycopg.connect(postgres_url) as two:
        engine = queue.session.open().engine
        queue.send_many("t", range(20))
        held = queue.receive("t", limit=20)
        for each in held[:4]:
            each.bury("why")
        for n, each in enumerate(held[4:16]):
            each.bury("why", connection=(one, two)[n % 2])
            if n % 5 == 0:
                engine.tend()
        one.commit()
        two.rollback()
        for each in held[16:]:
            each.bury("why")
        engine.tend()
        stats = queue.stats("t")
        assert (stats.dead, stats.dead_dropped) == (5, 9)
        assert len(list(queue.messages("t", state="dead"))) == 5
        assert queue.requeue("t") == 5
        assert queue.purge("t", state="dead") == 0
        engine.tend()
        assert (queue.stats("t").dead, queue.stats("t").dead_dropped) == (0, 0)
        with psycopg.connect(postgres_url) as other:
            assert other.execute("select count(*) from bide.tally").fetchone() == (0,)
