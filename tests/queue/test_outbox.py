"""outbox=: sends that are committed with the caller's own work in a file, and handed on to a queue that can't join."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bide import AsyncQueue, CancelResult, ConfigError, ManualClock, Queue, Unavailable, Unsupported, Worker
from bide.clock import moment
from bide.engines.base import NewMessage
from bide.engines.guard.aio import AsyncGuard
from bide.errors import BadTime, QueueFull


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/app.db"


@pytest.fixture
def queue(store: str, request: pytest.FixtureRequest) -> Iterator[Queue]:
    with Queue(f"memory://{request.node.name.replace('[', '.').rstrip(']')}", outbox=store) as queue:
        yield queue


@pytest.fixture
def own(queue: Queue, store: str, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The caller's own connection."""
    with Queue(store) as there:
        there.stats()
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        yield connection


def test_a_commit_is_handed_on_and_a_rollback_never_is(queue: Queue, own: sqlite3.Connection) -> None:
    queue.send("t", "rolled back", connection=own)
    own.rollback()
    sent = queue.send("t", "committed", connection=own)
    own.commit()
    assert (sent.topic, sent.created, sent.id.startswith("outbox-")) == ("t", True, True)
    assert queue.relay(wait=False) == 1
    assert queue.relay(wait=False) == 0
    assert [each.body for each in queue.receive("t", limit=9)] == ["committed"]


def test_without_a_connection_messages_go_straight_to_the_queue(queue: Queue) -> None:
    queue.send("t", 1)
    assert queue.stats("t").ready == 1


def test_all_options_arrive(queue: Queue, own: sqlite3.Connection) -> None:
    queue.send(
        "t",
        {"a": 1},
        delay="15m",
        key="k",
        priority="high",
        headers={"h": "1"},
        max_attempts=7,
        expires_in="1h",
        connection=own,
    )
    many = queue.send_many("t", [1, 2], connection=own)
    own.commit()
    assert len({each.id for each in many}) == 2
    assert queue.relay(wait=False) == 3
    info = queue.get(topic="t", key="k")
    assert info is not None
    assert (info.body, info.priority, info.headers, info.max_attempts) == ({"a": 1}, "high", {"h": "1"}, 7)
    assert info.expires == info.due + 3_600_000
    assert queue.cancel(topic="t", key="k") is CancelResult.CANCELLED


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_a_delay_counts_from_the_send_however_far_the_clocks_of_queue_and_outbox_are_apart(
    hours: int, store: str, own: sqlite3.Connection, monkeypatch: Any
) -> None:
    clock = ManualClock(datetime.now(UTC) + timedelta(hours=hours))
    with Queue("memory://", clock=clock, outbox=store) as queue:
        # Given a message that is relayed five minutes after it was sent
        sent = queue.send("t", delay="15m", connection=own)
        own.commit()
        relay_at(queue, sent.due - 600_000, monkeypatch)
        # Then the ten that are left pass by the queue's clock
        assert [each.due - clock.now_ms for each in queue.messages("t")] == [600_000]


def test_a_delay_that_was_relayed_goes_on_when_the_clock_of_the_queue_is_set_back(
    store: str, own: sqlite3.Connection, monkeypatch: Any
) -> None:
    clock = ManualClock(datetime.now(UTC))
    with Queue("memory://", clock=clock, outbox=store) as queue:
        sent = queue.send("t", "delay", delay="1m", connection=own)
        queue.send("t", "instant", at=moment(sent.due), connection=own)
        own.commit()
        relay_at(queue, sent.due - 60_000, monkeypatch)
        # When the clock is set back, and bide's time goes on at half its speed
        clock.advance(-3_600)
        assert not queue.receive("t")
        clock.advance(130)
        # Then only what was sent for an instant waits for the clock
        assert [each.body for each in queue.receive("t", limit=2)] == ["delay"]


def relay_at(queue: Queue, now: int, monkeypatch: Any) -> int:
    """As if the database of the outbox had this time. How many were handed on."""
    outbox = queue.session.open().outbox
    assert outbox is not None
    claim = outbox.store.claim
    monkeypatch.setattr(outbox.store, "claim", lambda *args: claim(*args, now=now))
    return queue.relay(wait=False)


