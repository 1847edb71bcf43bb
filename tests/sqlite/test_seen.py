"""What a process remembers of a file is forgotten as soon as it is not true any more; and what that spares."""

import sqlite3
import statistics
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide.clock import ManualClock
from bide.engines.base import End, NewMessage, Settings
from bide.engines.sqlite import source
from bide.engines.sqlite.job import Job
from bide.engines.sqlite.transaction import MOST_TOPICS, ReadBefore
from bide.engines.sqlite.writer import LAGGING
from bide.errors import BideError

HOUR = 3_600_000


@pytest.fixture
def beside(path: Path) -> Iterator[Callable[[], Any]]:
    """Opens the file once more, as another process would: under another name, so that nothing is shared in this one."""
    clock = ManualClock()
    opened: list[Any] = []
    clock.set_ms(100 * HOUR)

    def open_one() -> Any:
        name = path.with_name(f"{len(opened)}.db")
        name.symlink_to(path)
        made: Any = source(Settings(url=f"sqlite:///{name}", clock=clock)).sync()
        made.open()
        opened.append(made)
        made.clock = clock
        return made

    yield open_one
    for each in opened:
        each.close()


def put(engine: Any, topic: str = "t", **options: Any) -> None:
    engine.put([NewMessage(topic, b"", **options)])


def drained(engine: Any, topic: str = "t") -> int:
    messages = engine.claim([topic], 9, 1_000).messages
    engine.settle([End(topic, each.id, each.token, "done") for each in messages])
    return len(messages)


def test_a_large_body_goes_with_its_message_also_after_a_time_without_any(beside: Callable[[], Any], path: Path) -> None:
    one, other = beside(), beside()
    for putting in (one, other, one):
        put(one)
        assert drained(one) == 1  # there was none to be seen
        putting.put([NewMessage("t", b"x" * 2_000)])
        assert drained(one) == 1
        with closing(sqlite3.connect(path)) as own:
            assert own.execute("select count(*) from large").fetchall() == [(0,)]


def test_a_topic_that_another_process_has_dropped_is_made_again(beside: Callable[[], Any]) -> None:
    one, other = beside(), beside()
    put(one)
    assert drained(other) == 1
    other.tend()
    put(other, "takes the number of t, unless numbers are never given again")
    put(one)
    assert drained(other) == 1


def test_a_topic_that_was_dropped_here_is_made_again(beside: Callable[[], Any]) -> None:
    one = beside()
    put(one)
    assert drained(one) == 1
    one.tend()
    put(one)
    assert drained(one) == 1


def test_a_topic_whose_making_was_rolled_back_is_made_again(beside: Callable[[], Any]) -> None:
    one = beside()
    namespace = one._namespace

    def fails(tx: Any) -> None:
        tx.topics.made(namespace, "t")
        raise BideError("after it has written")

    with pytest.raises(BideError, match="after it has written"):
        one._executor.database.writer.do(Job(fails, durable=True))
    put(one)
    assert drained(one) == drained(beside()) + 1 == 1


def test_a_bounded_number_of_topics_is_remembered() -> None:
    seen = ReadBefore()
    for number in range(MOST_TOPICS + 1):
        seen.remember_topic("s", str(number), number)
    assert [seen.topic("s", "0"), seen.topic("s", str(MOST_TOPICS))] == [None, MOST_TOPICS]


# time


def shown(engine: Any) -> int:
    found: int = engine.claim(["nothing"], 1, 1).now
    return found


def test_the_clock_is_set_back_and_another_process_is_at_most_a_tenth_of_a_second_behind(beside: Callable[[], Any]) -> None:
    one, other = beside(), beside()
    put(one)
    one.clock.advance(0.1)
    put(one)  # in a transaction whose time is not stored
    one.clock.advance(-3_600)
    assert shown(other) == 100 * HOUR
    assert shown(one) == 100 * HOUR + LAGGING // 10**6
    one.clock.advance(3_600.001)
    put(one)  # in one whose time is stored
    one.clock.advance(-3_600)
    assert shown(other) == shown(one) == 100 * HOUR + 101


def test_a_token_is_stored_with_its_time_at_once(beside: Callable[[], Any]) -> None:
    one, other = beside(), beside()
    put(one)
    put(one)
    one.clock.advance(0.001)
    [first] = one.claim(["t"], 1, 1_000).messages
    one.clock.advance(-3_600)
    [second] = other.claim(["t"], 1, 1_000).messages
    assert second.token > first.token
    assert shown(other) == 100 * HOUR + 1


def test_time_goes_on_at_half_speed_though_each_process_that_sends_is_killed(beside: Callable[[], Any]) -> None:
    put(beside())
    clock = beside().clock
    clock.advance(-3_600)
    for _ in range(11):
        put(beside())  # and it is closed only after all of this
        clock.advance(10)
    assert shown(beside()) == 100 * HOUR + 11 * 5_000


# pages


def pages(path: Path) -> list[int]:
    """How many pages each commit has written, by the frames of the write-ahead log."""
    log = Path(f"{path}-wal").read_bytes()
    [size], salt = struct.unpack(">I", log[8:12]), log[16:24]
    commits, count = [], 0
    for start in range(32, len(log), 24 + size):
        count += 1
        commit = struct.unpack(">I", log[start + 4 : start + 8])[0]
        if commit and log[start + 8 : start + 16] == salt:
            commits.append(count)
            count = 0
    return commits


@pytest.mark.parametrize("delay", [0, 900_000])
def test_a_send_writes_two_pages_its_message_and_the_order_of_due_times(
    delay: int, beside: Callable[[], Any], path: Path
) -> None:
    one = beside()
    put(one, delay=delay)
    for _ in range(40):
        put(one, delay=delay)
    assert statistics.mode(pages(path)[-40:]) == 2


def test_a_send_of_a_process_that_only_sends_is_one_statement_in_a_transaction(beside: Callable[[], Any]) -> None:
    one = beside()
    put(one, delay=60_000)
    said: list[str] = []
    one._executor.database.writer._connection.set_trace_callback(said.append)
    put(one, delay=60_000)
    assert [each.split()[0] for each in said] == ["begin", "pragma", "--", "commit"]
