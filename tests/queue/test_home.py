"""Event loops, threads, forks, twins: where a queue may be used, and what its neighbours see."""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from bide import AsyncQueue, Queue, Unavailable, WrongLoop
from bide.engines.memory.sync import Memory
from bide.queue.sync.session import Session
from bide.wakeable import Signal


def test_a_second_event_loop_gets_an_error_that_says_so_while_the_first_is_open() -> None:
    queue = AsyncQueue("memory://")
    first = asyncio.new_event_loop()
    first.run_until_complete(send_one(queue))
    for call in (lambda: send_one(queue), queue.stats, lambda: queue.receive("t")):
        with pytest.raises(WrongLoop, match=r"another event loop, which is not closed.*queue\.sync"):
            asyncio.run(call())

    async def from_a_thread() -> None:
        with pytest.raises(WrongLoop, match=r"another event loop, which runs.*queue\.sync"):
            await asyncio.to_thread(asyncio.run, send_one(queue))

    first.run_until_complete(from_a_thread())
    assert queue.sync.stats("t").ready == 1
    first.close()
    asyncio.run(send_one(queue))
    assert queue.sync.stats("t").ready == 2


async def send_one(queue: AsyncQueue) -> None:
    await queue.send("t", 1)


async def test_the_twins_share_one_place() -> None:
    queue = AsyncQueue("memory://")
    assert queue.sync.aio is queue
    assert queue.sync is queue.sync
    queue.sync.send("t", {"from": "sync"})
    [delivery] = await queue.receive("t")
    assert delivery.body == {"from": "sync"}
    await delivery.ack()
    plain = Queue("memory://")
    assert plain.aio.sync is plain
    plain.send("t", 1)
    assert len(await plain.aio.receive("t")) == 1
    assert queue.sync.stats().leased == 0
    await queue.close()


def test_a_private_queue_shares_nothing_and_a_named_one_does() -> None:
    one, two = Queue("memory://"), Queue("memory://")
    one.send("t", 1)
    assert two.topics() == []
    shared, same, other = Queue("memory://homes"), Queue("memory://homes"), Queue("memory://homes", namespace="else")
    shared.send("t", 1)
    assert same.topics() == ["t"]
    assert other.topics() == []


