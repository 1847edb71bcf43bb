"""Several relays of one outbox: one of them is at work at a time, and any of them may be."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bide import Call, Hook, Queue, Unsupported
from bide.engines.base import Ref
from bide.engines.gates import Entry
from bide.queue import outbox
from bide.queue.sync.relay import LEAD, Relay
from tests.queue.test_outbox_handed_on import commit, connected, holds, outbox_of
from tests.worker.conftest import LONG
from tests.worker.processes import until

KEYS, ROWS = 20, 3_000


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_url")
        return found
    return f"sqlite:///{tmp_path}/app.db"


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory://{request.node.name.replace('[', '.').rstrip(']')}"


@pytest.fixture
def queue(store: str, url: str) -> Iterator[Queue]:
    with Queue(url, outbox=store) as queue:
        queue.open()
        yield queue


def relays_of(queue: Queue) -> list[Relay]:
    """Those at work."""
    return list(outbox_of(queue).relays._all)


class Puts(Hook):
    """When each message was put into the queue: each is (key, number, began, ended)."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int, int]] = []

    def before(self, call: Call) -> None:
        call.notes["began"] = time.monotonic_ns()

    def after(self, call: Call) -> None:
        if call.verb == "put" and call.engine.startswith("memory") and call.error is None:
            ended = time.monotonic_ns()
            self.seen += [(each.key, int(each.body), call.notes["began"], ended) for each in call.asked]

    def overtaken(self) -> list[tuple[str, int]]:
        """What was put for the first time after a later one of its key was there."""
        first: dict[tuple[str, int], int] = {}
        there: dict[str, list[tuple[int, int]]] = {}
        for key, number, began, ended in self.seen:
            first[key, number] = min(began, first.get((key, number), began))
            there.setdefault(key, []).append((ended, number))
        return [
            (key, number)
            for (key, number), began in first.items()
            if any(ended < began and later > number for ended, later in there[key])
        ]


@pytest.mark.parametrize("relays", [1, 4])
def test_a_backlog_of_many_keys_is_handed_on_in_order(relays: int, queue: Queue, store: str, url: str) -> None:
    with connected(store) as own:
        for n in range(ROWS):
            queue.send("t", n, key=f"k{n % KEYS}", if_exists="replace", delay="1h", connection=own)
        own.commit()
    puts = Puts()
    with ExitStack() as open_ones, ThreadPoolExecutor() as pool:
        others = [open_ones.enter_context(Queue(url, outbox=store, hooks=[puts])) for _ in range(relays)]
        running = [pool.submit(each.relay) for each in others]
        until(lambda: holds(outbox_of(queue)) == 0)
        for each in others:
            each.close()
        assert sum(each.result() for each in running) == ROWS
    assert len(puts.seen) == ROWS
    assert puts.overtaken() == []
    found = [queue.get(topic="t", key=f"k{n}") for n in range(KEYS)]
    assert [each.body for each in found if each is not None] == list(range(ROWS - KEYS, ROWS))


