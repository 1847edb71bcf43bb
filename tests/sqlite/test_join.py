"""send(connection=…): what the caller's transaction commits is delivered, what it rolls back never was."""

import asyncio
import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import (
    AsyncQueue,
    BadTime,
    BideError,
    Call,
    CancelResult,
    Hook,
    LeaseLost,
    Queue,
    RescheduleResult,
    Unavailable,
    Unsupported,
    current,
)
from bide.core.times import MAX_DELAY_MS
from bide.engines.base import End, NewMessage
from bide.engines.sqlite import file
from bide.worker import Worker
from tests.worker.conftest import once


@pytest.fixture
def own(path: Path) -> Iterator[sqlite3.Connection]:
    """The caller's own connection, to the queue's file, with a table of the caller's."""
    with closing(Queue(f"sqlite:///{path}")) as queue:
        queue.stats()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table booked (seat integer)")
        yield connection


def book(connection: sqlite3.Connection, seat: int) -> None:
    connection.execute("insert into booked values (?)", (seat,))


def begun(connection: sqlite3.Connection) -> bool:
    return connection.in_transaction


def booked(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as other:
        return [seat for (seat,) in other.execute("select seat from booked order by seat")]


async def bodies(queue: Any) -> list[Any]:
    deliveries = await queue.receive("t", limit=100)
    await queue.ack_many(deliveries)
    return [each.body for each in deliveries]


# commit and rollback


async def test_a_commit_delivers_and_nothing_is_seen_before(queue: Any, own: sqlite3.Connection, path: Path) -> None:
    book(own, 1)
    sent = await queue.send("t", "booked", connection=own)
    assert sent.created
    assert await queue.get(sent) is None
    own.commit()
    assert (await queue.get(sent)).body == "booked"
    assert (await bodies(queue), booked(path)) == (["booked"], [1])


async def test_a_rollback_never_delivers(queue: Any, own: sqlite3.Connection, path: Path) -> None:
    book(own, 1)
    sent = await queue.send("t", "booked", key="k", connection=own)
    own.rollback()
    assert await queue.get(sent) is None
    assert (await bodies(queue), booked(path)) == ([], [])
    assert (await queue.send("t", "again", key="k")).created  # the key was never taken, the topic never made
    assert await bodies(queue) == ["again"]


async def test_a_connection_that_is_closed_without_a_commit_never_delivers(
    queue: Any, own: sqlite3.Connection, path: Path
) -> None:
    with closing(sqlite3.connect(path)) as other:
        await queue.send("t", 1, connection=other)
    assert await bodies(queue) == []


async def test_a_transaction_that_was_not_begun_is_begun_as_sqlite3_does(
    queue: Any, own: sqlite3.Connection, path: Path
) -> None:
    assert not begun(own)
    await queue.send("t", 1, connection=own)
    assert begun(own)
    with own:  # commits
        await queue.send("t", 2, connection=own)
    assert not begun(own)
    assert await bodies(queue) == [1, 2]
    with contextlib.suppress(ZeroDivisionError), own:
        await queue.send("t", 3, connection=own)
        raise ZeroDivisionError
    assert await bodies(queue) == []


async def test_a_savepoint_that_is_rolled_back_takes_its_messages_with_it(queue: Any, own: sqlite3.Connection) -> None:
    own.execute("begin")
    await queue.send("t", "outer", connection=own)
    for name, end in (("bide", "rollback to"), ("inner", "rollback to"), ("bide", "release"), ("kept", "release")):
        own.execute(f"savepoint {name}")
        await queue.send("t", f"{end} {name}", connection=own)
        own.execute(f"{end} {name}")
    own.commit()
    assert await bodies(queue) == ["outer", "release bide", "release kept"]


async def test_keys_and_operations_count_within_the_transaction(queue: Any, own: sqlite3.Connection) -> None:
    first = await queue.send("t", 1, key="k", connection=own)
    assert (await queue.send("t", 2, key="k", connection=own)).id == first.id
    assert (await queue.send("t", 3, key="k", if_exists="replace", connection=own)).id == first.id
    once = [await queue.send("t", 4, operation="once", connection=own) for _ in range(2)]
    assert once[0] == once[1]
    own.commit()
    assert await bodies(queue) == [3, 4]
    assert await queue.send("t", 5, operation="once") == once[0]


async def test_what_is_sent_once_or_merged_counts_within_the_transaction(queue: Any, own: sqlite3.Connection) -> None:
    for end in ("rollback", "commit"):
        first = await queue.send("once", 1, key="k", unique_for="1h", connection=own)
        assert await queue.cancel(first, connection=own)
        assert (await queue.send("once", 2, key="k", unique_for="1h", connection=own)).outcome == "duplicate"
        for body in ("x" * 600, "y" * 600):
            await queue.send("t", body, key="k", if_exists="merge", connection=own)
        getattr(own, end)()
    assert (await queue.send("once", 3, key="k", unique_for="1h")).id == first.id
    assert await bodies(queue) == [["x" * 600, "y" * 600]]


async def test_messages_later_and_large_and_with_headers_join_too(queue: Any, own: sqlite3.Connection) -> None:
    later = await queue.send("t", 1, delay=3_600, connection=own)
    large = await queue.send("t", "x" * 100_000, headers={"a": "ü"}, priority="high", connection=own)
    own.commit()
    assert (await queue.get(later)).state == "scheduled"
    [delivery] = await queue.receive("t", limit=9)
    assert (delivery.id, len(delivery.body), delivery.headers) == (large.id, 100_000, {"a": "ü"})


async def test_an_ack_joins_too(engine: Any, own: sqlite3.Connection, path: Path) -> None:
    await engine.put([NewMessage("t", b"1")])
    [held] = (await engine.claim(["t"], 1, 60_000)).messages
    end = End("t", held.id, held.token, "done")

    book(own, 1)
    assert await engine.settle([end], connection=own) == ["done"]
    own.rollback()  # neither the work nor the ack happened
    assert (await engine.stats("t")).leased == 1

    book(own, 2)
    assert await engine.settle([end], connection=own) == ["done"]
    assert (await engine.stats("t")).leased == 1
    own.commit()  # both did
    assert (await engine.stats("t")).leased == 0
    assert await engine.settle([end]) == ["lost"]
    assert booked(path) == [2]


async def test_each_way_to_end_joins(engine: Any, own: sqlite3.Connection) -> None:
    await engine.put([NewMessage("t", b"%d" % number) for number in range(4)])
    held = (await engine.claim(["t"], 9, 60_000)).messages
    verdicts: list[Any] = ["done", "retry", "release", "dead"]
    ends = [End("t", each.id, each.token, verdict) for each, verdict in zip(held, verdicts, strict=True)]
    for finish in (own.rollback, own.commit):
        assert await engine.settle(ends, connection=own) == ["done", "scheduled", "scheduled", "dead"]
        assert (await engine.stats("t")).leased == 4
        finish()
    stats = await engine.stats("t")
    assert (stats.ready, stats.leased, stats.dead) == (2, 0, 1)


async def test_many_and_cancel_and_reschedule_and_ack_join_too(queue: Any, own: sqlite3.Connection, path: Path) -> None:
    cancelled = await queue.send("t", "cancelled", delay="1h", key="k")
    moved = await queue.send("t", "moved", delay="1h")
    await queue.send("held", 1)
    [delivery] = await queue.receive("held")
    for end in (own.rollback, own.commit):
        book(own, 1)  # from here on, nobody else can write
        assert await queue.cancel(topic="t", key="k", connection=own) is CancelResult.CANCELLED
        assert await queue.cancel(topic="t", key="k", connection=own) is CancelResult.GONE
        assert await queue.reschedule(moved, delay=0, connection=own) is RescheduleResult.MOVED
        assert [each.created for each in await queue.send_many("t", range(1_100), connection=own)] == [True] * 1_100
        if end == own.commit:
            await delivery.ack(connection=own)
        assert (await queue.get(cancelled)).state == "scheduled"
        end()
    stats = await queue.stats()
    assert (stats.scheduled, stats.ready, stats.leased) == (0, 1_101, 0)
    assert booked(path) == [1]


async def test_an_ack_that_was_rolled_back_leaves_the_message_to_its_lease(queue: Any, own: sqlite3.Connection) -> None:
    await queue.send("t", 1)
    [delivery] = await queue.receive("t")
    assert await queue.ack_many([delivery], connection=own) == [True]
    own.rollback()
    assert (await queue.stats("t")).leased == 1
    assert await queue.ack_many([delivery], connection=own) == [True]
    own.commit()
    assert (await queue.stats("t")).leased == 0


async def test_each_method_of_a_delivery_joins(queue: Any, own: sqlite3.Connection) -> None:
    held = {}
    for what in ("ack", "retry", "release", "bury"):
        await queue.send(what, what)
        [held[what]] = await queue.receive(what)
    for end in (own.rollback, own.commit):
        await held["ack"].ack(connection=own)
        await held["retry"].retry(0, connection=own)
        await held["release"].release(connection=own)
        await held["bury"].bury("why", connection=own)
        assert (await queue.stats()).leased == 4
        end()
    stats = await queue.stats()
    assert (stats.ready, stats.leased, stats.dead) == (2, 0, 1)


async def test_an_ack_of_an_old_delivery_is_refused_inside_the_transaction(
    queue: Any, own: sqlite3.Connection, path: Path
) -> None:
    await queue.send("t", 1)
    [old] = await queue.receive("t")
    await old.release()
    [new] = await queue.receive("t")
    book(own, 1)
    for end in (old.ack, old.retry, old.release):
        with pytest.raises(LeaseLost):
            await end(connection=own)
    own.rollback()
    assert booked(path) == []
    await new.ack()


@pytest.mark.parametrize("rolled_back", [False, True])
async def test_a_handler_acks_in_its_own_transaction(
    rolled_back: bool, colour: str, url: str, own: sqlite3.Connection, path: Path
) -> None:
    """The worker does not end the message again, and one that was rolled back comes again when its lease ends."""
    attempts: list[int] = []

    def work() -> sqlite3.Connection:
        connection = sqlite3.connect(path)
        attempts.append(current().attempt)
        book(connection, attempts[-1])
        return connection

    def finish(connection: sqlite3.Connection) -> None:
        connection.rollback() if rolled_back and len(attempts) == 1 else connection.commit()

    async def handle() -> None:
        with closing(work()) as connection:
            await current().ack(connection=connection)
            finish(connection)

    def handle_sync() -> None:
        with closing(work()) as connection:
            current().ack(connection=connection)
            finish(connection)

    queue: Any = AsyncQueue(url)
    queue.task("t")(handle if colour == "async" else handle_sync)
    async with queue, Worker(queue, lease="1s", grace=0):
        await queue.send("t", {})

        async def over() -> bool:
            stats = await queue.stats("t")
            return bool(stats.pending + stats.leased == 0)

        await once(over)
    assert attempts == ([1, 2] if rolled_back else [1])
    assert booked(path) == attempts[-1:]


# whom it wakes


class Lying(Hook):
    """Tells when somebody is about to lie down."""

    def __init__(self) -> None:
        self.waits = 0

    def before(self, call: Call) -> None:
        self.waits += call.verb == "wait"


@pytest.mark.usefixtures("no_sweeps")
async def test_a_sleeping_receiver_is_woken_after_the_commit(
    make_queue: Callable[..., Any], own: sqlite3.Connection, until: Callable[..., None]
) -> None:
    lying = Lying()
    receiver, sender = make_queue(hooks=[lying]), make_queue()
    for number in range(3):
        before = lying.waits
        receiving = asyncio.ensure_future(receiver.receive("t", wait="60s"))
        await asyncio.to_thread(until, lambda before=before: lying.waits > before)
        await sender.send("t", number, connection=own)
        assert not receiving.done()
        began = time.monotonic()
        own.commit()
        [delivery] = await receiving
        assert delivery.body == number
        assert time.monotonic() - began < 20  # it would have waited for a minute
        await delivery.ack()


# whatever the caller's connection is set to


def as_dict(cursor: sqlite3.Cursor, row: Any) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def as_nothing(cursor: sqlite3.Cursor, row: Any) -> None:
    raise AssertionError("this is for the caller's own rows")


@pytest.mark.parametrize(
    ("row_factory", "text_factory"), [(sqlite3.Row, str), (as_dict, bytes), (as_nothing, lambda raw: raw.decode("latin-1"))]
)
async def test_the_callers_row_and_text_factories_do_not_matter(
    row_factory: Any, text_factory: Any, queue: Any, own: sqlite3.Connection
) -> None:
    own.row_factory, own.text_factory = row_factory, text_factory
    first = await queue.send("t", 0, key="übel", operation="o", connection=own)
    assert (await queue.send("t", 1, key="übel", if_exists="replace", connection=own)).id == first.id
    assert await queue.send("t", 7, key="übel", operation="o", connection=own) == first
    assert (own.row_factory, own.text_factory) == (row_factory, text_factory)
    own.commit()
    assert await bodies(queue) == [1]


async def test_autocommit_is_refused_unless_a_transaction_is_open(queue: Any, own: sqlite3.Connection, path: Path) -> None:
    own.isolation_level = None
    with pytest.raises(Unsupported, match="BEGIN IMMEDIATE"):
        await queue.send("t", 1, connection=own)
    assert not own.in_transaction
    for begin in ("begin", "begin immediate", "begin exclusive"):
        own.execute(begin)
        await queue.send("t", begin, connection=own)
        own.execute("commit")
    assert await bodies(queue) == ["begin", "begin immediate", "begin exclusive"]


if sys.version_info >= (3, 12):  # since when sqlite3 has autocommit=

    async def test_a_connection_with_autocommit_true_needs_an_open_transaction(
        queue: Any, own: sqlite3.Connection, path: Path
    ) -> None:
        with closing(sqlite3.connect(path, autocommit=True)) as other:  # type: ignore[call-overload,unused-ignore]
            with pytest.raises(Unsupported, match="BEGIN IMMEDIATE"):
                await queue.send("t", 1, connection=other)
            assert not other.in_transaction
            other.execute("begin")
            await queue.send("t", 2, connection=other)
            assert await queue.stats("t") == await queue.stats("nothing")
            other.execute("commit")
        assert await bodies(queue) == [2]

    async def test_a_connection_with_autocommit_false_is_joined(queue: Any, own: sqlite3.Connection, path: Path) -> None:
        with closing(sqlite3.connect(path, autocommit=False)) as other:  # type: ignore[call-overload,unused-ignore]
            await queue.send("t", 1, connection=other)
            other.rollback()
            assert await bodies(queue) == []
        with closing(sqlite3.connect(path, autocommit=False)) as other:  # type: ignore[call-overload,unused-ignore]
            await queue.send("t", 2, connection=other)
            other.commit()
        assert await bodies(queue) == [2]


async def test_a_connection_that_found_the_file_by_another_name_is_joined(
    queue: Any, own: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    (path.parent / "link.db").symlink_to(path)
    for name in ("bide.db", "link.db", f"file:{path}?mode=rw"):
        with closing(sqlite3.connect(name, uri=True)) as other, other:
            await queue.send("t", name[:4], connection=other)
    assert await bodies(queue) == ["bide", "link", "file"]


class Mine(sqlite3.Connection):
    """Callers have classes of their own."""


async def test_a_subclass_of_a_connection_is_joined(queue: Any, own: sqlite3.Connection, path: Path) -> None:
    with closing(sqlite3.connect(path, factory=Mine)) as other, other:
        await queue.send("t", 1, connection=other)
    assert await bodies(queue) == [1]


# what can't be joined


async def test_another_file_is_refused(queue: Any, own: sqlite3.Connection, path: Path) -> None:
    with closing(sqlite3.connect(path.with_name("other.db"))) as other:
        other.execute("begin")
        with pytest.raises(Unsupported, match=r"other\.db"):
            await queue.send("t", 1, connection=other)
        assert other.in_transaction
        other.rollback()
        other.execute("attach ? as bide", (str(path),))  # in WAL mode, a transaction on two files is not one
        with pytest.raises(Unsupported, match=r"other\.db"):
            await queue.send("t", 1, connection=other)
    assert await bodies(queue) == []


@pytest.mark.parametrize("name", [":memory:", "", "file:shared?mode=memory&cache=shared"])
async def test_a_database_in_memory_is_refused(name: str, queue: Any, own: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(name, uri=True)) as other:
        other.execute("begin")
        with pytest.raises(Unsupported, match=r"^.*\.$"):
            await queue.send("t", 1, connection=other)
        assert other.in_transaction


@pytest.mark.parametrize("thing", [object(), "bide.db", 7, sqlite3, sqlite3.Connection], ids=type)
async def test_what_is_no_connection_is_refused(thing: object, queue: Any) -> None:
    with pytest.raises(Unsupported, match=r"sqlite3\.Connection"):
        await queue.send("t", 1, connection=thing)
    assert await bodies(queue) == []


async def test_a_cursor_is_refused_with_its_name(queue: Any, own: sqlite3.Connection) -> None:
    with pytest.raises(Unsupported, match="Cursor"):
        await queue.send("t", 1, connection=own.cursor())


async def test_a_closed_connection_is_told(queue: Any, own: sqlite3.Connection) -> None:
    own.close()
    with pytest.raises(Unavailable, match="closed"):
        await queue.send("t", 1, connection=own)
    assert await bodies(queue) == []


async def test_a_connection_of_another_thread_is_told(queue: Any, own: sqlite3.Connection, path: Path) -> None:
    with ThreadPoolExecutor(1) as its_own:
        other = its_own.submit(sqlite3.connect, path).result()
        with pytest.raises(Unavailable, match="thread"):
            await queue.send("t", 1, connection=other)
        its_own.submit(other.close).result()
    assert await bodies(queue) == []


async def test_a_file_that_took_the_place_of_ours_is_refused(queue: Any, own: sqlite3.Connection, path: Path) -> None:
    await queue.send("t", 1)
    with closing(sqlite3.connect(path.with_name("other.db"))) as other:
        other.execute("create table t (a)")
        os.rename(path, path.with_name("moved.db"))
        os.link(path.with_name("other.db"), path)
        with pytest.raises(BideError):
            await queue.send("t", 2, connection=other)
        os.replace(path.with_name("moved.db"), path)
    assert await bodies(queue) == [1]


# what fails changes nothing

TOO_LATE = NewMessage("t", b"2", delay=MAX_DELAY_MS + 1)


async def test_a_message_that_is_refused_leaves_the_transaction_as_it_was(
    engine: Any, own: sqlite3.Connection, path: Path
) -> None:
    book(own, 1)
    with pytest.raises(BadTime):
        await engine.put([NewMessage("t", b"1"), TOO_LATE], connection=own)
    assert own.in_transaction
    book(own, 2)
    own.commit()
    assert booked(path) == [1, 2]
    assert (await engine.stats("t")).ready == 0


async def test_a_message_that_is_refused_begins_no_transaction(engine: Any, own: sqlite3.Connection, path: Path) -> None:
    with pytest.raises(BadTime):
        await engine.put([TOO_LATE], connection=own)
    assert not own.in_transaction
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        other.execute("begin immediate")


async def test_work_that_fails_on_the_way_is_undone_and_the_callers_is_kept(
    queue: Any, own: sqlite3.Connection, path: Path
) -> None:
    own.execute("create trigger fail before insert on message when new.level = 2 begin select raise(abort, 'no'); end")
    book(own, 1)
    await queue.send("t", "before", connection=own)
    with pytest.raises(BideError, match="no"):
        await queue.send("new-topic", "fails", priority="low", connection=own)
    await queue.send("t", "after", connection=own)
    own.commit()
    assert booked(path) == [1]
    assert await queue.topics() == ["t"]
    assert await bodies(queue) == ["before", "after"]


async def test_a_transaction_that_sqlite_itself_rolled_back_is_told_as_what_it_was(
    queue: Any, own: sqlite3.Connection, path: Path
) -> None:
    own.execute("create trigger fail before insert on message begin select raise(rollback, 'all of it'); end")
    own.commit()
    book(own, 1)
    with pytest.raises(BideError, match="all of it"):
        await queue.send("t", 1, connection=own)
    assert not own.in_transaction
    assert booked(path) == []


async def test_a_transaction_that_has_read_before_others_wrote_is_told_with_its_cure(
    queue: Any, own: sqlite3.Connection, path: Path
) -> None:
    own.execute("begin")
    own.execute("select * from booked").fetchall()
    await queue.send("t", "somebody else's")
    with pytest.raises(Unavailable, match=r"has read .* begin it with BEGIN IMMEDIATE\.$"):
        await queue.send("t", 1, connection=own)
    own.rollback()
    own.execute("begin immediate")
    own.execute("select * from booked").fetchall()
    await queue.send("t", "joined", connection=own)
    own.commit()
    assert await bodies(queue) == ["somebody else's", "joined"]


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="only Linux tells who holds a lock")
async def test_who_waits_for_a_transaction_of_its_own_is_told_to_join_it(
    queue: Any, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, start: Callable[..., Any], path: Path
) -> None:
    monkeypatch.setattr(file, "PATIENCE", 0.05)
    await queue.send("t", 1, delay="1h", key="k")
    book(own, 1)
    with pytest.raises(Unavailable, match=r"a transaction of this process: give it as connection="):
        await queue.cancel(topic="t", key="k")
    own.rollback()
    child = start(
        """
        import os, sqlite3, sys
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)
        connection.execute("begin immediate")
        print(os.getpid())
        input()
        connection.close()
        """,
        path,
    )
    number = child.line()
    with pytest.raises(Unavailable, match=rf"^Another process has held .* \(process {number}\)"):
        await queue.cancel(topic="t", key="k")
    child.tell()
    child.end()
    assert await queue.cancel(topic="t", key="k")


async def test_a_lock_that_somebody_else_has_is_told_after_the_callers_own_patience(
    queue: Any, own: sqlite3.Connection, path: Path
) -> None:
    await queue.stats()
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as holder,
        closing(sqlite3.connect(path, timeout=0)) as hasty,
    ):
        holder.execute("begin immediate")
        with pytest.raises(Unavailable, match="lock"):
            await queue.send("t", 1, connection=hasty)
        assert not hasty.in_transaction
        holder.execute("commit")
        with hasty:
            await queue.send("t", 2, connection=hasty)
    assert await bodies(queue) == [2]
