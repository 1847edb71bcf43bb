"""What of an outbox is sent together: beside a message that can't be sent, others are handed on in few calls."""

import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bide import BadMessage, BideError, Call, Hook, OutcomeUnknown, Queue, QueueFull, Unavailable, Unsupported
from bide.engines.base import End, NewMessage
from bide.engines.each import keep_each
from bide.queue import outbox
from bide.queue.relay import LATER, Kept
from tests.queue.test_outbox_handed_on import outbox_of

MANY = 100  # as many as are claimed at once
LARGE = 10_000  # bytes


class Clock:
    """In place of the module time: it goes on with each call only."""

    def __init__(self) -> None:
        self.now, self.a_call = 1_000.0, 0.0

    def monotonic(self) -> float:
        return self.now


class Spoils(Hook):
    """What has one body, while it is on. It takes its time."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.on, self.calls = clock, True, 0

    def before(self, call: Call) -> None:
        if call.verb == "put" and call.engine.startswith("memory"):
            self.calls += 1
            self.clock.now += self.clock.a_call
            for message in call.asked:
                if self.on and bytes(message.body) == b'"bad"':
                    message.headers["tenant"] = 7


class Parts:
    """A queue in memory, whose topics are parts. Each call that it gets is noted, with the topics and how many they were."""

    def __init__(self, queue: Queue, monkeypatch: pytest.MonkeyPatch, clock: Clock, *, several: bool = True) -> None:
        engine = queue.session.open().engine
        self.puts, self.topics = list[int](), list[set[str]]()
        self.errors: dict[str, BideError] = {}  # of the parts that fail
        self.room: float = math.inf  # bytes that a message of the part "t" may have
        self._put, self._clock = engine.put, clock
        monkeypatch.setattr(engine, "put", self.put)
        monkeypatch.setattr(engine, "part_of", lambda new: new.topic if several else None)

    def put(self, messages: Sequence[NewMessage], **how: Any) -> Any:
        self._clock.now += self._clock.a_call
        self.puts.append(len(messages))
        self.topics.append({each.topic + ("+" if len(each.body) >= LARGE else "") for each in messages})
        errors = dict(self.errors)
        if any(each.topic == "t" and len(each.body) > self.room for each in messages):
            errors["t"] = QueueFull("It is full.")
        failed = [errors.get(each.topic) for each in messages]
        there = [each for each, error in zip(messages, failed, strict=True) if error is None]
        sent = iter(self._put(there, **how) if there else [])
        if len(there) == len(messages):
            return list(sent)
        answers = [next(sent) if error is None else None for error in failed]
        raise keep_each(OutcomeUnknown("Some failed.", answers=answers if there else ()), failed)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("bide.queue.sync.handover.time", clock)
    monkeypatch.setattr("bide.queue.sync.handover.SOON", 20)
    return clock


@pytest.fixture
def hook(clock: Clock) -> Spoils:
    return Spoils(clock)


@pytest.fixture
def queue(hook: Spoils, tmp_path: Path) -> Iterator[Queue]:
    with Queue(f"memory://{tmp_path.name}", outbox=f"sqlite:///{tmp_path}/app.db", hooks=[hook]) as queue:
        queue.relay(wait=False)
        yield queue


@pytest.fixture
def own(queue: Queue, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "app.db")) as own:
        yield own


def refuse(queue: Queue, monkeypatch: pytest.MonkeyPatch, clock: Clock, error: BideError) -> list[int]:
    """The engine takes no batch with a message "no" in it. How many each call was about is returned."""
    engine, puts = queue.session.open().engine, list[int]()
    put = engine.put

    def put_none_of(messages: Sequence[NewMessage]) -> Any:
        clock.now += clock.a_call
        puts.append(len(messages))
        if any(bytes(each.body) == b'"no"' for each in messages):
            raise error
        return put(messages)

    monkeypatch.setattr(engine, "put", put_none_of)
    return puts


@pytest.mark.parametrize("a_call", [0.0, 3.0])
@pytest.mark.parametrize("places", [[0], [99], [0, 17, 50, 99]], ids=str)
def test_messages_that_a_slow_hook_spoils_cost_one_more_call(
    queue: Queue, own: sqlite3.Connection, hook: Spoils, clock: Clock, places: list[int], a_call: float
) -> None:
    queue.send_many("t", ["bad" if number in places else number for number in range(MANY)], connection=own)
    own.commit()
    clock.a_call = a_call
    assert queue.relay(wait=False) == MANY - len(places)
    assert queue.stats("t").ready == MANY - len(places)
    assert hook.calls == 2


@pytest.mark.parametrize("a_call", [0.0, 3.0])
@pytest.mark.parametrize("at", [0, 42, 99])
@pytest.mark.parametrize("error", [BadMessage("No."), Unsupported("Not here.")], ids=lambda each: type(each).__name__)
def test_a_message_that_is_refused_is_found_by_halves_and_one_call_hands_on_all_others(
    queue: Queue,
    own: sqlite3.Connection,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    error: BideError,
    at: int,
    a_call: float,
) -> None:
    """Also if each call takes longer than a relay has time for: then the rest is tried again after a moment."""
    puts = refuse(queue, monkeypatch, clock, error)
    queue.send_many("t", ["no" if number == at else number for number in range(MANY)], connection=own)
    own.commit()
    clock.a_call = a_call
    queue.relay(wait=False)
    assert queue.stats("t").ready == MANY - 1
    assert outbox_of(queue).store.stats(outbox.TOPIC).dead == isinstance(error, BadMessage)
    if not a_call:
        assert len(puts) <= 2 * math.ceil(math.log2(MANY)) + 1


def test_each_turn_decides_something_however_slow_calls_are(
    queue: Queue, own: sqlite3.Connection, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(queue, monkeypatch, clock, BadMessage("No."))
    queue.send_many("t", ["no"] * 8, connection=own)
    own.commit()
    clock.a_call = 3.0
    handover = outbox_of(queue).relay()._handover
    left = claimed(queue, handover)
    for turn in range(1, 9):
        ends: list[End] = []
        handover.put(left, ends, 0)
        gone = {end.id for end in ends if end.verdict == "dead"}
        left = [each for each in left if each[0].id not in gone]
        assert (len(gone), len(ends), handover.again_soon) == (1, 9 - turn, turn < 8)


def claimed(queue: Queue, handover: Any) -> list[Kept]:
    found: list[Kept] = handover.read(outbox_of(queue).store.claim([outbox.TOPIC], MANY, 60_000), [])
    return found


def test_an_earlier_message_of_a_key_does_not_wait_for_a_later_one_that_is_spoiled(
    queue: Queue, own: sqlite3.Connection, hook: Spoils
) -> None:
    for body in ("first", "bad", "last"):
        queue.send("t", body, key="k", if_exists="replace", delay="1h", connection=own)
    queue.send_many("t", range(MANY - 3), connection=own)
    own.commit()
    hook.on = True
    assert queue.relay(wait=False) == MANY - 2
    info = queue.get(topic="t", key="k")
    assert info is not None
    assert info.body == "first"
    hook.on = False
    assert queue.relay(wait=False) == 2
    info = queue.get(topic="t", key="k")
    assert info is not None
    assert info.body == "last"


def test_beside_a_part_that_does_not_answer_one_that_is_full_for_large_messages_takes_small_ones(
    queue: Queue, own: sqlite3.Connection, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the two are in one call only once, before that is known."""
    parts = Parts(queue, monkeypatch, clock)
    parts.errors["away"], parts.room = Unavailable("No answer."), 5_000
    queue.send("away", 1, connection=own)
    queue.send("t", "x" * LARGE, connection=own)
    queue.send_many("t", range(50), connection=own)
    own.commit()
    with pytest.raises((Unavailable, QueueFull), match=r"No answer\..*It is full\.|It is full\..*No answer\."):
        queue.relay(wait=False)
    assert queue.stats("t").ready == 50
    assert parts.topics[0] == {"away", "t", "t+"}
    assert all(len(each) == 1 for each in parts.topics[1:])
    assert parts.topics.index({"t"}) < parts.topics.index({"t+"})


