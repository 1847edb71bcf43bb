"""Many to a transaction: what gathers while one is under way shares the next, and each has its own fate."""

import asyncio
import gc
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, BadTime, BideError, OutcomeUnknown, Queue, Unavailable
from bide.clock import SystemClock
from bide.engines.base import NewMessage
from bide.engines.sqlite import change, database, deliver, file
from bide.engines.sqlite.job import Job
from bide.engines.sqlite.transaction import FileNamespace, Times, Transaction
from bide.engines.sqlite.writer import MOST_JOBS, Writer
from bide.queue.deliveries import internals
from bide.types import Sent

NAMESPACE = FileNamespace("bide", SystemClock(), 1_000_000, 1_000)
Work = Callable[[Transaction], Any]
Until = Callable[[Callable[[], bool]], None]


def sends(body: str, topic: str = "t") -> Work:
    def work(tx: Transaction) -> Sent:
        return change.put(tx, NAMESPACE, [NewMessage(topic, body.encode())], None)[0]

    return work


def fails(error: Exception, *, after: str | None = None) -> Work:
    """Work that is refused, perhaps after it has written something."""

    def work(tx: Transaction) -> None:
        if after is not None:
            sends(after)(tx)
        raise error

    return work


class Held:
    """A transaction that is under way until it is let go, in the thread that works for event loops or in a plain one."""

    def __init__(self, writer: Writer, *, plain: bool = False) -> None:
        self._begun, self._go = threading.Event(), threading.Event()
        if plain:
            in_threads(lambda: writer.do(Job(self._work, durable=False)))
        else:
            writer.submit(self._work, durable=False)
        assert self._begun.wait(30)

    def _work(self, tx: Transaction) -> None:
        self._begun.set()
        assert self._go.wait(30)

    def let_go(self) -> None:
        self._go.set()


@pytest.fixture
def writer_(path: Path) -> Iterator[Writer]:
    entered = database.acquire(str(path))
    yield entered.writer
    database.release(entered)


@pytest.fixture
def statements(writer_: Writer) -> list[str]:
    """What the writer says to SQLite."""
    said: list[str] = []
    connection = writer_._connection
    assert connection is not None
    connection.set_trace_callback(said.append)
    return said


def gathered(writer: Writer, *works: Work, durable: bool = True) -> list["Future[Any]"]:
    """The fates of works that came while a transaction was under way."""
    held = Held(writer)
    answers = [writer.submit(work, durable=durable) for work in works]
    assert not any(answer.done() for answer in answers)
    held.let_go()
    for answer in answers:
        answer.exception(30)
    return answers


def stored(path: Path) -> list[str]:
    """What everybody else can see."""
    with closing(sqlite3.connect(path)) as other:
        return [body.decode() for (body,) in other.execute("select body from message order by id")]


def in_threads(*calls: Callable[[], Any]) -> list[threading.Thread]:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    return threads


# sharing


def test_what_gathers_while_a_commit_is_under_way_shares_the_next_one(
    writer_: Writer, statements: list[str], path: Path
) -> None:
    works = [sends(str(number)) for number in range(20)]
    answers = gathered(writer_, *works)
    assert statements.count("commit") == 2
    assert len({answer.result().id for answer in answers}) == 20
    assert stored(path) == [str(number) for number in range(20)]


def test_threads_share_too(writer_: Writer, statements: list[str], url: str, path: Path, until: Until) -> None:
    with closing(Queue(url)) as queue:
        queue.stats()
        held = Held(writer_)
        threads = in_threads(*(lambda number=number: queue.send("t", number) for number in range(20)))
        until(lambda: len(writer_._waiting) == 20)
        held.let_go()
        for thread in threads:
            thread.join()
        assert statements.count("commit") == 2
        assert sorted(each.body for each in queue.receive("t", limit=100)) == list(range(20))


async def test_both_colours_share_one_transaction(writer_: Writer, statements: list[str], url: str, until: Until) -> None:
    queue = AsyncQueue(url)
    await queue.stats()
    queue.sync.stats()
    held = Held(writer_)
    threads = in_threads(lambda: queue.sync.send("t", "sync"))
    sending = [asyncio.ensure_future(queue.send("t", "async")), asyncio.ensure_future(queue.send_many("t", ["many"] * 3))]
    await asyncio.to_thread(until, lambda: len(writer_._waiting) == 3)
    held.let_go()
    await asyncio.gather(*sending)
    threads[0].join()
    assert statements.count("commit") == 2
    assert (await queue.stats("t")).ready == 5
    await queue.close()


def test_a_transaction_has_no_more_than_its_share(writer_: Writer, statements: list[str], path: Path) -> None:
    gathered(writer_, *(sends(str(number)) for number in range(2 * MOST_JOBS + 1)))
    assert statements.count("commit") == 4
    assert stored(path) == [str(number) for number in range(2 * MOST_JOBS + 1)]


