"""Kept results and messages that wait for others, in the caller's own transaction: a group is sent as one, or not at all."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import ManualClock, Queue, ResultCancelled, ResultUnknown


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(path: Path, clock: ManualClock) -> Iterator[Queue]:
    with Queue(f"sqlite:///{path}", clock=clock) as made:
        yield made


@pytest.fixture
def own(path: Path, queue: Queue) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        yield connection


@pytest.fixture
def tasks(queue: Queue) -> tuple[Any, Any]:
    @queue.task("part", keep="1h")
    def part(n: int) -> int:
        return n

    @queue.task("whole", keep="1h")
    def whole() -> str:
        return "all of it"

    return part, whole


def test_a_group_is_sent_with_the_callers_commit(queue: Queue, own: sqlite3.Connection, tasks: tuple[Any, Any]) -> None:
    part, whole = tasks
    for end in (own.rollback, own.commit):
        parts = part.options(connection=own).send_many({"n": n} for n in range(3))
        last = whole.options(depends_on=parts, connection=own).send()
        end()
        handled = [each.topic for each in queue.testing.advance(0)]
        assert handled == ([] if end == own.rollback else ["part", "part", "part", "whole"])
        if end == own.commit:
            assert queue.result(last, timeout=0) == "all of it"
        else:
            with pytest.raises(ResultUnknown):
                queue.result(last, timeout=0)


def test_what_was_sent_in_a_transaction_and_cancelled_is_told(
    queue: Queue, own: sqlite3.Connection, tasks: tuple[Any, Any]
) -> None:
    part, _ = tasks
    sent = part.options(connection=own, delay="1h").send(n=1)
    own.commit()
    assert queue.cancel(sent)
    with pytest.raises(ResultCancelled):
        queue.result(sent, timeout=0)


def test_what_is_done_before_the_transaction_is_not_waited_for(
    queue: Queue, own: sqlite3.Connection, tasks: tuple[Any, Any]
) -> None:
    part, whole = tasks
    done, open_ = part.send(n=1), part.after("1m").send(n=2)
    queue.testing.advance(0)
    one = whole.options(depends_on=[done], connection=own).send()
    other = whole.options(depends_on=[done, open_], connection=own).send()
    own.commit()
    queue.testing.advance(0)
    assert queue.result(one, timeout=0) == "all of it"
    queue.testing.advance("1m")
    assert queue.result(other, timeout=0) == "all of it"


def test_workers_remove_what_is_over(queue: Queue, own: sqlite3.Connection, tasks: tuple[Any, Any]) -> None:
    part, whole = tasks
    parts = part.send_many({"n": n} for n in range(5))
    whole.options(depends_on=parts).send()
    lost = part.after("10s").send(n=9)
    whole.options(depends_on=[lost], deadline="30m").send()
    queue.cancel(lost)
    queue.testing.advance("59m")
    assert own.execute("select count(*) from bide_result").fetchone() == (8,)
    queue.testing.advance("2d")
    for table in ("bide_result", "bide_waiting"):
        assert own.execute(f"select count(*) from {table}").fetchone() == (0,)