def test_parts_that_refuse_for_different_reasons_are_told_apart(
    queue: Queue, own: sqlite3.Connection, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(queue, monkeypatch, clock)
    parts.errors |= {"bad": BadMessage("No."), "away": Unavailable("No answer."), "elsewhere": Unsupported("Not here.")}
    for topic in ("bad", "away", "elsewhere", "live"):
        queue.send(topic, 1, connection=own)
    own.commit()
    with pytest.raises(Unavailable, match=r"^No answer\.$"):
        queue.relay(wait=False)
    assert queue.stats("live").ready == 1
    waiting = outbox_of(queue).store.stats(outbox.TOPIC)
    assert (waiting.dead, waiting.pending) == (1, 2)
    assert parts.puts[0] == 4


def test_messages_for_which_there_is_room_by_parts_only_are_handed_on_in_halves(
    queue: Queue, own: sqlite3.Connection, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, puts = queue.session.open().engine, list[int]()
    put = engine.put

    def put_few(messages: Sequence[NewMessage]) -> Any:
        puts.append(len(messages))
        if len(messages) > 10:
            raise QueueFull("It is full.")
        return put(messages)

    monkeypatch.setattr(engine, "put", put_few)
    queue.send_many("t", range(MANY), connection=own)
    own.commit()
    assert queue.relay(wait=False) == MANY
    assert len(puts) < MANY / 2


def test_a_call_that_finds_room_in_the_end_tells_of_no_lack(
    queue: Queue, own: sqlite3.Connection, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(queue, monkeypatch, clock)
    monkeypatch.setattr("bide.queue.sync.handover.WHILE", 20)
    monkeypatch.setattr("bide.queue.relay.SOON", 20)
    parts.errors["t"] = QueueFull("It is full.")
    put = parts.put

    def put_at_last(messages: Sequence[NewMessage], **how: Any) -> Any:
        if len(parts.puts) == 5:
            parts.errors.clear()
        return put(messages, **how)

    monkeypatch.setattr(queue.session.open().engine, "put", put_at_last)
    queue.send_many("t", range(MANY), connection=own)
    own.commit()
    assert queue.relay(wait=False) == MANY


def test_what_is_spoiled_is_tried_again_by_how_often_it_was_not_by_how_long_it_has_waited(
    queue: Queue, own: sqlite3.Connection
) -> None:
    queue.send("t", "bad", connection=own)
    own.commit()
    handover = outbox_of(queue).relay()._handover
    kept = [(replace(each, attempt=25), new) for each, new in claimed(queue, handover)]
    delays = []
    for _ in range(3):
        ends: list[End] = []
        handover.put(kept, ends, 0)
        delays.append(ends[0].delay)
    assert delays == [LATER, 2 * LATER, 3 * LATER]
