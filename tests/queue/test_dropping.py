"""Deliveries that nobody ends: the garbage collector may find them in any thread, also in one that holds a lock."""

import asyncio
import gc
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bide import AsyncQueue, Queue
from bide.queue.deliveries import Cycles
from bide.queue.heartbeat import Heartbeat

PATIENCE = 20.0  # seconds, far more than anything here takes


class Listener(logging.Handler):
    """Hears what is logged, and can be kept from it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "dropped without being ended" in record.getMessage():
            self.heard.set()


@pytest.fixture
def ear() -> Iterator[Listener]:
    made = Listener()
    logging.getLogger("bide").addHandler(made)
    yield made
    logging.getLogger("bide").removeHandler(made)


class Leak:
    """A delivery in a cycle, as an exception that is kept with its traceback makes one."""

    def __init__(self, delivery: Any) -> None:
        self.delivery = delivery
        self.me = self


def collect_under(heartbeat: Heartbeat, ear: Listener) -> bool:
    """Collect in a thread that holds the heartbeat's lock, while another one holds that of the logs; whether it came back."""
    back = threading.Event()

    def collect() -> None:
        with heartbeat._lock:
            gc.collect()
        back.set()

    with ear.lock:  # type: ignore[union-attr]
        threading.Thread(target=collect, daemon=True).start()
        return back.wait(PATIENCE)


def test_a_collected_delivery_takes_no_lock_and_frees_its_place(ear: Listener) -> None:
    gc.disable()
    try:
        with Queue("memory://") as queue:
            queue.send_many("t", range(2))
            deliveries = queue.listen("t", limit=1, lease="1m")
            Leak(next(deliveries))
            assert collect_under(queue.session.open().heartbeat, ear)
            assert ear.heard.wait(PATIENCE)
            with next(deliveries) as delivery:
                assert delivery.body == 1
            deliveries.close()
    finally:
        gc.enable()


async def test_a_collected_delivery_takes_no_lock_in_an_event_loop_either(ear: Listener) -> None:
    gc.disable()
    try:
        async with AsyncQueue("memory://") as queue:
            await queue.send_many("t", range(2))
            deliveries = queue.listen("t", limit=1, lease="1m")
            Leak(await anext(deliveries))
            assert await asyncio.to_thread(collect_under, (await queue.session.open()).heartbeat, ear)
            assert await asyncio.to_thread(ear.heard.wait, PATIENCE)
            async with await asyncio.wait_for(anext(deliveries), PATIENCE) as delivery:
                assert delivery.body == 1
            await deliveries.aclose()
    finally:
        gc.enable()


def test_a_handler_of_logs_that_fails_does_not_end_the_heartbeat() -> None:
    told = threading.Event()

    class Deaf(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()
            raise ConnectionError("the service for logs is down")

    deaf = Deaf(logging.WARNING)
    logging.getLogger("bide").addHandler(deaf)
    try:
        with Queue("memory://") as queue:
            queue.send_many("t", range(2))
            deliveries = queue.listen("t", limit=1, lease="1m")
            next(deliveries)  # and drop it
            assert told.wait(PATIENCE)
            with next(deliveries) as delivery:
                assert delivery.body == 1
            deliveries.close()
    finally:
        logging.getLogger("bide").removeHandler(deaf)


def test_an_idle_process_finds_what_it_holds_in_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else makes the collector run there, and the listener would wait for a place for ever."""
    monkeypatch.setattr("bide.queue.sync.receive.SWEEP", 0.01)
    gc.disable()
    try:
        with Queue("memory://") as queue:
            queue.send_many("t", range(2))
            deliveries = queue.listen("t", limit=1, lease="1m")
            Leak(next(deliveries))
            with next(deliveries) as delivery:
                assert delivery.body == 1
            deliveries.close()
    finally:
        gc.enable()


def test_collections_take_no_more_than_their_share_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = [100.0], []

    def collect() -> None:
        made.append(now[0])
        now[0] += 0.5

    monkeypatch.setattr("bide.queue.deliveries.time.monotonic", lambda: now[0])
    monkeypatch.setattr("bide.queue.deliveries.gc.collect", collect)
    cycles = Cycles()
    while now[0] < 210:
        cycles.collect()
        now[0] += 1

    assert made == [100.0, 150.5, 201.0]