def test_one_relay_claims_at_a_time(queue: Queue, store: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or one would look while the other one's messages are moved, and miss some."""
    monkeypatch.setattr("bide.queue.sync.relay.LEAD", 60_000)
    with Queue(url, outbox=store) as first, ThreadPoolExecutor() as pool:
        first.open()
        at_work, goes_on, asked = threading.Event(), threading.Event(), threading.Event()
        put, enter = outbox_of(first)._target.put, outbox_of(queue).store.gates.enter

        def slowly(*args: Any) -> Any:
            at_work.set()
            goes_on.wait(LONG)
            return put(*args)

        def told(*args: Any) -> Any:
            entered = enter(*args)
            asked.set()
            return entered

        def claimed(*_: object) -> Any:
            raise AssertionError("Two relays claim at a time.")

        monkeypatch.setattr(outbox_of(first)._target, "put", slowly)
        monkeypatch.setattr(outbox_of(queue).store.gates, "enter", told)
        commit(queue, store, None)
        running = pool.submit(first.relay)
        assert at_work.wait(LONG)
        commit(queue, store, None)
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(outbox_of(queue).store, "claim", claimed)
            waiting = pool.submit(queue.relay)
            assert asked.wait(LONG)
            asked.clear()
            assert asked.wait(LONG)  # so it has seen the first answer through
        goes_on.set()
        until(lambda: holds(outbox_of(queue)) == 0)
        first.close()
        queue.close()
        assert running.result() + waiting.result() == 2


def test_a_relay_takes_the_place_of_a_dead_one(queue: Queue, store: str) -> None:
    commit(queue, store, None)
    found = outbox_of(queue)
    [entered] = found.store.gates.enter([Entry(outbox.TOPIC, "a dead one", LEAD)])
    assert entered.token is not None
    assert queue.relay(wait=False) == 1


def test_a_relay_that_is_asked_for_what_is_there_hands_on_nothing_while_another_one_is_at_work(
    queue: Queue, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.queue.sync.relay.LEAD", 100)
    monkeypatch.setattr("bide.queue.sync.relay.POLL", 0.1)
    commit(queue, store, None)
    outbox_of(queue).store.gates.enter([Entry(outbox.TOPIC, "another one", 60_000)])
    assert queue.relay(wait=False) == 0
    assert holds(outbox_of(queue)) == 1


def test_a_relay_that_ends_leaves_its_place(queue: Queue, store: str, url: str) -> None:
    with Queue(url, outbox=store) as other, ThreadPoolExecutor() as pool:
        running = pool.submit(other.relay)
        until(lambda: any(each.waits for each in relays_of(other)))
        other.close()
        running.result()
    [entered] = outbox_of(queue).store.gates.enter([Entry(outbox.TOPIC, "the next one", LEAD)])
    assert entered.token is not None


def test_a_relay_that_is_closed_sees_through_what_it_hands_on_and_leaves_its_place(
    queue: Queue, store: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(queue, store, None)
    with Queue(url, outbox=store) as other, ThreadPoolExecutor() as pool:
        other.open()
        at_work, goes_on = threading.Event(), threading.Event()
        put = outbox_of(other)._target.put

        def slowly(*args: Any) -> Any:
            at_work.set()
            goes_on.wait(LONG)
            return put(*args)

        monkeypatch.setattr(outbox_of(other)._target, "put", slowly)
        running = pool.submit(other.relay)
        assert at_work.wait(LONG)
        relays = outbox_of(other).relays
        closing = pool.submit(other.close)
        until(lambda: relays._closed)
        goes_on.set()
        closing.result()
        assert running.result() == 1
    [entered] = outbox_of(queue).store.gates.enter([Entry(outbox.TOPIC, "the next one", LEAD)])
    assert entered.token is not None


def test_what_one_release_can_not_hand_on_is_left_to_a_relay_that_can(
    queue: Queue, store: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the first one has more to do all the time."""
    monkeypatch.setattr("bide.queue.sync.relay.LATER", 300)
    with Queue(url, outbox=store) as older, ThreadPoolExecutor() as pool:
        older.open()
        target = outbox_of(older)._target
        put = target.put

        def refuse(messages: list[object], **options: object) -> object:
            if any(each.key == "newer" for each in messages):  # type: ignore[attr-defined]
                raise Unsupported("This release does not know it.")
            return put(messages, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(target, "put", refuse)
        commit(queue, store, "newer")
        running = pool.submit(older.relay)
        until(lambda: any(each._handover.for_others for each in relays_of(older)))
        newer = pool.submit(queue.relay)

        def arrived() -> bool:
            commit(queue, store, "of both")
            return outbox_of(queue)._target.get([Ref(topic="t", key="newer")]) != [None]  # it is not only in the outbox

        until(arrived)
        older.close()
        queue.close()
        running.result()
        assert newer.result() >= 1
