"""A queue that is closed while relays of it are at work, or wait for their turn."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bide import Call, Hook, Queue
from bide.engines.gates import Entry
from bide.queue import outbox
from bide.queue.sync.relay import LEAD, Relays
from tests.queue.test_outbox_handed_on import commit, outbox_of
from tests.worker.conftest import LONG
from tests.worker.processes import until

ROWS = 10


class Slow(Hook):
    """Each put into the queue takes until it may go on."""

    def __init__(self) -> None:
        self.at_work, self.goes_on = threading.Event(), threading.Event()

    def before(self, call: Call) -> None:
        if call.verb == "put" and call.engine.startswith("memory"):
            self.at_work.set()
            self.goes_on.wait(LONG)


class Closes(Hook):
    """Closes the queue in a put of its relay."""

    queue: Queue
    error: Exception | None = None

    def before(self, call: Call) -> None:
        if call.verb == "put" and call.engine.startswith("memory"):
            try:
                self.queue.close()
            except Exception as error:
                self.error = error


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"memory://{tmp_path.name}"


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/app.db"


@pytest.fixture
def backlog(url: str, store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    """Ten batches of one message wait in the outbox."""
    monkeypatch.setattr("bide.queue.sync.relay.AT_ONCE", 1)
    with Queue(url, outbox=store) as queue:
        queue.open()
        queue.relay(wait=False)
        commit(queue, store, *[None] * ROWS)
        yield queue


def left(queue: Queue) -> tuple[int, int]:
    """How many in the outbox are ready and leased."""
    stats = outbox_of(queue).store.stats(outbox.TOPIC)
    return stats.ready, stats.leased


def lead(queue: Queue, ms: int = LEAD) -> bool:
    """Whether another relay can take its turn at once."""
    [entered] = outbox_of(queue).store.gates.enter([Entry(outbox.TOPIC, "another one", ms)])
    return entered.token is not None


@pytest.mark.parametrize("wait", [True, False])
def test_a_relay_ends_after_its_batch(wait: bool, backlog: Queue, url: str, store: str) -> None:
    hook = Slow()
    with Queue(url, outbox=store, hooks=[hook]) as queue, ThreadPoolExecutor() as pool:
        queue.open()
        running = pool.submit(queue.relay, wait=wait)
        assert hook.at_work.wait(LONG)
        relays = outbox_of(queue).relays
        closing = pool.submit(queue.close)
        until(lambda: relays._closed)
        hook.goes_on.set()
        closing.result()
        assert running.result() == 1
    assert left(backlog) == (ROWS - 1, 0)
    assert lead(backlog)


@pytest.mark.parametrize("wait", [True, False])
def test_a_relay_that_waits_for_its_turn_ends_without_an_error(
    wait: bool, backlog: Queue, url: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lead(backlog, 60_000)
    with Queue(url, outbox=store) as queue, ThreadPoolExecutor() as pool:
        queue.open()
        gates, asked = outbox_of(queue).store.gates, threading.Event()
        enter = gates.enter

        def told(entries: list[Entry]) -> Any:
            entered = enter(entries)
            asked.set()
            return entered

        monkeypatch.setattr(gates, "enter", told)
        running = pool.submit(queue.relay, wait=wait)
        assert asked.wait(LONG)
        queue.close()
        assert running.result() == 0
    assert left(backlog) == (ROWS, 0)


@pytest.mark.parametrize("wait", [True, False])
def test_a_relay_whose_turn_comes_while_its_queue_is_closed_leaves_it(
    wait: bool, backlog: Queue, url: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue(url, outbox=store) as queue, ThreadPoolExecutor() as pool:
        queue.open()
        gates, relays = outbox_of(queue).store.gates, outbox_of(queue).relays
        enter, asked = gates.enter, threading.Event()

        def late(entries: list[Entry]) -> Any:
            asked.set()
            until(lambda: relays._closed)
            return enter(entries)

        monkeypatch.setattr(gates, "enter", late)
        running = pool.submit(queue.relay, wait=wait)
        assert asked.wait(LONG)
        queue.close()
        assert running.result() == 0
    assert left(backlog) == (ROWS, 0)
    assert lead(backlog)


@pytest.mark.parametrize("wait", [True, False])
def test_a_relay_that_closes_its_own_queue_ends_after_its_batch(wait: bool, backlog: Queue, url: str, store: str) -> None:
    """Which is told that it can't wait for that."""
    hook = Closes()
    with Queue(url, outbox=store, hooks=[hook]) as hook.queue:
        assert hook.queue.relay(wait=wait) == 1
        assert "in the midst of its own relay()" in str(hook.error)
    assert left(backlog) == (ROWS - 1, 0)
    assert lead(backlog)


def test_a_relay_that_is_interrupted_as_it_begins_does_not_keep_the_queue_open(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Relays.begin

    def interrupted(self: Relays, relay: Any) -> None:
        begin(self, relay)
        raise KeyboardInterrupt

    with Queue(f"memory://{tmp_path.name}", outbox=store) as queue:
        monkeypatch.setattr(Relays, "begin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.relay(wait=False)
