"""A number is given to one message only, for ever: each new one is higher than all that there have been."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import Queue, SchemaMismatch
from bide.clock import ManualClock
from bide.engines.base import End, NewMessage, Ref, Settings
from bide.engines.sqlite import file, source


def number(id: str) -> int:
    """Without the salt, which would hide that a number is given again, but for one time in 65,536."""
    return int(id[:12], 16)


def put(engine: Any, **options: Any) -> int:
    [sent] = engine.put([NewMessage("t", b"", **options)])
    return number(sent.id)


class File:
    """A file that is closed and opened again at any time."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self._source = source(Settings(url=url, clock=self.clock, dead_for=1_000, dead_max=1))
        self.engine = self._source.sync()
        self.engine.open()

    def reopened(self) -> Any:
        self.engine.close()
        self.engine = self._source.sync()
        self.engine.open()
        return self.engine


@pytest.fixture
def opened(url: str) -> Any:
    made = File(url)
    yield made
    made.engine.close()


def received(engine: Any) -> Any:
    return engine.claim(["t"], 9, 60_000).messages


def acked(opened: File) -> None:
    opened.engine.settle([End("t", each.id, each.token, "done") for each in received(opened.engine)])


def cancelled(opened: File) -> None:
    opened.engine.cancel([Ref(topic="t", key="k")])


def purged(opened: File) -> None:
    opened.engine.purge("t", "ready")


def expired(opened: File) -> None:
    opened.clock.advance(60)
    opened.engine.tend()


def expired_unseen(opened: File) -> None:
    opened.clock.advance(60)
    assert received(opened.engine) == []


def retried_too_late(opened: File) -> None:
    opened.engine.settle([End("t", each.id, each.token, "retry", delay=60_000) for each in received(opened.engine)])


def died_too_many(opened: File) -> None:
    """The limit of dead letters drops the one that died first: the highest."""
    opened.engine.put([NewMessage("t", b"", level=2)])
    [high, low] = received(opened.engine)
    for each in (high, low):
        opened.engine.settle([End("t", each.id, each.token, "dead")])
        opened.clock.advance(0.1)


def died_long_ago(opened: File) -> None:
    opened.engine.settle([End("t", each.id, each.token, "dead") for each in received(opened.engine)])
    opened.clock.advance(60)
    opened.engine.tend()


ENDS = [acked, cancelled, purged, expired, expired_unseen, retried_too_late, died_too_many, died_long_ago]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
@pytest.mark.parametrize("before", [0, 3], ids=["alone", "the highest of four"])
def test_the_number_of_a_message_that_has_ended_is_not_given_again_when_the_file_was_closed_since(
    before: int, end: Callable[[File], None], opened: File
) -> None:
    for _ in range(before):
        put(opened.engine, delay=10**9)
    highest = put(opened.engine, key="k", expires_in=30_000)
    end(opened)
    assert opened.engine.get([Ref(topic="t", key="k")]) == [None]
    assert put(opened.reopened()) > highest


def test_one_that_died_first_of_two_takes_its_number_with_it(opened: File) -> None:
    """The highest ends, then the one below it, which is the highest now: that must not make the number lower."""
    low, high = put(opened.engine, key="low"), put(opened.engine, key="high")
    opened.engine.cancel([Ref(topic="t", key="high")])
    opened.engine.cancel([Ref(topic="t", key="low")])
    assert put(opened.reopened()) > high > low


def test_what_a_rolled_back_transaction_did_changes_no_number(opened: File, path: Path) -> None:
    highest = put(opened.engine, key="k")
    with closing(sqlite3.connect(path)) as own:
        opened.engine.cancel([Ref(topic="t", key="k")], connection=own)
        [sent] = opened.engine.put([NewMessage("t", b"")], connection=own)
        assert number(sent.id) > highest
        own.rollback()
        assert put(opened.engine) == highest + 1
        opened.engine.purge("t", "ready")
        assert put(opened.reopened()) == highest + 2


IN_TURNS = """
    import sys
    import bide
    with bide.Queue(sys.argv[1]) as queue:
        for _ in sys.stdin:
            sent = queue.send("t", 1)
            print(sent.id)
            queue.cancel(sent)
"""


def test_processes_that_end_each_others_highest_give_no_number_twice(start: Callable[..., Any], url: str) -> None:
    child = start(IN_TURNS, url)
    numbers = []
    with closing(Queue(url)) as queue:
        for _ in range(20):
            child.tell()
            numbers.append(number(child.line()))
            sent = queue.send("t", 1)
            numbers.append(number(sent.id))
            queue.cancel(sent)
    assert numbers == list(range(1, 41))


# files of the layout before

SECOND_LAYOUT = """
insert into topic (space, name) values ('bide', 't');
insert into message (salt, topic, stage, level, due, attempt, most, body, headers, key, life, expires, since) values
(9, 1, 0, 1, 5, 1, 3, x'22612022', '{"h":"1"}', 'k', 5, 9000000000000, 4),
(9, 1, 0, 1, 6, 0, 3, null, null, null, null, null, null),
(9, 1, 0, 1, 7, 0, 3, x'31', null, null, null, null, null);
insert into large (id, body) values (2, x'322020');
"""


def lay_out_as_before(path: Path, *more: str) -> None:
    """A file as the second layout's release wrote it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"pragma auto_vacuum = incremental; pragma journal_mode = wal; {''.join(file.MIGRATIONS[:2])} {' '.join(more)}"
            f"pragma application_id = {file.APPLICATION_ID}; pragma user_version = 2;"
        )


def test_a_file_of_the_second_layout_goes_on_where_its_numbers_ended(path: Path, url: str) -> None:
    lay_out_as_before(path, SECOND_LAYOUT, "delete from message where id = 3;")
    with closing(source(Settings(url=url)).sync()) as engine:
        engine.open()
        assert put(engine, delay=60_000) == 4
        [one, two] = engine.claim(["t"], 9, 1_000).messages
        assert (one.id, one.body, one.headers, one.key, one.attempt, one.since) == (
            f"{1:012x}0009",
            b'"a "',
            {"h": "1"},
            "k",
            2,
            4,
        )
        assert (two.id, two.body, two.key, two.attempt, two.since) == (f"{2:012x}0009", b"2  ", None, 1, 6)


@pytest.mark.parametrize("more", ["", SECOND_LAYOUT], ids=["empty", "with messages"])
def test_a_file_that_was_brought_up_is_laid_out_as_a_new_one(path: Path, more: str) -> None:
    def layout(of: Path) -> list[Any]:
        file.opened(str(of)).close()
        with closing(sqlite3.connect(of)) as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
            return connection.execute("select type, name, tbl_name, sql from sqlite_schema order by name").fetchall()

    lay_out_as_before(path, more)
    assert layout(path) == layout(path.with_name("new.db"))


def test_a_release_before_refuses_the_file_and_leaves_it(path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Queue(url)) as queue:
        queue.send("t", "kept")
    with monkeypatch.context() as before:
        before.setattr(file, "MIGRATIONS", file.MIGRATIONS[:2])
        with closing(Queue(url)) as queue, pytest.raises(SchemaMismatch, match=r"layout 3, and .* up to 2: update bide here"):
            queue.send("t", 1)
    with closing(Queue(url)) as queue:
        assert [each.body for each in queue.receive("t", limit=9)] == ["kept"]
