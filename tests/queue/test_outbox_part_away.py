"""A relay before a queue of several parts, of which one does not answer: it hands on what is for the others."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bide import OutcomeUnknown, Queue, Unavailable
from bide.engines.base import MAX_BATCH, Claimed, End, NewMessage
from bide.queue import outbox
from bide.queue.away import Away, Kept

MANY = 2_500  # messages for the part that is away: they come first


class Parts:
    """A queue in memory, whose topics are parts. `error`: what a put to the one that is away raises."""

    def __init__(self, queue: Queue, monkeypatch: pytest.MonkeyPatch, *, several: bool, error: Exception) -> None:
        opened = queue.session.open()
        assert opened.outbox is not None
        self.outbox = opened.outbox
        self.tries = 0
        self.limits = list[int]()
        self._put, self._claim, self._error = opened.engine.put, self.outbox.store.claim, error
        monkeypatch.setattr(opened.engine, "put", self.put)
        monkeypatch.setattr(self.outbox.store, "claim", self.claim)
        monkeypatch.setattr(self.outbox, "_away", Away(lambda new: new.topic if several else None))

    def put(self, messages: Sequence[NewMessage]) -> Any:
        if any(each.topic == "away" for each in messages):
            self.tries += 1
            raise self._error
        return self._put(messages)

    def claim(self, topics: Sequence[str], limit: int, lease: int) -> Any:
        self.limits.append(limit)
        return self._claim(topics, limit, lease)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with Queue(f"memory://{tmp_path.name}", outbox=f"sqlite:///{tmp_path}/app.db") as queue:
        queue.relay(wait=False)
        yield queue


def commit(queue: Queue, tmp_path: Path, many: int, body: object = 1) -> None:
    """Some for the part that is away, and then five for another one."""
    with closing(sqlite3.connect(tmp_path / "app.db")) as own:
        for begin in range(0, many, MAX_BATCH):
            queue.send_many("away", [body] * min(MAX_BATCH, many - begin), connection=own)
        queue.send_many("live", list(range(5)), connection=own)
        own.commit()


@pytest.mark.parametrize("error", [Unavailable("Away."), OutcomeUnknown("No answer.")], ids=lambda each: type(each).__name__)
def test_what_is_behind_many_for_a_part_that_is_away_is_handed_on_in_the_same_call(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    commit(queue, tmp_path, MANY)
    parts = Parts(queue, monkeypatch, several=True, error=error)
    with pytest.raises(type(error)):
        queue.relay(wait=False)
    assert queue.stats("live").ready == 5
    assert parts.tries == 1
    assert parts.outbox.store.stats(outbox.TOPIC).leased == MANY
    assert set(parts.limits) == {100, MAX_BATCH}  # and few claims for what is held back


def test_of_large_messages_no_more_are_claimed_than_memory_has_room_for(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(queue, tmp_path, 300, "x" * 8_192)
    parts = Parts(queue, monkeypatch, several=True, error=Unavailable("Away."))
    with pytest.raises(Unavailable):
        queue.relay(wait=False)
    assert queue.stats("live").ready == 5
    assert set(parts.limits) == {100}


def test_a_queue_that_is_away_altogether_is_asked_once(queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(queue, tmp_path, 300)
    parts = Parts(queue, monkeypatch, several=False, error=Unavailable("Away."))
    with pytest.raises(Unavailable):
        queue.relay(wait=False)
    assert (parts.tries, parts.limits) == (1, [100])


def test_a_call_ends_though_what_is_held_back_comes_again_all_the_time(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.queue.sync.outbox.MOST", 300)
    monkeypatch.setattr("bide.queue.sync.outbox.LOOKS", 50)
    commit(queue, tmp_path, MANY)
    parts = Parts(queue, monkeypatch, several=True, error=Unavailable("Away."))
    settle = parts.outbox.store.settle
    monkeypatch.setattr(parts.outbox, "_settle", lambda ends: settle([replace(end, delay=0) for end in ends]))
    with pytest.raises(Unavailable):
        queue.relay(wait=False)
    assert parts.outbox.store.stats(outbox.TOPIC).pending > MANY


def kept(topic: str) -> list[Kept]:
    return [(Claimed("1", outbox.TOPIC, b"", {}, None, 0, 0, 1, 9, ""), NewMessage(topic, b""))]


def test_a_part_rests_for_longer_each_time_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("bide.queue.away.time.monotonic", lambda: now)
    parts = Away(lambda new: new.topic)

    def delay() -> int:
        ends: list[End] = []
        parts.rest(kept("a"), 10_000)
        parts.rest(kept("a"), 10_000)  # of the same try
        assert parts.answering(kept("a"), ends) == []
        assert parts.answering(kept("b"), ends) == kept("b")
        return ends[0].delay

    delays = []
    for _ in range(5):
        delays.append(delay())
        now += delays[-1] / 1_000
        assert parts.answering(kept("a"), []) == kept("a")
    assert delays == [10_500, 20_500, 40_500, 60_500, 60_500]
    parts.answered(kept("a"))
    assert delay() == 10_500
