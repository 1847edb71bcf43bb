"""connection=: what the application's own transaction commits is delivered, what it rolls back never was."""

import asyncio
import time
from typing import Any

import psycopg
import pytest

from bide import AsyncQueue, BadTime, CancelResult, LeaseLost, Queue, RescheduleResult
from bide.core.times import MAX_DELAY_MS
from tests.postgres.owned import KINDS, Own


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    which: str = request.param
    return which


@pytest.fixture
def colour(kind: str) -> str:
    return KINDS[kind]


async def bodies(queue: Any, topic: str = "t") -> list[Any]:
    deliveries = await queue.receive(topic, limit=100)
    await queue.ack_many(deliveries)
    return [each.body for each in deliveries]


def booked(other: psycopg.Connection) -> list[int]:
    return [seat for (seat,) in other.execute("select seat from public.booked order by seat")]


# commit and rollback


@pytest.mark.parametrize("first", [False, True], ids=["after a write", "before all"])
async def test_a_commit_delivers_a_rollback_never_does_and_nothing_is_seen_before(
    first: bool, queue: Any, own: Own, other: psycopg.Connection
) -> None:
    for seat, end in enumerate([own.rollback, own.commit, own.rollback, own.commit]):
        if not first:
            await own.book(seat)
        sent = await queue.send(
            "t", {"seat": seat, "letters": "\\ ü 日本"}, key="日本 ü", headers={"ä": "日"}, connection=own.given
        )
        assert sent.created
        kept = await queue.send("t", "kept", key="日本 ü", connection=own.given)
        assert (kept.outcome, kept.id) == ("kept", sent.id)
        if first:
            await own.book(seat)
        assert await queue.get(sent) is None
        assert await bodies(queue) == []
        await end()
        assert [each["seat"] for each in await bodies(queue)] == ([seat] if end == own.commit else [])
    assert booked(other) == [1, 3]


async def test_what_holds_a_lease_that_is_over_is_cancelled_and_moved(queue: Any, own: Own) -> None:
    last = await queue.send("t", "last", max_attempts=1)
    first, second = await queue.send("t", 1, key="1"), await queue.send("t", 2, key="2")
    dead, *_ = await queue.receive("t", limit=3, lease=0.01)  # and its receiver is gone
    assert dead.id == last.id
    while time.time() < max([(await queue.get(each)).lease_until / 1000 for each in (last, first, second)]):
        pass
    for end in (own.rollback, own.commit):
        assert await queue.cancel(first, connection=own.given) is CancelResult.CANCELLED
        assert await queue.reschedule(topic="t", key="2", delay="1h", connection=own.given) is RescheduleResult.MOVED
        assert await queue.cancel(last, connection=own.given) is CancelResult.DEAD
        await end()
    assert (await queue.get(first), (await queue.get(second)).state, (await queue.get(last)).state) == (
        None,
        "scheduled",
        "dead",
    )
    stats = await queue.stats("t")
    assert (stats.scheduled, stats.ready, stats.leased, stats.dead) == (1, 0, 0, 1)


async def test_every_verb_joins(queue: Any, own: Own, other: psycopg.Connection) -> None:
    later = await queue.send("t", "cancelled", delay="1h", key="later")
    moved = await queue.send("t", "moved", delay="1h")
    held = {}
    for what in ("ack", "ack_many", "retry", "release", "bury"):
        await queue.send(what, what)
        [held[what]] = await queue.receive(what)
    for end in (own.rollback, own.commit):
        await own.book(1)
        assert await queue.cancel(topic="t", key="later", connection=own.given) is CancelResult.CANCELLED
        assert await queue.cancel(topic="t", key="later", connection=own.given) is CancelResult.GONE
        assert await queue.reschedule(moved, delay=0, connection=own.given) is RescheduleResult.MOVED
        assert len(await queue.send_many("t", range(1_100), connection=own.given)) == 1_100
        await held["ack"].ack(connection=own.given)
        assert await queue.ack_many([held["ack_many"]], connection=own.given) == [True]
        await held["retry"].retry(0, connection=own.given)
        await held["release"].release(connection=own.given)
        await held["bury"].bury("why", connection=own.given)
        stats = await queue.stats()
        assert (stats.scheduled, stats.ready, stats.leased, stats.dead) == (2, 0, 5, 0)
        await end()
    stats = await queue.stats()
    assert (stats.scheduled, stats.ready, stats.leased, stats.dead) == (0, 1_103, 0, 1)
    assert await queue.get(later) is None
    assert booked(other) == [1]