def test_one_that_must_last_makes_all_that_share_wait_for_the_disk(writer_: Writer, statements: list[str]) -> None:
    held = Held(writer_)
    answers = [writer_.submit(sends("1"), durable=durable) for durable in (False, True, False)]
    held.let_go()
    for answer in answers:
        answer.result(30)
    said = [each for each in statements if each == "commit" or each.startswith("pragma synchronous")]
    assert said == ["pragma synchronous = normal", "commit", "pragma synchronous = full", "commit"]


def test_a_burst_by_many_threads_needs_few_commits(writer_: Writer, statements: list[str], url: str) -> None:
    with closing(Queue(url)) as queue:
        threads = in_threads(*[lambda: [queue.send("t", number) for number in range(25)]] * 8)
        for thread in threads:
            thread.join()
        assert queue.stats("t").ready == 200
        assert statements.count("commit") <= 200
    assert statements.count("begin immediate") == statements.count("commit")


# answers


def test_an_answer_comes_after_the_commit(writer_: Writer, path: Path) -> None:
    seen: list[list[str]] = []
    held = Held(writer_)
    answers = [writer_.submit(sends(body), durable=True) for body in ("one", "two")]
    for answer in answers:
        answer.add_done_callback(lambda _: seen.append(stored(path)))
    held.let_go()
    for answer in answers:
        answer.result(30)
    assert writer_.do(Job(lambda tx: 7, durable=False)) == 7  # the callbacks are over too
    assert seen == [["one", "two"]] * 2


def test_nobody_is_answered_when_the_commit_fails(writer_: Writer, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never_keeps(times: Times, within: int = 0) -> bool:
        raise sqlite3.OperationalError("the disk is on fire")

    with monkeypatch.context() as broken:
        broken.setattr(Times, "keep", never_keeps)  # the last thing before the commit
        answers = gathered(writer_, sends("one"), sends("two"))
        for answer in answers:
            with pytest.raises(Unavailable, match="on fire"):
                answer.result()
    assert stored(path) == []
    writer_.do(Job(sends("three"), durable=True))
    assert stored(path) == ["three"]


# fates


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (sqlite3.OperationalError("planted"), Unavailable),
        (sqlite3.IntegrityError("planted"), Unavailable),
        (BadTime("planted."), BadTime),
        (ZeroDivisionError("planted"), ZeroDivisionError),
    ],
    ids=["operational", "integrity", "refusal", "bug"],
)
@pytest.mark.parametrize("after", [None, "half"], ids=["before writing", "after writing"])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_job_that_fails_does_not_take_the_others_with_it(
    at: int, error: Exception, told: type[Exception], after: str | None, writer_: Writer, path: Path
) -> None:
    works = [sends("a"), sends("b"), sends("c")]
    works.insert(at, fails(error, after=after))
    answers = gathered(writer_, *works)
    failed = answers.pop(at)
    with pytest.raises(told, match="planted"):
        failed.result()
    assert sorted(stored(path)) == ["a", "b", "c"]
    with closing(sqlite3.connect(path)) as other:
        ids = {number for (number,) in other.execute("select id from message")}
    assert ids == {int(answer.result().id[:12], 16) for answer in answers}


def test_a_statement_that_fails_on_the_way_takes_only_its_own_job_with_it(writer_: Writer, path: Path) -> None:
    def breaks_a_rule(tx: Transaction) -> None:
        sends("half")(tx)
        tx.sql.execute("insert into message (id) values (1)")

    good, bad, also_good = gathered(writer_, sends("a"), breaks_a_rule, sends("b"))
    assert good.result().created
    assert also_good.result().created
    with pytest.raises(Unavailable, match=r"NOT NULL.*Nothing was changed\."):
        bad.result()
    assert stored(path) == ["a", "b"]


def test_a_refusal_that_wrote_nothing_costs_the_others_nothing(writer_: Writer, statements: list[str], path: Path) -> None:
    refused, kept = gathered(writer_, fails(BadTime("planted.")), sends("a"))
    assert statements.count("commit") == 2
    assert "rollback" not in statements
    assert (type(refused.exception()), kept.result().created) == (BadTime, True)


def test_many_that_fail_leave_the_others_alone(writer_: Writer, path: Path) -> None:
    works = [fails(BadTime("planted."), after="half") if number % 3 else sends(str(number)) for number in range(60)]
    answers = gathered(writer_, *works)
    assert [answer.exception() is None for answer in answers] == [number % 3 == 0 for number in range(60)]
    assert stored(path) == [str(number) for number in range(0, 60, 3)]


def test_tokens_and_time_go_on_after_a_transaction_that_was_rolled_back(url: str, writer_: Writer) -> None:
    with closing(Queue(url)) as queue:
        queue.send_many("t", [1, 2])
        [first] = queue.receive("t")
        gathered(writer_, fails(BadTime("planted."), after="half"), fails(sqlite3.OperationalError("planted"), after="half"))
        [second] = queue.receive("t")
        assert second.token > first.token
        first.ack()
        second.ack()
        assert queue.topics() == []


