"""What a caller's open transaction must not hold up: the work and the upkeep of all others."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from bide import LeaseLost, Outgoing, Queue, Unavailable

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
        calls: Mapping[str, Callable[[], object]] = {
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


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_period_is_of_the_transaction_that_is_committed(end: str, postgres_url: str, other: psycopg.Connection) -> None:
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as own, ThreadPoolExecutor(1) as pool:
        queue.stats()
        first = queue.send("t", 1, key="k", unique_for="1h", connection=own)
        assert queue.cancel(first, connection=own)  # so that nobody holds the key
        waiting = pool.submit(queue.send, "t", 2, key="k", unique_for="1h")
        while other.execute("select count(*) from pg_locks where not granted").fetchone() != (1,):
            assert not waiting.done()
        getattr(own, end)()
        second = waiting.result(30)
        assert second.outcome == ("duplicate" if end == "commit" else "created")
        assert (second.id == first.id) is (end == "commit")


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
@pytest.mark.parametrize("sent", ["before", "after"])
def test_a_transaction_that_began_before_the_message_was_received_does_not_say_that_its_lease_is_lost(
    sent: str, level: psycopg.IsolationLevel, postgres_url: str
) -> None:
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as own:
        own.isolation_level = level
        queue.stats()
        if sent == "before":
            queue.send("t", 1)
        own.execute("select 1")  # from now on it sees nothing new
        if sent == "after":
            queue.send("t", 1)
        [delivery] = queue.receive("t")
        with pytest.raises(Unavailable, match="run it again"):
            delivery.ack(connection=own)
        own.rollback()
        delivery.ack(connection=own)
        own.commit()
        assert queue.stats("t").leased == 0


def test_a_lease_that_is_lost_is_told_so_at_every_isolation_level(postgres_url: str) -> None:
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as own:
        queue.send("t", 1)
        engine = queue.session.open().engine
        [delivery] = queue.receive("t", lease="1m")
        engine.tend(now=engine.claim(["none"], 1, 1).now + IN_A_MINUTE)
        own.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        with pytest.raises(LeaseLost):
            delivery.ack(connection=own)
