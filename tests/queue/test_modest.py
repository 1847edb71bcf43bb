"""A queue on an engine that tells nothing of what is pending, but of its dead letters."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, BadTime, ManualClock, OutcomeUnknown, Outgoing, Queue, Removed, Requeued, Unsupported, Where
from bide.clock import moment
from bide.engines.base import NewMessage
from bide.queue.bulk import PAGE
from bide.queue.outbox import TOPIC as OUTBOX
from tests.modest import LONGEST


@pytest.fixture
async def modest(make_queue: Callable[..., Any], clock: ManualClock, modest_url: str) -> AsyncIterator[Any]:
    async with make_queue(modest_url, clock=clock) as queue:
        yield queue


async def bury(queue: Any, *bodies: int, error: str = "no such order") -> list[str]:
    """Their ids."""
    await queue.send_many("t", bodies)
    deliveries = await queue.receive("t", limit=len(bodies))
    for each in deliveries:
        await each.bury(error)
    return [each.id for each in deliveries]


async def bodies(queue: Any, state: str = "dead") -> list[int]:
    return [each.body for each in await queue.messages("t", state=state)]


async def test_all_dead_letters_are_requeued(modest: Any, clock: ManualClock) -> None:
    await bury(modest, 1, 2, 3)
    assert await modest.requeue("t", delay=10, spread=20) == Requeued(3, 0, 3)
    assert await bodies(modest) == []
    got = []
    for _ in range(5):
        got.append([each.body for each in await modest.receive("t", limit=10)])
        clock.advance(20 / 3)
    assert sorted(body for each in got for body in each) == [1, 2, 3]
    assert max(map(len, got)) == 1


async def test_more_than_a_page_of_them(modest: Any) -> None:
    many = PAGE * 2 + 1
    await bury(modest, *range(many))
    assert await modest.requeue("t") == Requeued(many, 0, many)
    await bury(modest, *range(many))  # as many as are received, some of which were requeued
    assert await modest.purge("t", state="dead") == Removed(many, many, 0)
    assert await bodies(modest) == []


async def test_dead_letters_are_chosen_by_their_errors(modest: Any) -> None:
    await bury(modest, 1, 2, error="TimeoutError: shop")
    await bury(modest, 3, error="ValueError")
    assert await modest.requeue("t", where=Where(error="Timeout"), spread=10) == Requeued(2, 0, 2)
    assert await bodies(modest) == [3]
    assert await modest.purge("t", state="dead", where=Where(error="Value")) == Removed(1, 1, 0)
    assert await bodies(modest) == []


async def test_dead_letters_are_named_by_their_ids(modest: Any) -> None:
    first, second, _ = await bury(modest, 1, 2, 3)
    assert await modest.requeue("t", [first, "gone"]) == Requeued(1, 0, 2)
    assert await modest.purge("t", state="dead", ids=[second, "gone"]) == Removed(1, 2, 0)
    assert await bodies(modest) == [3]


async def test_what_is_pending_is_not_told_or_deleted(modest: Any) -> None:
    await modest.send("t", 1)
    for verb, options in (
        ("topics", {}),
        ("stats", {"topic": "t"}),
        ("timeline", {"topic": "t"}),
        ("messages", {"topic": "t"}),
        ("messages", {"topic": "t", "state": "leased"}),
        ("purge", {"topic": "t", "state": "ready"}),
        ("purge", {"topic": "t", "state": "scheduled", "where": Where(older=0)}),
        ("cancel_all", {"topic": "t"}),
    ):
        with pytest.raises(Unsupported, match=r"^modest:// can't .*\. These engines can: sqlite://"):
            await getattr(modest, verb)(**options)
    [delivery] = await modest.receive("t")
    assert delivery.body == 1


async def test_what_it_does_not_keep_or_count_is_refused_before_anything_is_sent(modest: Any) -> None:
    queue = getattr(modest, "inner", modest)

    @queue.task("kept", keep="1h")
    def kept() -> int:
        return 1

    queue.topic("few", most_pending=10)
    for refused, options in (
        ("keep= of the task for kept", {"topic": "kept", "body": {}}),
        ("most_pending= of few", {"topic": "few", "body": 1}),
        ("depends_on=", {"topic": "t", "body": 1, "depends_on": ["id"]}),
        ("key=", {"topic": "t", "body": 1, "key": "k"}),
        ("operation=", {"topic": "t", "body": 1, "operation": "o"}),
        ("priority=", {"topic": "t", "body": 1, "priority": "high"}),
    ):
        with pytest.raises(Unsupported, match=f"leave out {refused}|leave {refused} out|leave {refused} and if_exists= out"):
            await modest.send(**options)
    for refused, name in (("keep=", "kept"), ("most_pending=", "few")):
        with pytest.raises(Unsupported, match=refused):
            await modest.send_many(name, [{}, {}])
    assert await modest.receive("t", "kept", "few", limit=10) == []


async def test_a_batch_is_checked_as_a_whole_before_the_first_part_is_sent(modest: Any) -> None:
    with pytest.raises(Unsupported, match="key="):
        await modest.send_many("t", [*range(1_500), Outgoing(1, key="k")])
    assert await modest.receive("t", limit=10) == []


async def test_one_that_is_refused_keeps_no_others_from_being_sent(modest_url: str) -> None:
    async with AsyncQueue(modest_url) as queue:
        sends = [queue.send("t", n, delay="4000d" if n == 2 else None, key="k" if n == 4 else None) for n in range(6)]
        answers = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(each) for each in answers if isinstance(each, BaseException)] == [BadTime, Unsupported]
        assert sorted(each.body for each in await queue.receive("t", limit=10)) == [0, 1, 3, 5]


async def test_one_that_is_refused_in_a_batch_keeps_no_others_from_being_done(modest_url: str) -> None:
    async with AsyncQueue(modest_url) as queue:
        puts = (await queue.session.open()).puts
        news = [NewMessage("t", b"%d" % n, key="k" if n == 1 else None) for n in range(3)]
        answers = await asyncio.gather(*map(puts.add, news), return_exceptions=True)
        assert [isinstance(each, Unsupported) for each in answers] == [False, True, False]
        assert [each.body for each in await queue.receive("t", limit=10)] == [0, 2]


async def test_a_delay_that_is_too_long_for_the_engine_is_refused(modest: Any, clock: ManualClock) -> None:
    for options in ({"delay": LONGEST / 1000 + 1}, {"at": moment(clock.now_ms + LONGEST + 1_000)}):
        with pytest.raises(BadTime, match="at most 3,000 days"):
            await modest.send("t", 1, **options)
    await modest.send("t", 1)
    [delivery] = await modest.receive("t")
    for verb in (delivery.retry, delivery.release):
        with pytest.raises(BadTime, match="at most 3,000 days"):
            await verb("3001d")
    with pytest.raises(BadTime, match="at most 3,000 days"):
        await modest.retry_many([delivery], "3001d")
    await delivery.retry("3000d")
    clock.advance(LONGEST / 1000)
    assert len(await modest.receive("t")) == 1


async def test_nothing_is_sent_twice_in_the_background(modest: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    queue = getattr(modest, "inner", modest)
    calls = []

    def unknown(self: Any, messages: Sequence[NewMessage], **options: Any) -> Any:
        calls.append(len(messages))
        raise OutcomeUnknown("The connection was lost.")

    monkeypatch.setattr("bide.engines.memory.sync.Memory.put", unknown)
    queue.later("t", 1)
    flushed = await modest.flush("10s")
    assert (flushed.waiting, flushed.sent, flushed.lost, calls) == (0, 0, 1, [1])
    assert "it may have been sent, and would be sent twice" in caplog.text


async def test_what_is_sent_in_the_background_is_refused_at_once(modest: Any) -> None:
    queue = getattr(modest, "inner", modest)
    for options in ({"key": "k"}, {"delay": "4000d"}):
        with pytest.raises(BadTime if "delay" in options else Unsupported):
            queue.later("t", 1, **options)


async def test_time_travel_says_where_to_go(modest: Any) -> None:
    with pytest.raises(Unsupported, match=r"`with queue\.testing\.in_memory\(\):`"):
        await modest.testing.advance(1)


async def test_results_and_locks_are_refused(modest: Any) -> None:
    queue = getattr(modest, "inner", modest)
    with pytest.raises(Unsupported, match=r"can't keep results\. These engines can: "):
        await modest.result("id")
    lock = queue.lock("l")
    with pytest.raises(Unsupported, match=r"can't keep locks or limits\. These engines can: "):
        await lock.__aenter__() if isinstance(queue, AsyncQueue) else lock.__enter__()


def test_an_outbox_hands_messages_on_to_it(modest_url: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/app.db"
    with Queue(store) as there:
        there.stats()
    with Queue(modest_url, outbox=store) as queue, closing(sqlite3.connect(tmp_path / "app.db")) as own:
        queue.send("t", 1, connection=own)
        with pytest.raises(Unsupported, match="key="):
            queue.send("t", 2, key="k", connection=own)
        own.commit()
        assert queue.relay(wait=False) == 1
        assert [each.body for each in queue.receive("t", limit=9)] == [1]


def test_what_it_can_not_take_stays_in_the_outbox_and_keeps_no_others_back(modest_url: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/app.db"
    with Queue(store) as there:
        there.stats()
    with closing(sqlite3.connect(tmp_path / "app.db")) as own:
        with Queue("memory://", outbox=store) as before:  # the queue was in another engine
            before.send("t", 1, key="k", connection=own)
            before.send("t", 2, connection=own)
            own.commit()
        with Queue(modest_url, outbox=store) as queue:
            assert queue.relay(wait=False) == 1
            assert [each.body for each in queue.receive("t", limit=9)] == [2]
    with Queue(store) as there:
        [left] = there.messages(OUTBOX)
        assert left.state == "ready"  # for a relay that can