def test_a_topic_that_upkeep_drops_is_made_again_by_who_comes_next_in_the_same_transaction(
    writer_: Writer, statements: list[str], url: str
) -> None:
    with closing(Queue(url)) as queue:
        queue.send("t", "last")
        [held] = queue.receive("t")
        ends = [internals(held).end("done")]
        works: list[Work] = [
            lambda tx: deliver.settle(tx, NAMESPACE, ends, None),
            lambda tx: deliver.tend(tx, NAMESPACE, 1_000, None),
            sends('"next"'),
        ]
        before = statements.count("commit")
        gathered(writer_, *works)
        assert statements.count("commit") == before + 2
        assert [each.body for each in queue.receive("t", limit=9)] == ["next"]


# the lock


def test_a_lock_that_is_not_to_be_had_is_waited_for_once_by_all_that_gathered(
    writer_: Writer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "PATIENCE", 0.2)
    tries: list[str] = []
    begin = file.begin
    held = Held(writer_)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as holder:

        def late(connection: sqlite3.Connection, path: str) -> None:
            if not tries:
                holder.execute("begin immediate")
            tries.append(path)
            begin(connection, path)

        monkeypatch.setattr(file, "begin", late)
        answers = [writer_.submit(sends(str(number)), durable=True) for number in range(10)]
        held.let_go()
        for answer in answers:
            assert "write lock" in str(answer.exception(30))
            assert type(answer.exception()) is Unavailable
        holder.execute("rollback")
    assert len(tries) == 1
    assert stored(path) == []
    writer_.do(Job(sends("after"), durable=True))
    assert stored(path) == ["after"]


# callers that go away


async def test_a_caller_that_is_cancelled_before_its_turn_has_nothing_done(writer_: Writer, url: str, until: Until) -> None:
    queue = AsyncQueue(url)
    await queue.send("t", 1)
    held = Held(writer_)
    receiving = asyncio.ensure_future(queue.receive("t"))
    await asyncio.to_thread(until, lambda: bool(writer_._waiting))
    receiving.cancel()
    await asyncio.wait([receiving])
    held.let_go()
    [delivery] = await queue.receive("t")
    assert delivery.attempt == 1
    await queue.close()


async def test_callers_that_are_cancelled_at_any_point_leave_a_queue_that_works(url: str) -> None:
    queue = AsyncQueue(url)
    await queue.send("t", 0)
    for patience in range(60):
        receiving = asyncio.ensure_future(queue.receive("t", "u", lease="1ms"))
        for _ in range(patience):
            await asyncio.sleep(0)
        receiving.cancel()
        await asyncio.wait([receiving])
    await queue.purge("t", state="dead")
    assert (await queue.send("t", 1)).created
    assert await asyncio.to_thread(queue.sync.send, "t", 2)
    await queue.close()


async def test_a_loop_that_is_gone_does_not_stop_the_others(writer_: Writer, url: str, until: Until) -> None:
    def abandoned() -> None:
        async def main() -> None:
            queue = AsyncQueue(url)
            await queue.stats()
            sending = asyncio.ensure_future(queue.send("t", "abandoned"))
            await asyncio.to_thread(until, lambda: bool(writer_._waiting))
            sending.cancel()

        asyncio.run(main())

    held = Held(writer_)
    await asyncio.to_thread(abandoned)
    held.let_go()
    queue = AsyncQueue(url)
    assert (await queue.send("t", 1)).created
    await queue.close()
    database.release(database._databases[writer_.path])  # of the loop that is gone, which did not close its queue


def test_ctrl_c_in_the_thread_that_works_for_all_leaves_nobody_waiting(writer_: Writer, path: Path, until: Until) -> None:
    def interrupted(tx: Transaction) -> None:
        sends("half")(tx)
        raise KeyboardInterrupt

    held = Held(writer_, plain=True)
    fates: list[BaseException | None] = []

    def does(work: Work) -> None:
        try:
            writer_.do(Job(work, durable=True))
        except BaseException as error:
            fates.append(error)
        else:
            fates.append(None)

    threads = in_threads(*(lambda work=work: does(work) for work in (sends("a"), interrupted, sends("b"))))
    until(lambda: len(writer_._waiting) == 3)
    held.let_go()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert all(isinstance(fate, KeyboardInterrupt | OutcomeUnknown | None) for fate in fates)
    assert "half" not in stored(path)
    writer_.do(Job(sends("after"), durable=True))
    assert stored(path)[-1] == "after"


def test_closing_sees_through_what_waits(path: Path) -> None:
    entered = database.acquire(str(path))
    held = Held(entered.writer)
    answers = [entered.writer.submit(sends(str(number)), durable=True) for number in range(5)]
    threads = in_threads(lambda: database.release(entered))
    held.let_go()
    threads[0].join()
    assert all(answer.result(30).created for answer in answers)
    assert stored(path) == [str(number) for number in range(5)]


def test_what_a_failed_call_raised_is_freed_at_once(writer_: Writer) -> None:
    """No circle of the error, its traceback and the answer that gave it."""

    class Refused(BideError):
        pass

    def refuses(tx: Transaction) -> None:
        sends("is rolled back")(tx)
        raise Refused("no")

    gc.disable()
    try:
        with pytest.raises(Refused) as raised:
            writer_.do(Job(refuses, durable=True))
        left = weakref.ref(raised.value)
        del raised
        assert left() is None
    finally:
        gc.enable()