async def test_tasks_join(queue: Any, own: Own) -> None:
    inner: Queue | AsyncQueue = getattr(queue, "inner", queue)

    @inner.task("t")
    def pack(order: int) -> None: ...

    async def done(answer: Any) -> Any:
        return await answer if asyncio.iscoroutine(answer) else answer

    for end in (own.rollback, own.commit):
        await done(pack.options(connection=own.given, key="k").send(order=1))
        assert await done(pack.options(connection=own.given).reschedule(key="k", delay=0))
        assert await done(pack.options(connection=own.given).send_many([{"order": 2}, {"order": 3}]))
        assert (await queue.stats("t")).pending == 0
        await end()
    assert await bodies(queue) == [{"order": 1}, {"order": 2}, {"order": 3}]


async def test_a_savepoint_that_is_rolled_back_takes_its_messages_with_it(queue: Any, own: Own) -> None:
    await queue.send("t", "outer", connection=own.given)
    for name, end in (("bide", "rollback to savepoint"), ("within", "rollback to savepoint"), ("bide", "release savepoint")):
        await own.execute(f"savepoint {name}")
        await queue.send("t", f"{end} {name}", connection=own.given)
        await own.execute(f"{end} {name}")
    await own.commit()
    assert await bodies(queue) == ["outer", "release savepoint bide"]


async def test_keys_and_operations_count_within_the_transaction(queue: Any, own: Own) -> None:
    first = await queue.send("t", 1, key="k", connection=own.given)
    assert (await queue.send("t", 3, key="k", if_exists="replace", connection=own.given)).id == first.id
    once = [await queue.send("t", 4, operation="once", connection=own.given) for _ in range(2)]
    assert once[0] == once[1]
    await own.commit()
    assert await bodies(queue) == [3, 4]
    assert await queue.send("t", 5, operation="once") == once[0]


# what fails changes nothing


async def test_a_call_that_is_refused_leaves_the_transaction_usable(queue: Any, own: Own, other: psycopg.Connection) -> None:
    too_far = MAX_DELAY_MS / 1000 - 0.001
    other.execute("create function far() returns trigger language plpgsql as 'begin raise exception $$no$$; end'")
    other.execute("create trigger far before insert on bide.message for each row when (new.level = 2) execute function far()")
    await own.book(1)
    await queue.send("t", "before", connection=own.given)
    with pytest.raises(Exception, match="no"):
        await queue.send("t", "fails", priority="low", connection=own.given)
    with pytest.raises(BadTime):
        await queue.send("t", "fails", delay=too_far * 2, connection=own.given)
    await queue.send("t", "after", connection=own.given)
    await own.book(2)
    await own.commit()
    assert booked(other) == [1, 2]
    assert await bodies(queue) == ["before", "after"]


# transactional acks


async def test_an_ack_that_was_rolled_back_can_be_made_again(queue: Any, own: Own) -> None:
    await queue.send("t", 1)
    [delivery] = await queue.receive("t")
    await delivery.ack(connection=own.given)
    await own.rollback()
    assert (await queue.stats("t")).leased == 1
    await delivery.ack(connection=own.given)
    await own.commit()
    assert (await queue.stats("t")).leased == 0
    with pytest.raises(LeaseLost):
        await delivery.ack(connection=own.given)
    await own.rollback()


async def test_an_ack_of_an_old_delivery_is_refused_inside_the_transaction(
    queue: Any, own: Own, other: psycopg.Connection
) -> None:
    await queue.send("t", 1)
    [old] = await queue.receive("t", lease="1s")
    await old.release()
    [new] = await queue.receive("t")
    await own.book(1)
    for end in (old.ack, old.retry, old.release):
        with pytest.raises(LeaseLost):
            await end(connection=own.given)
    await own.rollback()
    assert booked(other) == []
    await new.ack()
