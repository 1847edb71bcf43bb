"""Messages that another transaction has locked, and what others do meanwhile."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from bide import CancelResult, OutcomeUnknown, Queue, RescheduleResult, Unavailable
from bide.engines.base import End, Settings
from bide.engines.postgres import recent, source
from bide.engines.postgres.sync import engine as sync_engine
from tests.postgres.reading import read
from tests.worker.processes import until

PROMPT = 5  # seconds; whoever waits for a lock of the database waits for 14


def lock(client: psycopg.Connection, key: str) -> None:
    assert client.execute("select id from bide.message where key = %s for update", [key]).fetchone()


def locked_rows(other: psycopg.Connection) -> int:
    """How many messages somebody has locked: a claim passes over those, too."""
    [(free,)] = other.execute("select count(*) from (select from bide.message for update skip locked) as m").fetchall()
    [(rows,)] = other.execute("select count(*) from bide.message").fetchall()
    return int(rows - free)


@pytest.mark.parametrize("verdict", ["done", "retry", "release", "dead"])
def test_ends_of_other_messages_do_not_wait_for_one_that_is_locked(
    postgres_url: str, other: psycopg.Connection, verdict: str
) -> None:
    engine = source(Settings(url=postgres_url)).sync()
    engine.open()
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as holder:
        for n in range(200):
            queue.send("t", n, key=f"k{n}")
        claim = engine.claim(["t"], 200, 60_000)
        ends = [End("t", each.id, each.token, verdict, 60_000) for each in claim.messages]  # type: ignore[arg-type]
        lock(holder, "k7")
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown, match=r"1 of 200 deliveries have not ended.*end them again") as told:
            engine.settle(ends)
        assert time.monotonic() - began < PROMPT
        assert [place for place, answer in enumerate(told.value.answers) if answer is None] == [7]
        assert other.execute("select count(*) from bide.message where until is not null").fetchone() == (1,)
        # Alone, it waits for a moment
        with pytest.raises(OutcomeUnknown, match="1 of 1"):
            engine.settle([ends[7]])
        holder.rollback()
        assert engine.settle([ends[7]]) == [{"done": "done", "dead": "dead"}.get(verdict, "scheduled")]
        assert engine.settle([ends[7]]) == ["lost"]
    engine.close()


def test_ends_wait_once_for_a_lock_that_may_be_a_claims(
    postgres_url: str, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim may lock what another one has just taken, and lets go of it when it ends."""
    engine = source(Settings(url=postgres_url)).sync()
    engine.open()
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as holder:
        for n in range(30):
            queue.send("t", n, key=f"k{n}")
        claim = engine.claim(["t"], 30, 60_000)
        ends = [End("t", each.id, each.token, "done") for each in claim.messages]
        lock(holder, "k7")
        with pytest.raises(OutcomeUnknown, match="1 of 10"):
            engine.settle(ends[:10])
        for timeout in ("BRIEFLY", "LOCKED"):
            monkeypatch.setattr(sync_engine, timeout, 1_000.0)
        with pytest.raises(OutcomeUnknown, match="1 of 11"):  # at once, as that lock has lasted
            engine.settle([ends[7], *ends[10:20]])
        lock(holder, "k25")
        with ThreadPoolExecutor() as pool:
            ended = pool.submit(engine.settle, ends[20:])
            until(lambda: other.execute("select count(*) from bide.message where until is not null").fetchone() == (2,))
            holder.rollback()
            assert ended.result() == ["done"] * 10
    engine.close()


