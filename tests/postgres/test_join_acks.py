"""The work and its ack in one transaction: what heartbeats, workers and `with` blocks do before and after its end."""

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from bide import AsyncDelivery, AsyncQueue, Delivery, Hook, LeaseLost, OutcomeUnknown, Queue, current, current_batch
from bide.engines.base import Hold, Settings
from bide.engines.postgres import source
from bide.engines.postgres.aio import engine as postgres_engine
from bide.queue.aio import receive
from bide.worker import Worker
from tests.worker.conftest import once


async def test_a_receiver_is_woken_by_the_commit(
    postgres_url: str, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (receive, postgres_engine):
        monkeypatch.setattr(each, "SWEEP", 3_600.0)

    class Lying(Hook):
        waits = 0

        def before(self, call: Any) -> None:
            self.waits += call.verb == "wait"

    lying = Lying()
    async with AsyncQueue(postgres_url, hooks=[lying]) as receiver, AsyncQueue(postgres_url) as sender:
        await sender.send("t", "later", delay="1h")
        async with await psycopg.AsyncConnection.connect(postgres_url) as own:
            taking = asyncio.ensure_future(receiver.receive("t", wait="60s"))
            await once(lambda: lying.waits > 1)  # it listens
            await sender.send("t", "now", connection=own)
            assert not taking.done()
            began = time.monotonic()
            await own.commit()
            [delivery] = await taking
            assert delivery.body == "now"
            assert time.monotonic() - began < 20  # it would have waited for a minute
            await delivery.ack()


async def test_heartbeats_do_not_wait_for_a_transaction_that_acks(
    postgres_url: str, colour: str, other: psycopg.Connection
) -> None:
    """The leases of other messages are renewed in the same call, and those of this one again when the other has ended."""
    made = source(Settings(url=postgres_url))
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as own:
        queue.send_many("t", range(3))
        acked, *others = queue.receive("t", limit=3, lease="60s")
        acked.ack(connection=own)
        holds = [Hold("t", each.id, each.token) for each in (others[0], acked, others[1])]
        lost = Hold("t", others[0].id, "0" * 19)
        if colour == "async":
            aio = made.aio()
            await aio.open()
            with pytest.raises(OutcomeUnknown) as told:
                await aio.extend([*holds, lost], 3_600_000, brief=True)
            await aio.close()
        else:
            engine = made.sync()
            engine.open()
            with pytest.raises(OutcomeUnknown) as told:
                engine.extend([*holds, lost], 3_600_000, brief=True)
            engine.close()
        assert told.value.answers == [True, None, True, False]
        own.rollback()
        left: dict[int, bool] = dict(
            other.execute("select id, until > (select min(until) from bide.message) from bide.message").fetchall()
        )
        assert left == {int(each.id, 16): each is not acked for each in (acked, *others)}
        acked.extend("2h")


@pytest.mark.parametrize("outcome", ["rollback", "commit"])
async def test_heartbeats_outlast_a_lock_of_a_moment(
    postgres_url: str, colour: str, other: psycopg.Connection, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As upkeep of another process takes, which found leases that had ended, or another call of the same process."""
    made: Any = source(Settings(url=postgres_url))
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as own:
        queue.send_many("t", range(3))
        held = queue.receive("t", limit=3, lease="60s")
        holds = [Hold("t", each.id, each.token) for each in held]
        held[1].ack(connection=own)
        engine = made.aio() if colour == "async" else made.sync()
        ended = engine.open()
        if colour == "async":
            await ended
        run, asked = engine._connections.run, list[int]()

        def end_the_other(sql: str, args: Sequence[Any], **how: Any) -> Any:
            if ".extend(" in sql:
                asked.append(args[0].count(",") + 1)
                if len(asked) == 2:
                    getattr(own, outcome)()
            return run(sql, args, **how)

        monkeypatch.setattr(engine._connections, "run", end_the_other)
        answers = engine.extend(holds, 3_600_000, brief=True)
        assert (await answers if colour == "async" else answers) == [True, outcome == "rollback", True]
        assert asked == [3, 1]  # what was renewed is not asked for again
        closed = engine.close()
        if colour == "async":
            await closed


@pytest.mark.parametrize("how", ["commits", "rolls back", "is fenced"])
async def test_a_handler_acks_in_its_own_transaction(
    postgres_url: str, colour: str, other: psycopg.Connection, how: str
) -> None:
    """The worker does not end the message again, and one that was rolled back comes again when its lease ends."""
    attempts: list[int] = []
    queue: Any = AsyncQueue(postgres_url)

    def fence(delivery: Any) -> None:
        if how == "is fenced":
            other.execute("update bide.message set token = token + 1")

    async def handle() -> None:
        delivery: AsyncDelivery = current()
        attempts.append(delivery.attempt)
        async with await psycopg.AsyncConnection.connect(postgres_url) as own, own.transaction():
            await own.execute("insert into booked values (%s)", [delivery.attempt])
            if delivery.attempt == 1:
                fence(delivery)
            await delivery.ack(connection=own)
            if how == "rolls back" and delivery.attempt == 1:
                raise psycopg.Rollback

    def handle_sync() -> None:
        delivery: Delivery = current()
        attempts.append(delivery.attempt)
        with psycopg.connect(postgres_url) as own, own.transaction():
            own.execute("insert into booked values (%s)", [delivery.attempt])
            if delivery.attempt == 1:
                fence(delivery)
            delivery.ack(connection=own)
            if how == "rolls back" and delivery.attempt == 1:
                raise psycopg.Rollback

    queue.task("t")(handle if colour == "async" else handle_sync)
    async with queue, Worker(queue, lease="1s", grace=0):
        await queue.send("t", {})

        async def over() -> bool:
            stats = await queue.stats("t")
            return bool(stats.pending + stats.leased == 0)

        await once(over)
    assert attempts == ([1] if how == "commits" else [1, 2])
    assert [seat for (seat,) in other.execute("select seat from booked")] == [attempts[-1]]


async def test_a_with_block_leaves_an_ack_that_was_rolled_back_to_its_lease(
    queue: Any, colour: str, postgres_url: str, other: psycopg.Connection
) -> None:
    await queue.send("t", 1)
    [held] = await queue.receive("t", lease="60s")

    async def ack_and_fail(connection: Any) -> None:
        await held.ack(connection=connection)
        raise ZeroDivisionError

    if colour == "async":
        async with held, await psycopg.AsyncConnection.connect(postgres_url) as own:
            await ack_and_fail(own)
    else:
        with held.inner, psycopg.connect(postgres_url) as sync:
            await ack_and_fail(sync)
    assert (await queue.stats("t")).leased == 1
    await held.retry(0)  # it is held still
    assert (await queue.stats("t")).ready == 1


async def test_a_listener_stops_renewing_what_was_acked_and_renews_the_rest(postgres_url: str, other: Any) -> None:
    async with AsyncQueue(postgres_url) as queue:
        await queue.send_many("t", range(2))
        listener = queue.listen("t", lease="1s", limit=2)
        first, second = await anext(listener), await anext(listener)
        async with await psycopg.AsyncConnection.connect(postgres_url) as own:
            await first.ack(connection=own)

            def renewed() -> bool:
                [(until,)] = other.execute("select until from bide.message where id = %s", [int(second.id, 16)])
                return bool(until > began + 1_000)

            [(began,)] = other.execute("select until from bide.message where id = %s", [int(second.id, 16)])
            await once(renewed)
            await own.rollback()
        await second.ack()
        again = await anext(listener)
        assert (again.id, again.attempt) == (first.id, 2)
        with pytest.raises(LeaseLost):
            await first.ack()
        await again.ack()
        with suppress(StopAsyncIteration):
            await listener.aclose()


async def test_a_commit_always_tells_receivers_as_the_message_may_be_the_first_by_then(
    queue: Any, colour: str, postgres_url: str, other: psycopg.Connection
) -> None:
    """While the transaction goes on, the messages that were due before may have gone."""
    await queue.send("t", "before all others", delay="1h")
    sent = await queue.send("t", "moved", delay="4h")
    other.execute("listen bide")

    def told() -> list[str]:
        return [note.payload.split()[0] for note in other.notifies(timeout=60, stop_after=1)]

    if colour == "async":
        async with await psycopg.AsyncConnection.connect(postgres_url) as aio:
            for call in (
                queue.send("t", 1, delay="2h", connection=aio),
                queue.reschedule(sent, delay="3h", connection=aio),
            ):
                await call
                await aio.commit()
                assert told() == ["t"]
    else:
        with psycopg.connect(postgres_url) as own:
            for call in (
                queue.send("t", 1, delay="2h", connection=own),
                queue.reschedule(sent, delay="3h", connection=own),
            ):
                await call
                own.commit()
                assert told() == ["t"]


async def test_a_worker_renews_no_lease_of_a_handler_that_has_acked_and_goes_on(postgres_url: str, colour: str) -> None:
    class Extended(Hook):
        def __init__(self) -> None:
            self.ids: list[set[str]] = []

        def before(self, call: Any) -> None:
            if call.verb == "extend":
                self.ids.append({hold.id for hold in call.asked})

    extended, acked, over = Extended(), threading.Event(), threading.Event()
    queue: Any = AsyncQueue(postgres_url, hooks=[extended])

    async def ack() -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url) as own:
            await current().ack(connection=own)
            acked.set()
            await asyncio.to_thread(over.wait)

    def ack_sync() -> None:
        with psycopg.connect(postgres_url) as own:
            current().ack(connection=own)
            acked.set()
            over.wait()

    queue.task("acks")(ack if colour == "async" else ack_sync)

    @queue.task("goes.on")
    async def go_on() -> None:
        await asyncio.to_thread(over.wait)

    async with queue, Worker(queue, lease="1s", grace=5):
        sent = await queue.send("acks", {})
        await queue.send("goes.on", {})
        await once(acked.is_set)
        known = len(extended.ids) + 1  # one may be on its way
        await once(lambda: len(extended.ids) >= known + 2)
        over.set()
        assert not any(sent.id in ids for ids in extended.ids[known:])


async def test_a_batch_is_written_and_acked_in_one_transaction(postgres_url: str) -> None:
    """One of its messages is taken away meanwhile: nothing is written, and all come again."""
    seen: list[list[int]] = []
    async with AsyncQueue(postgres_url) as queue, await psycopg.AsyncConnection.connect(postgres_url) as own:
        await own.execute("create table written (n int)")
        await own.commit()

        @queue.task("t", batch=3, linger="1h")
        async def write(ns: list[int]) -> None:
            seen.append(ns)
            async with own.transaction():
                for n in ns:
                    await own.execute("insert into written values (%s)", [n])
                if len(seen) == 1:
                    await current_batch()[1].release()
                if not all(await queue.ack_many(current_batch(), connection=own)):
                    raise RuntimeError("another worker has one of them")

        await queue.send_many("t", [1, 2, 3])
        async with Worker(queue, lease="1s", grace=0):

            async def ended() -> bool:
                stats = await queue.stats("t")
                return not stats.scheduled + stats.ready + stats.leased

            await once(ended)
        rows = await (await own.execute("select n from written order by n")).fetchall()
    assert rows == [(1,), (2,), (3,)]
    assert sorted(seen[0]) == [1, 2, 3]
    assert len(seen) > 1