def test_threads_use_one_queue() -> None:
    queue = Queue("memory://")
    got: list[int] = []

    def produce(first: int) -> None:
        for number in range(first, first + 250):
            queue.send("t", number)

    def consume() -> None:
        while deliveries := queue.receive("t", limit=7, wait="2s"):
            for delivery in deliveries:
                got.append(delivery.body)
                delivery.ack()
            if len(got) >= 1_000:
                return

    threads = [threading.Thread(target=produce, args=(first,)) for first in range(0, 1_000, 250)]
    threads += [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(got) == list(range(1_000))
    assert queue.topics() == []


class Asleep(set[Signal]):
    """Those who sleep on an engine, which tells when there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.there = threading.Event()

    def add(self, signal: Signal) -> None:
        super().add(signal)
        self.there.set()


def test_a_thread_that_sleeps_is_woken_by_the_event_loop() -> None:
    async def main() -> None:
        queue = AsyncQueue("memory://")
        engine: Any = queue.sync.session.engine()
        engine = engine._engine  # behind the guard
        assert isinstance(engine, Memory)
        engine._asleep = asleep = Asleep()
        receiving = asyncio.create_task(asyncio.to_thread(queue.sync.receive, "t", wait="30s"))
        assert await asyncio.to_thread(asleep.there.wait, 10)
        await queue.send("t", "hello")
        [delivery] = await receiving
        assert delivery.body == "hello"
        await queue.close()

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_begins_with_an_empty_memory_and_leaves_the_parents_alone() -> None:
    queue = Queue("memory://")
    queue.send("t", 1)
    [held] = queue.receive("t")
    queue.send("t", 2)

    def child() -> bool:
        mine = queue.stats() == Queue("memory://").stats()
        queue.send("t", "child")
        [delivery] = queue.receive("t")
        delivery.ack()
        return mine and delivery.body == "child" and queue.topics() == []

    assert in_a_child(child)
    held.ack()
    assert queue.stats("t").ready == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_while_the_store_is_locked_does_not_hang_the_child() -> None:
    queue = Queue("memory://")
    queue.send("t", 1)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            queue.send("busy", 1, key="k", if_exists="replace")  # so that there is not more to copy at each fork

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            assert in_a_child(lambda: queue.send("t", 2).created and queue.stats("busy").ready == 0)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def in_a_child(work: Callable[[], bool]) -> bool:
    """Whether this was true in a forked process."""
    pid = os.fork()
    if pid == 0:
        worked = False
        try:
            worked = work()
        finally:
            os._exit(0 if worked else 1)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == 0


def test_a_queue_has_no_thread_until_it_listens() -> None:
    before = threads()
    queue = Queue("memory://")
    queue.send_many("t", [1, 2, 3])
    for delivery in queue.receive("t", limit=2):
        delivery.ack()
    assert threads() == before
    deliveries = queue.listen("t")
    next(deliveries).ack()
    assert "bide-heartbeat" in {thread.name for thread in threading.enumerate()}
    deliveries.close()
    queue.close()
    assert threads() == before


def threads() -> set[threading.Thread]:
    """But for the one that may end at any time: it looks whether an earlier test has held up its event loop."""
    return {each for each in threading.enumerate() if each.name != "bide-lookout"}


async def test_many_sends_share_few_calls() -> None:
    queue = AsyncQueue("memory://")
    engine = await queue.session.engine()
    sizes: list[int] = []
    put = engine.put

    async def slow(messages, **options):  # type: ignore[no-untyped-def]
        sizes.append(len(messages))
        await asyncio.sleep(0)
        return await put(messages, **options)

    (await queue.session.open()).puts._call = slow
    sent = await asyncio.gather(*(queue.send("t", number) for number in range(2_500)))
    assert len({each.id for each in sent}) == 2_500
    assert sizes == [1_000, 1_000, 500]
    assert [each.body for each in await queue.receive("t", limit=1_000)] == list(range(1_000))
    await queue.close()


async def test_a_send_that_fails_fails_for_all_that_shared_its_call() -> None:
    queue = AsyncQueue("memory://")
    await queue.session.engine()

    async def broken(messages):  # type: ignore[no-untyped-def]
        raise OSError("down")

    (await queue.session.open()).puts._call = broken
    results = await asyncio.gather(*(queue.send("t", 1) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in results] == [OSError] * 3
    assert await queue.topics() == []
    await queue.close()


async def test_closing_sees_gathered_sends_through() -> None:
    queue = AsyncQueue("memory://close-gathered")
    await queue.send("t", 0)
    sending = [asyncio.ensure_future(queue.send("t", number)) for number in range(1, 50)]
    await asyncio.sleep(0)
    await queue.close()
    assert all(each.created for each in await asyncio.gather(*sending))
    assert Queue("memory://close-gathered").stats("t").ready == 50


async def test_a_send_that_is_cancelled_before_its_call_is_not_sent() -> None:
    queue = AsyncQueue("memory://")
    await queue.send("t", 0)
    sending = [asyncio.ensure_future(queue.send("t", number)) for number in range(1, 4)]
    await asyncio.sleep(0)
    sending[1].cancel()
    await asyncio.wait(sending)
    assert [each.body for each in await queue.receive("t", limit=9)] == [0, 1, 3]
    await queue.close()


async def test_a_closed_queue_can_not_be_entered_again() -> None:
    queue = AsyncQueue("memory://")
    await queue.topics()
    await queue.close()
    with pytest.raises(Unavailable, match="closed"):
        async with queue:
            pass
    queue_for_threads = Queue("memory://")
    queue_for_threads.topics()
    queue_for_threads.close()
    with pytest.raises(Unavailable, match="closed"), queue_for_threads:
        pass


def test_two_threads_that_use_a_new_queue_at_once_open_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, opened = Queue("memory://"), list[object]()
    leave, open_it = Session._leave, Memory.open

    def leave_late(session: Session) -> None:  # as if this thread had to wait here
        monkeypatch.setattr(Session, "_leave", leave)
        thread = threading.Thread(target=queue.topics)
        thread.start()
        thread.join()
        leave(session)

    def count(engine: Memory) -> None:
        opened.append(engine)
        open_it(engine)

    monkeypatch.setattr(Session, "_leave", leave_late)
    monkeypatch.setattr(Memory, "open", count)
    queue.topics()
    queue.close()
    assert len(opened) == 1


def test_a_queue_that_another_thread_closes_just_when_it_is_open_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, closed = Queue("memory://"), list[object]()
    was_closed, close = Session._was_closed, Memory.close

    def look_and_wait(session: Session) -> bool:
        monkeypatch.setattr(Session, "_was_closed", was_closed)
        answer = was_closed(session)
        thread = threading.Thread(target=queue.close)
        thread.start()
        thread.join()
        return answer

    def count(engine: Memory) -> None:
        closed.append(engine)
        close(engine)

    monkeypatch.setattr(Session, "_was_closed", look_and_wait)
    monkeypatch.setattr(Memory, "close", count)
    with suppress(Unavailable):
        queue.send("t", 1)
    assert len(closed) == 1