def test_a_lock_has_lasted_for_the_delivery_that_it_was_told_of(
    postgres_url: str, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when another one was told of since then; and not for the next delivery of its message."""
    monkeypatch.setattr(recent, "MOMENT", 1_000.0)
    engine = source(Settings(url=postgres_url)).sync()
    engine.open()
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as holder, ThreadPoolExecutor() as pool:
        for n in range(6):
            queue.send("t", n, key=f"k{n}")
        ends = [End("t", each.id, each.token, "done") for each in engine.claim(["t"], 6, 60_000).messages]
        lock(holder, "k0")
        lock(holder, "k1")
        for first, second in ((0, 2), (1, 3)):
            with pytest.raises(OutcomeUnknown, match="1 of 2"):
                engine.settle([ends[first], ends[second]])
        for timeout in ("BRIEFLY", "LOCKED"):
            monkeypatch.setattr(sync_engine, timeout, 1_000.0)
        with pytest.raises(OutcomeUnknown, match="2 of 3"):  # at once
            engine.settle([ends[0], ends[1], ends[4]])
        holder.rollback()
        assert engine.settle([End("t", ends[0].id, ends[0].token, "release")]) == ["scheduled"]
        [again] = engine.claim(["t"], 1, 60_000).messages
        lock(holder, "k0")
        ended = pool.submit(engine.settle, [End("t", again.id, again.token, "done"), ends[5]])
        until(lambda: other.execute("select count(*) from bide.message").fetchone() == (2,))
        holder.rollback()
        assert ended.result() == ["done", "done"]
    engine.close()


def test_ends_of_messages_that_nobody_has_locked_are_one_statement(postgres_url: str) -> None:
    """Row by row, each would be read twice as often. The version before its claim is read, too."""
    call = "select bide.end_deliveries(null, %s, '{t}', %s, null, null, null, null, null, null, false, 10, null)"
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as client:
        queue.send_many("t", range(200))
        deliveries = queue.receive("t", limit=200)
        deliveries[0].extend(60)
        args = [[int(each.id, 16) for each in deliveries], [int(each.token) for each in deliveries]]
        assert read(client, "message_pkey", call, *args) < 600


def test_an_end_that_was_told_as_locked_is_told_alike_when_its_call_is_repeated(postgres_url: str) -> None:
    call = "select ended from bide.end_deliveries('r', %s, '{t}', %s, null, null, null, null, null, null, false, 10, null)"
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as holder:
        queue.send_many("t", range(2))
        deliveries = queue.receive("t", limit=2)
        args = [[int(each.id, 16) for each in deliveries], [int(each.token) for each in deliveries]]
        holder.execute("select from bide.message where id = %s for update", [args[0][1]])
        with psycopg.connect(postgres_url, autocommit=True) as client:
            assert client.execute(call, args).fetchall() == [("done",), ("locked",)]
            holder.rollback()
            assert client.execute(call, args).fetchall() == [("done",), ("locked",)]


@pytest.mark.parametrize("by", ["id", "key", "ids"])
async def test_a_cancel_that_finds_a_running_message_locks_nothing(
    queue: Any, colour: str, make_queue: Callable[..., Any], other: psycopg.Connection, postgres_url: str, by: str
) -> None:
    sent = [await queue.send("t", n, key=f"k{n}") for n in range(3)]
    deliveries = await queue.receive("t", limit=3)
    connect = psycopg.AsyncConnection.connect if colour == "async" else psycopg.connect
    own: Any = connect(postgres_url)
    own = await own if colour == "async" else own
    named: dict[str, Any] = {"id": ([sent[0].id], {}), "key": ([], {"topic": "t", "key": "k0"})}
    if by == "ids":
        assert set(await queue.cancel_many([each.id for each in sent])) == {CancelResult.RUNNING}
    else:
        ids, by_key = named[by]
        assert await queue.cancel(*ids, **by_key, connection=own) == CancelResult.RUNNING
        assert await queue.reschedule(*ids, **by_key, delay=5, connection=own) == RescheduleResult.RUNNING
        assert (await queue.send("t", "other", key="k0", if_exists="keep", connection=own)).outcome == "kept"
    assert locked_rows(other) == 0
    began = time.monotonic()
    for delivery in deliveries:
        await delivery.ack()
    assert time.monotonic() - began < PROMPT
    closing = own.close()
    if colour == "async":
        await closing


def test_a_cancel_waits_for_a_claim_that_is_under_way(postgres_url: str, other: psycopg.Connection) -> None:
    """And then says that the message is running."""
    claim = "select id from bide.hand_out('{t}', array[-1::bigint], 10, 60000, 'r', '{}', null) where id is not null"
    with Queue(f"{postgres_url}?timeout=2") as queue, psycopg.connect(postgres_url) as claiming:
        sent = queue.send("t", key="k")
        assert claiming.execute(claim.encode()).fetchall()
        with pytest.raises(Unavailable, match="another transaction holds"):
            queue.cancel(sent.id)
        claiming.commit()
        assert queue.cancel(sent.id) == CancelResult.RUNNING
        assert queue.cancel(topic="t", key="k") == CancelResult.RUNNING


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("by", ["id", "key"])
@pytest.mark.parametrize("verb", ["cancel", "reschedule"])
def test_a_message_that_the_transaction_can_not_see_is_not_gone(
    postgres_url: str, other: psycopg.Connection, level: str, by: str, verb: str
) -> None:
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as own:
        queue.stats()
        own.execute(f"set transaction isolation level {level}".encode())
        own.execute("select 1 from booked")
        sent = queue.send("t", key="k", delay=60)
        ids, named = ([sent.id], {}) if by == "id" else ([], {"topic": "t", "key": "k"})
        more: dict[str, Any] = {"delay": 5} if verb == "reschedule" else {}
        with pytest.raises(Unavailable, match=r"began before the message was sent.*roll yours back and run it again"):
            getattr(queue, verb)(*ids, **named, **more, connection=own)
        own.rollback()
        own.execute(f"set transaction isolation level {level}".encode())
        assert getattr(queue, verb)(*ids, **named, **more, connection=own) is (
            CancelResult.CANCELLED if verb == "cancel" else RescheduleResult.MOVED
        )
        own.commit()
        assert [each.id for each in queue.messages("t")] == ([] if verb == "cancel" else [sent.id])


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_what_is_gone_is_gone_under_each_isolation_level(postgres_url: str, other: psycopg.Connection, level: str) -> None:
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as own:
        ended = queue.send("t", key="k")
        mine = queue.send("t", key="mine", delay=60)
        queue.receive("t")[0].ack()
        own.execute(f"set transaction isolation level {level}".encode())
        assert queue.cancel(ended.id, connection=own) == CancelResult.GONE
        assert queue.cancel(topic="t", key="k", connection=own) == CancelResult.GONE
        assert queue.cancel("no id", connection=own) == CancelResult.GONE
        assert queue.cancel(mine.id, connection=own) == CancelResult.CANCELLED
        assert queue.cancel(mine.id, connection=own) == CancelResult.GONE
        assert queue.reschedule(topic="t", key="k", delay=5, connection=own) == RescheduleResult.GONE
        own.commit()
        assert other.execute("select count(*) from bide.message").fetchone() == (0,)