def test_what_was_handed_on_and_not_noted_is_sent_once(queue: Queue, own: sqlite3.Connection, monkeypatch: Any) -> None:
    queue.send("t", 1, connection=own)
    own.commit()
    outbox = queue.session.open().outbox
    assert outbox is not None
    settle = outbox.store.settle

    def die(*_: object, **__: object) -> Any:
        raise Unavailable("The relay died here.")

    monkeypatch.setattr(outbox.store, "settle", die)
    with pytest.raises(Unavailable):
        queue.relay(wait=False)
    monkeypatch.setattr(outbox.store, "settle", settle)
    outbox.store.tend(now=time.time_ns() // 1_000_000 + 60_000)  # when the lease has ended
    assert queue.relay(wait=False) == 1
    assert queue.stats("t").ready == 1


def test_what_the_queue_does_not_take_now_stays(queue: Queue, own: sqlite3.Connection, monkeypatch: Any, store: str) -> None:
    queue.send("t", 1, connection=own)
    own.commit()
    opened = queue.session.open()
    put = opened.engine.put

    def away(*_: object, **__: object) -> Any:
        raise Unavailable("The server is away.")

    monkeypatch.setattr(opened.engine, "put", away)
    with pytest.raises(Unavailable):
        queue.relay(wait=False)
    monkeypatch.setattr(opened.engine, "put", put)
    with Queue(store) as there:
        assert there.stats().ready == 1


def test_one_that_is_refused_keeps_no_others_back(
    queue: Queue, own: sqlite3.Connection, monkeypatch: Any, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue.send_many("t", ["good", "bad", "fine"], connection=own)
    own.commit()
    opened = queue.session.open()
    put = opened.engine.put

    def picky(messages: Any, **options: Any) -> Any:
        if any(new.body == b'"bad"' for new in messages):
            raise BadTime("Not this one.")
        return put(messages, **options)

    monkeypatch.setattr(opened.engine, "put", picky)
    assert queue.relay(wait=False) == 3
    assert [each.body for each in queue.receive("t", limit=9)] == ["good", "fine"]
    with Queue(store) as there:
        assert there.stats().dead == 1
    assert "Not this one." in caplog.text


def test_one_that_is_too_large_for_what_is_left_keeps_no_others_back(
    queue: Queue, own: sqlite3.Connection, monkeypatch: Any, store: str
) -> None:
    large = "x" * 10_000
    queue.send_many("t", ["good", large, "fine"], connection=own)
    own.commit()
    opened = queue.session.open()
    put = opened.engine.put

    def nearly_full(messages: Any, **options: Any) -> Any:
        if any(len(new.body) > len(large) for new in messages):
            raise QueueFull("No room for this one.")
        return put(messages, **options)

    monkeypatch.setattr(opened.engine, "put", nearly_full)
    with pytest.raises(QueueFull):
        queue.relay(wait=False)
    assert [each.body for each in queue.receive("t", limit=9)] == ["good", "fine"]
    with Queue(store) as there:
        assert there.stats().pending == 1


@pytest.mark.parametrize(
    "junk",
    [b"junk", msgspec.msgpack.encode({"more": 1}), msgspec.msgpack.encode([1]), b""],
    ids=["text", "map", "list", "none"],
)
def test_what_is_no_message_becomes_a_dead_letter_and_keeps_no_others_back(
    junk: bytes, queue: Queue, own: sqlite3.Connection, store: str
) -> None:
    with Queue(store) as there:
        there.session.open().engine.put([NewMessage("bide.outbox", junk)])
    queue.send("t", 1, connection=own)
    own.commit()
    assert queue.relay(wait=False) == 2
    assert queue.stats("t").ready == 1
    with Queue(store) as there:
        assert (there.stats().dead, there.stats().pending) == (1, 0)


def test_a_message_of_a_newer_release_stays_for_a_relay_of_that_one(
    queue: Queue, own: sqlite3.Connection, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    newer = msgspec.msgpack.encode({"topic": "t", "body": b"1", "group": "customer"})
    with Queue(store) as there:
        there.session.open().engine.put([NewMessage("bide.outbox", newer)])
    queue.send("t", 2, connection=own)
    own.commit()
    queue.relay(wait=False)
    assert [each.body for each in queue.receive("t", limit=9)] == [2]
    with Queue(store) as there:
        assert (there.stats().ready, there.stats().dead) == (1, 0)
    assert "newer release" in caplog.text


def test_a_message_that_expires_on_its_way_is_not_sent_and_others_expire_when_they_would_have(
    store: str, own: sqlite3.Connection, monkeypatch: Any
) -> None:
    with Queue("memory://test_expires", outbox=store) as queue:
        queue.send("t", "short", expires_in="10m", connection=own)
        queue.send("t", "long", expires_in="30m", connection=own)
        sent = queue.send("t", "later", delay="2h", expires_in="10m", connection=own)
        own.commit()
        assert relay_at(queue, sent.due - 6_000_000, monkeypatch) == 3
        found = {each.body: each for each in queue.messages("t")}
        assert set(found) == {"long", "later"}
        assert found["later"].expires == found["later"].due + 600_000
        life = (found["long"].expires or 0) - found["long"].due
        assert 540_000 < life <= 600_000  # of the 30 minutes 20 are over, but for what this test has taken


async def test_a_relay_goes_on_after_an_error_of_rights(store: str, own: sqlite3.Connection, monkeypatch: Any) -> None:
    async with AsyncQueue("memory://test_rights", outbox=store) as queue:
        opened = await queue.session.open()
        put, refusals = opened.engine.put, [ConfigError("No right to write."), Unsupported("Not this."), None]

        async def weak(messages: Any, **options: Any) -> Any:
            error = refusals.pop(0)
            if error is not None:
                raise error
            return await put(messages, **options)

        monkeypatch.setattr(opened.engine, "put", weak)
        for pause in ("SOON", "LATER"):
            monkeypatch.setattr(f"bide.queue.aio.relay.{pause}", 1)
        queue.sync.send("t", 1, connection=own)
        own.commit()
        relay = asyncio.create_task(queue.relay())
        try:
            async for delivery in queue.listen("t"):
                async with delivery:
                    break
        finally:
            relay.cancel()


async def test_a_worker_hands_on_what_is_committed(store: str, tmp_path: Path) -> None:
    handled = []
    queue = AsyncQueue("memory://test_a_worker_hands_on", outbox=store)

    @queue.task("t")
    async def handle(n: int) -> None:
        handled.append(n)
        await worker.stop()

    async with AsyncQueue(store) as there:
        await there.stats()
    worker = Worker(queue)
    async with queue:
        with closing(sqlite3.connect(tmp_path / "app.db")) as own:
            await handle.after(0, connection=own).send(n=1)
            own.commit()
        await worker.run(signals=False)
    assert handled == [1]


async def test_a_worker_that_stops_sees_through_what_its_relay_has_claimed(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or nobody else would hand it on for half a minute."""
    claimed, may_go_on, real = asyncio.Event(), asyncio.Event(), AsyncGuard.put

    async def put(self: AsyncGuard, messages: Sequence[NewMessage], **options: Any) -> Any:
        if messages[0].topic == "t":
            claimed.set()
            await may_go_on.wait()
        return await real(self, messages, **options)

    monkeypatch.setattr(AsyncGuard, "put", put)
    async with AsyncQueue("memory://test_a_worker_that_stops", outbox=store) as queue:

        @queue.task("other")
        async def handle() -> None: ...

        await queue.open()
        with closing(sqlite3.connect(tmp_path / "app.db")) as own:
            await queue.send("t", 1, connection=own)
            own.commit()
        async with Worker(queue):
            await claimed.wait()
            asyncio.get_running_loop().call_later(0.1, may_go_on.set)
        assert (await queue.stats("t")).ready == 1
    with Queue(store) as there:
        stats = there.session.open().engine.stats()
        assert stats.leased == stats.pending == 0


async def test_a_relay_waits_longer_each_time_the_queue_is_still_away(
    store: str, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pause, milliseconds in (("SOON", 20), ("LATER", 60_000)):
        monkeypatch.setattr(f"bide.queue.aio.relay.{pause}", milliseconds)
    async with AsyncQueue("memory://test_a_relay_waits_longer", outbox=store) as queue:
        opened, tries, enough = await queue.session.open(), list[float](), asyncio.Event()

        async def away(*_: object, **__: object) -> Any:
            tries.append(time.monotonic())
            if len(tries) == 5:
                enough.set()
            raise Unavailable("It is away.")

        with monkeypatch.context() as patch:
            patch.setattr(opened.engine, "put", away)
            queue.sync.send_many("t", list(range(1_000)), connection=own)
            own.commit()
            relay = asyncio.create_task(queue.relay())
            await asyncio.wait_for(enough.wait(), 30)
            relay.cancel()
    assert tries[4] - tries[0] >= 0.29  # 20, 40, 80 and 160 ms


def test_only_sends_go_through_an_outbox(queue: Queue, own: sqlite3.Connection) -> None:
    sent = queue.send("t", 1, delay="1h")
    with pytest.raises(Unsupported):
        queue.cancel(sent, connection=own)
    assert queue.stats("t").pending == 1


def test_an_outbox_must_be_able_to_join_and_a_queue_without_one_says_so() -> None:
    with pytest.raises(ConfigError, match="can't join a transaction"):
        Queue("memory://", outbox="memory://other")
    with Queue("memory://") as queue, pytest.raises(ConfigError, match="has no outbox"):
        queue.relay(wait=False)
