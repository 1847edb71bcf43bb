"""An outbox before a queue that has room for small messages only, whole or in one of its parts."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import BadMessage, Call, Hook, OutcomeUnknown, Queue, QueueFull, Unavailable
from bide.engines.base import NewMessage
from bide.queue import outbox
from bide.queue.relay import FORGOTTEN, NO_DOUBT, Kept, Rests, small_first
from tests.queue.test_outbox_part_away import kept
from tests.worker.processes import until

LARGE = 10_000  # bytes
AFTER = 0.5  # seconds in which all is refused after a large one, as by a server that has not given back its buffer


class Spoils(Hook):
    """What is for one topic, or begins with a word, when it is to."""

    spoils = False

    def before(self, call: Call) -> None:
        if call.verb == "put" and self.spoils:
            for message in call.asked:
                if message.topic == "bad" or bytes(message.body).startswith(b'"bad'):
                    message.headers["tenant"] = 7


class Room:
    """A queue in memory, of which one topic is full, or has no room for what is large. Its topics may be parts."""

    def __init__(self, queue: Queue, monkeypatch: pytest.MonkeyPatch, *, several: bool, full: bool = False) -> None:
        opened = queue.session.open()
        assert opened.outbox is not None
        self.tries = list[int]()  # of what is for that topic: how many at once
        self._engine, self._full, self._until = opened.engine, full, 0.0
        self._put = opened.engine.put
        monkeypatch.setattr(opened.engine, "put", self.put)
        monkeypatch.setattr(opened.engine, "part_of", lambda new: new.topic if several else None)
        self.store = opened.outbox.store

    def put(self, messages: Sequence[NewMessage], **how: Any) -> Any:
        if some := [each for each in messages if each.topic == "t"]:
            self.tries.append(len(some))
            large = any(len(each.body) >= LARGE for each in some)
            if large:
                self._until = time.monotonic() + AFTER
            if self._full or time.monotonic() < self._until:
                raise QueueFull("It is full.")
        there = [each for each in messages if each.topic != "away"]
        if not there:
            raise Unavailable("No answer.")
        sent = self._put(there, **how)
        if len(there) == len(messages):
            return sent
        answers = iter(sent)
        raise OutcomeUnknown("No answer.", answers=[next(answers) if each in there else None for each in messages])


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with Queue(f"memory://{tmp_path.name}", outbox=f"sqlite:///{tmp_path}/app.db", hooks=[Spoils()]) as queue:
        queue.relay(wait=False)
        yield queue


@pytest.fixture
def own(queue: Queue, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "app.db")) as own:
        yield own


@pytest.mark.parametrize("why", ["spoiled", "refused"])
def test_one_message_that_can_not_be_sent_undoes_nothing_of_what_a_full_part_is_kept_apart_by(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    room = Room(queue, monkeypatch, several=True, full=True)
    if why == "refused":
        put = room.put

        def refuse(messages: Sequence[NewMessage], **how: Any) -> Any:
            if any(each.topic == "bad" for each in messages):
                raise BadMessage("No.")
            return put(messages, **how)

        monkeypatch.setattr(room._engine, "put", refuse)
    queue.send("bad", 1, connection=own)
    queue.send_many("t", range(300), connection=own)
    queue.send_many("live", range(20), connection=own)
    own.commit()
    monkeypatch.setattr(Spoils, "spoils", why == "spoiled")
    with pytest.raises(QueueFull):
        queue.relay(wait=False)
    assert queue.stats("live").ready == 20
    assert sum(each == 1 for each in room.tries) <= 3  # what is as large as one that was refused is not tried by itself


@pytest.mark.parametrize("several", [True, False])
def test_a_large_message_keeps_no_small_ones_back_also_when_a_call_ends_with_those(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    Room(queue, monkeypatch, several=several)
    queue.send("t", "x" * LARGE, connection=own)
    queue.send_many("t", range(500), connection=own)
    own.commit()
    with pytest.raises(QueueFull):
        queue.relay(wait=False)
    assert queue.stats("t").ready == 500


def test_small_messages_do_not_wait_for_the_rest_of_a_part_that_has_no_room_for_a_large_one(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(queue, monkeypatch, several=True)
    monkeypatch.setattr("bide.queue.sync.handover.WHILE", 3_600_000)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(queue.relay)
        queue.send("t", "x" * LARGE, connection=own)
        own.commit()
        until(lambda: bool(room.tries))
        room._until = 0.0
        for count in range(1, 6):
            queue.send("t", count, connection=own)
            own.commit()
            until(lambda count=count: queue.stats("t").ready == count)  # type: ignore[misc]
        queue.close()
        assert running.result() == 5


def test_what_is_handed_on_beside_a_message_that_finds_no_room_is_counted(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(queue, monkeypatch, several=False)
    with ThreadPoolExecutor() as pool:
        queue.send_many("other", range(10), connection=own)
        queue.send("t", "x" * LARGE, connection=own)
        own.commit()
        running = pool.submit(queue.relay)
        until(lambda: queue.stats("other").ready == 10 and room.store.stats(outbox.TOPIC).ready == 0)
        queue.close()
        assert running.result() == 10


def of_size(size: int, key: str | None = None) -> Kept:
    [(claimed, new)] = kept("t")
    return claimed, NewMessage(new.topic, b"x" * size, key=key)


def test_a_part_without_room_rests_for_as_large_ones_until_it_takes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("bide.queue.relay.time.monotonic", lambda: now)
    rests, error = Rests(lambda new: new.topic), QueueFull("It is full.")
    sizes = (0, 1_000, 10_000, 20_000)

    def resting() -> list[bool]:
        return [rest is not None for rest in rests.of([of_size(size) for size in sizes], now)]

    def doubtful() -> list[bool]:
        return [rests.doubt(of_size(size)) != NO_DOUBT for size in sizes]

    rests.fill(of_size(10_000), error, 10_000)
    assert resting() == doubtful() == [False, False, True, True]
    rests.fill(of_size(0), error, 1_000)  # smaller ones are refused, too, and are tried again sooner
    assert resting() == doubtful() == [True] * 4
    now += 1
    assert resting() == [False, False, True, True]
    assert doubtful() == [True] * 4
    rests.answered([of_size(1_000)])
    assert resting() == doubtful() == [False, False, True, True]
    now += 11
    assert resting() == [False] * 4
    assert doubtful() == [False, False, True, True]
    rests.answered([of_size(20_000)])
    assert doubtful() == [False] * 4
    rests.fill(of_size(0), error, 1_000)
    now += 1 + FORGOTTEN
    assert doubtful() == [False] * 4


def test_small_messages_are_tried_first_but_those_of_a_key_in_their_order() -> None:
    some = [of_size(5_000), of_size(1), of_size(3_000, "k"), of_size(2, "k"), of_size(3), of_size(2_000, "k")]
    assert [len(each[1].body) for each in small_first(some)] == [1, 3, 3_000, 2, 2_000, 5_000]


@pytest.mark.parametrize("many", [0, 5])
def test_a_later_message_of_a_key_does_not_overtake_one_that_stays_though_they_are_sent_apart(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """As large ones have found no room once."""
    found = queue.session.open().outbox
    assert found is not None
    relay = found.relay()
    relay._handover._rests.fill(of_size(LARGE), QueueFull("It is full."), 0)
    queue.send("t", "bad", key="k", if_exists="replace", connection=own)
    queue.send("t", "x" * LARGE, key="k", if_exists="replace", connection=own)
    queue.send_many("t", range(many), connection=own)
    own.commit()
    monkeypatch.setattr(Spoils, "spoils", True)
    assert relay.hand_on_all() == many
    assert queue.stats("t").ready == many
    monkeypatch.setattr(Spoils, "spoils", False)
    queue.relay(wait=False)
    info = queue.get(topic="t", key="k")
    assert info is not None
    assert info.body == "x" * LARGE


def test_parts_that_do_not_answer_are_tried_side_by_side(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = queue.session.open().engine
    put, tries = engine.put, list[int]()

    def put_where_there_is_an_answer(messages: Sequence[NewMessage], **how: Any) -> Any:
        there = [each for each in messages if not each.topic.startswith("away")]
        if len(there) == len(messages):
            return put(messages, **how)
        tries.append(len(messages) - len(there))
        if not there:
            raise Unavailable("No answer.")
        sent = iter(put(there, **how))
        raise OutcomeUnknown("No answer.", answers=[next(sent) if each in there else None for each in messages])

    monkeypatch.setattr(engine, "put", put_where_there_is_an_answer)
    monkeypatch.setattr(engine, "part_of", lambda new: new.topic)
    for part in range(20):
        queue.send(f"away{part}", 1, connection=own)
    queue.send("t", 1, connection=own)
    own.commit()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(queue.relay)
        until(lambda: len(tries) >= 3)
        queue.close()
        assert running.result() == 1
    assert tries[:3] == [20, 20, 20]


def test_what_waits_for_a_part_that_was_full_is_sent_together_again_once_it_takes_one(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(queue, monkeypatch, several=True)
    found = queue.session.open().outbox
    assert found is not None
    relay = found.relay()
    relay._handover._rests.fill(of_size(1), QueueFull("It is full."), 0)
    queue.send_many("t", range(100), connection=own)
    own.commit()
    assert relay.hand_on_all() == 100
    assert room.tries == [1, 99]


def test_a_part_that_does_not_answer_hides_none_that_may_have_room(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    Room(queue, monkeypatch, several=True)
    queue.send("t", "x" * LARGE, connection=own)
    for number in range(300):
        queue.send("away", number, connection=own)
        queue.send("t", number, connection=own)
    own.commit()
    with pytest.raises((OutcomeUnknown, Unavailable), match=r"No answer\..*It is full\.|It is full\..*No answer\."):
        queue.relay(wait=False)
    assert queue.stats("t").ready == 300
