"""What a caller's open transaction must not hold up: the work and the upkeep of all others."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from bide import Outgoing, Queue, Unavailable

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


@pytest.mark.parametrize("verb", ["send", "cancel", "reschedule"])
def test_a_call_that_waited_for_an_open_transaction_says_that_it_did_nothing(verb: str, postgres_url: str) -> None:
    with Queue(f"{postgres_url}?timeout=1.5") as queue, psycopg.connect(postgres_url) as own:
        sent = queue.send("t", 1, key="k", delay="1h")
        queue.reschedule(sent, delay="2h", connection=own)
        calls = {
            "send": lambda: queue.send("t", 2, key="k", if_exists="replace"),
            "cancel": lambda: queue.cancel(sent),
            "reschedule": lambda: queue.reschedule(sent, delay="3h"),
        }
        with pytest.raises(Unavailable, match="another transaction holds the same key or message"):
            calls[verb]()
        own.rollback()
        assert calls[verb]()


def test_a_call_that_waits_goes_on_after_the_commit(postgres_url: str, other: psycopg.Connection) -> None:
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as own, ThreadPoolExecutor(1) as pool:
        queue.stats()
        queue.send("t", 1, key="k", connection=own)
        waiting = pool.submit(queue.send, "t", 2, key="k", if_exists="replace")
        while other.execute("select count(*) from pg_locks where not granted").fetchone() != (1,):
            assert not waiting.done()
        own.commit()
        assert waiting.result(30).outcome == "replaced"
