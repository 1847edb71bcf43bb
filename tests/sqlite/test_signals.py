"""A signal handler that raises in the middle of a call: what was committed is done once, and answered truly."""

import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType

import pytest

from bide import OutcomeUnknown, Queue, Unavailable
from bide.clock import SystemClock
from bide.engines.base import NewMessage
from bide.engines.sqlite import change, database, file
from bide.engines.sqlite.job import Job
from bide.engines.sqlite.transaction import FileNamespace, Transaction

NAMESPACE = FileNamespace("bide", SystemClock(), 1_000_000, 1_000)
Handler = Callable[[int, FrameType | None], None]


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch, path: Path) -> Iterator[Callable[[Handler], None]]:
    """Has the next commit of the file followed by a signal, before anybody is answered."""
    entered = database.acquire(str(path))
    before = signal.getsignal(signal.SIGUSR1)
    wake = entered.writer._wake

    def woken(topics: set[tuple[str, str]]) -> None:
        monkeypatch.setattr(entered.writer, "_wake", wake)
        signal.raise_signal(signal.SIGUSR1)

    def prepare(handler: Handler) -> None:
        signal.signal(signal.SIGUSR1, handler)
        monkeypatch.setattr(entered.writer, "_wake", woken)

    yield prepare
    signal.signal(signal.SIGUSR1, before)
    database.release(entered)


def times_out(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError("the alarm went off")


def test_a_handler_that_raises_after_a_commit_has_nothing_done_twice(path: Path, interrupt: Callable[[Handler], None]) -> None:
    with Queue(f"sqlite:///{path}") as queue:
        queue.stats()
        writer = database._databases[str(path)].writer

        def sends(tx: Transaction) -> object:
            return change.put(tx, NAMESPACE, [NewMessage("t", b"1")], None)[0]

        other = Job(sends, durable=True)  # of another thread, which shares the commit
        writer._waiting.append(other)
        interrupt(times_out)
        with pytest.raises(TimeoutError):
            queue.send("t", 2)
        assert other.answer.done()
        assert other.answer.exception() is None
        assert [delivery.body for delivery in queue.receive("t", limit=10)] == [1, 2]


def test_a_handler_that_calls_the_queue_makes_the_outcome_unknown(path: Path, interrupt: Callable[[Handler], None]) -> None:
    with Queue(f"sqlite:///{path}") as queue:
        queue.stats()
        interrupt(lambda _number, _frame: print(queue.send("t", "from the handler")))
        with pytest.raises(OutcomeUnknown, match="signal handler") as told:
            queue.send("t", "committed")
        assert isinstance(told.value.__cause__, Unavailable)
        assert [delivery.body for delivery in queue.receive("t", limit=10)] == ["committed"]


def test_a_handler_that_raises_right_behind_a_begin_leaves_no_transaction_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = file.begin

    def interrupted(connection: sqlite3.Connection, where: str) -> None:
        monkeypatch.setattr(file, "begin", begin)
        begin(connection, where)
        times_out(0, None)

    with Queue(f"sqlite:///{path}") as queue:
        queue.send("t", 1)
        monkeypatch.setattr(file, "begin", interrupted)
        with pytest.raises(TimeoutError):
            queue.send("t", 2)
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:  # as another process would
            other.execute("begin immediate")
            other.execute("rollback")
        queue.send("t", 3)
        assert [delivery.body for delivery in queue.receive("t", limit=10)] == [1, 3]


def test_a_transaction_that_a_handler_left_open_is_given_up(path: Path) -> None:
    with Queue(f"sqlite:///{path}") as queue:
        queue.send("t", 1)
        connection = database._databases[str(path)].writer._connection
        assert connection is not None
        connection.execute("begin immediate")
        queue.send("t", 2)
        assert [delivery.body for delivery in queue.receive("t", limit=10)] == [1, 2]
