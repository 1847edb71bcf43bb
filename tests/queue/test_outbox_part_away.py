"""A relay before a queue of several parts, of which one does not answer: it hands on what is for the others."""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bide import OutcomeUnknown, Queue, Unavailable, Unsupported
from bide.engines.base import MAX_BATCH, Claimed, End, NewMessage
from bide.queue import outbox
from bide.queue.relay import Away, Kept, Rests
from tests.queue.test_outbox_handed_on import later

MANY = 2_500  # messages for the part that is away: they come first
BATCH = 100  # of them, which are sent together


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
        monkeypatch.setattr(opened.engine, "part_of", lambda new: new.topic if several else None)

    def put(self, messages: Sequence[NewMessage], **how: Any) -> Any:
        if any(each.topic == "away" for each in messages):
            self.tries += 1
            raise self._error
        return self._put(messages, **how)

    def claim(self, topics: Sequence[str], limit: int, lease: int) -> Any:
        self.limits.append(limit)
        return self._claim(topics, limit, lease)


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    monkeypatch.setattr("bide.queue.sync.relay.GIVING", 60.0)  # or a slow machine does not give all back
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
    for module in ("relay", "handover"):
        monkeypatch.setattr(f"bide.queue.sync.{module}.SOON", 60_000)  # or a slow machine tries it twice
    commit(queue, tmp_path, MANY)
    parts = Parts(queue, monkeypatch, several=True, error=error)
    with pytest.raises(type(error)):
        queue.relay(wait=False)
    assert queue.stats("live").ready == 5
    assert parts.tries == 1
    assert parts.outbox.store.stats(outbox.TOPIC).pending == MANY
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
    monkeypatch.setattr("bide.queue.sync.relay.ENOUGH", 300)
    monkeypatch.setattr("bide.queue.sync.relay.LOOKS", 50)
    commit(queue, tmp_path, MANY)
    parts = Parts(queue, monkeypatch, several=True, error=Unavailable("Away."))
    settle = parts.outbox.store.settle
    monkeypatch.setattr("bide.queue.sync.relay.Relay._settle", lambda _, ends: settle([replace(end, delay=0) for end in ends]))
    with pytest.raises(Unavailable):
        queue.relay(wait=False)
    assert parts.outbox.store.stats(outbox.TOPIC).pending > MANY


def test_each_call_tells_what_it_puts_off_while_a_part_rests(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(queue, monkeypatch, several=True, error=Unavailable("Away."))
    for call in range(1, 3):
        commit(queue, tmp_path, BATCH)
        with pytest.raises(Unavailable, match=r"Away\."):
            queue.relay(wait=False)
        assert queue.stats("live").ready == 5 * call
        assert parts.outbox.store.stats(outbox.TOPIC).ready == BATCH * call
    assert parts.tries >= 2


def test_what_is_behind_many_for_a_part_that_rests_is_handed_on_however_long_that_takes(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.queue.sync.relay.LOOKS", 0)
    Parts(queue, monkeypatch, several=True, error=Unavailable("Away."))
    commit(queue, tmp_path, BATCH)
    with pytest.raises(Unavailable):
        queue.relay(wait=False)
    commit(queue, tmp_path, MANY)
    with pytest.raises(Unavailable):
        queue.relay(wait=False)
    assert queue.stats("live").ready == 10


def test_what_is_behind_many_that_the_queue_can_not_take_is_handed_on_however_long_that_takes(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.queue.sync.relay.LOOKS", 0)
    commit(queue, tmp_path, 300)
    Parts(queue, monkeypatch, several=True, error=Unsupported("Not here."))
    assert queue.relay(wait=False) == 5
    assert queue.stats("live").ready == 5


def test_a_call_tells_what_it_puts_off_though_another_one_begins_meanwhile(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(queue, tmp_path, BATCH)
    store = Parts(queue, monkeypatch, several=True, error=Unavailable("Away.")).outbox.store
    enter, extend = store.gates.enter, store.extend
    asked, second = threading.Event(), list[Future[int]]()

    def told(*args: Any) -> Any:
        entered = enter(*args)
        if entered[0].token is None:
            asked.set()
        return entered

    def put_off(*args: Any, **options: Any) -> Any:
        if not second:
            second.append(pool.submit(queue.relay, wait=False))
            assert asked.wait(30)
        return extend(*args, **options)

    monkeypatch.setattr(store.gates, "enter", told)
    monkeypatch.setattr(store, "extend", put_off)
    with ThreadPoolExecutor() as pool:
        with pytest.raises(Unavailable, match=r"Away\."):
            queue.relay(wait=False)
        with pytest.raises(Unavailable, match=r"Away\."):
            second[0].result()
    assert queue.stats("live").ready == 5


def test_what_is_sent_one_by_one_stays_in_order_though_a_part_answers_again_meanwhile(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / "app.db")) as own:
        queue.send("not.here", 1, connection=own)  # so each is sent by itself
        queue.send("p", 1, connection=own)
        for body in ("old", "new"):
            queue.send("p", body, key="k", if_exists="replace", connection=own)
            queue.send("slow", 1, connection=own)
        own.commit()
    opened = queue.session.open()
    assert opened.outbox is not None
    rests, put, failures = Rests(lambda new: new.topic), opened.engine.put, [Unavailable("Away.")]

    def put_or_fail(messages: Sequence[NewMessage]) -> Any:
        if any(each.topic == "not.here" for each in messages):
            raise Unsupported("Not here.")
        if messages[0].topic == "p" and failures:
            raise failures.pop()
        if messages[0].topic == "slow":
            rests.answered(kept("p"))  # meanwhile its rest ends
        return put(messages)

    monkeypatch.setattr(opened.engine, "put", put_or_fail)
    monkeypatch.setattr("bide.queue.sync.handover.Rests", lambda _: rests)
    with pytest.raises(Unavailable):
        queue.relay(wait=False)
    assert queue.stats("slow").ready == 2
    assert queue.get(topic="p", key="k") is not None
    later(queue)
    assert queue.relay(wait=False) == 3
    assert [each.body for each in queue.messages("p")] == [1, "new"]


def kept(topic: str) -> list[Kept]:
    return [(Claimed("1", outbox.TOPIC, b"", {}, None, 0, 0, 1, 9, ""), NewMessage(topic, b""))]


def test_a_part_rests_for_longer_each_time_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("bide.queue.relay.time.monotonic", lambda: now)
    rests, error = Rests(lambda new: new.topic), Unavailable("Away.")
    parts = Away(rests)

    def delay() -> int:
        ends: list[End] = []
        rests.begin(kept("a"), error, 10_000)
        rests.begin(kept("a"), error, 10_000)  # of the same try
        assert parts.answering(kept("a"), ends) == []
        assert parts.answering(kept("b"), ends) == kept("b")
        return ends[0].delay

    delays = []
    for _ in range(5):
        delays.append(delay())
        now += delays[-1] / 1_000
        assert parts.answering(kept("a"), []) == kept("a")
    assert delays == [10_500, 20_500, 20_500, 20_500, 20_500]
    rests.answered(kept("a"))
    assert delay() == 10_500
