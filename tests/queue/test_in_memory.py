"""An application's own queue in memory, for the length of a test."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bide import AsyncQueue, ConfigError, Queue, Worker


def test_a_queue_lives_in_memory_and_comes_back_as_it_was(tmp_path: Path) -> None:
    with Queue(f"sqlite:///{tmp_path}/shop.db") as queue:
        queue.send("order.pack", {"order": 1})
        with queue.testing.in_memory():
            assert queue.topics() == []
            assert "memory" in repr(queue)
            queue.send("order.pack", {"order": 2}, delay="15m")
            assert [each.outcome for each in queue.testing.advance("15m")] == ["ready"]
        [delivery] = queue.receive("order.pack", limit=10)
        assert delivery.body == {"order": 1}
        delivery.ack()


def test_its_tasks_and_its_twin_go_with_it(tmp_path: Path) -> None:
    queue = AsyncQueue(f"sqlite:///{tmp_path}/shop.db")
    cancelled: list[int] = []

    @queue.task("order.cancel")
    async def cancel_unpaid(order: int) -> None:
        cancelled.append(order)
        assert await queue.topics() == ["order.cancel"]

    async def day() -> None:
        await cancel_unpaid.after("15m").send(42)
        assert queue.sync.topics() == ["order.cancel"]
        await queue.testing.advance("15m")

    for _ in range(2):  # each in an event loop of its own
        with queue.testing.in_memory():
            asyncio.run(day())
    assert cancelled == [42, 42]
    assert not (tmp_path / "shop.db").exists()


def test_a_worker_that_is_made_meanwhile_works_there(tmp_path: Path) -> None:
    queue = Queue(f"sqlite:///{tmp_path}/shop.db")
    packed: list[int] = []

    async def day() -> None:
        done = asyncio.Event()

        @queue.task("order.pack")
        async def pack(order: int) -> None:
            packed.append(order)
            done.set()

        queue.send("order.pack", {"order": 42})
        async with Worker(queue):
            await done.wait()

    with queue.testing.in_memory():
        asyncio.run(day())
    assert packed == [42]
    assert not (tmp_path / "shop.db").exists()


def test_time_travel_without_a_clock_to_move_says_how_to_get_one(tmp_path: Path) -> None:
    queue = Queue(f"sqlite:///{tmp_path}/shop.db")
    with pytest.raises(ConfigError, match="in_memory"):
        queue.testing.advance("15m")


def test_a_queue_that_is_left_inside_an_event_loop_comes_back(tmp_path: Path) -> None:
    """As with an async fixture around a sync test, whose handler had a loop of its own."""
    queue = Queue(f"sqlite:///{tmp_path}/shop.db")
    handled: list[int] = []

    @queue.task("t")
    async def handle(number: int) -> None:
        handled.append(number)

    memory = queue.testing.in_memory()
    memory.__enter__()
    handle.send(1)
    queue.testing.advance(0)

    async def leave() -> None:
        memory.__exit__(None, None, None)

    asyncio.run(leave())
    assert handled == [1]
    assert "sqlite" in repr(queue)
    assert queue.topics() == []
    queue.close()


def test_a_queue_comes_back_whatever_a_task_that_was_left_raises_at_the_end(tmp_path: Path) -> None:
    queue = Queue(f"sqlite:///{tmp_path}/shop.db")
    left: list[asyncio.Task[None]] = []

    async def leftover() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise SystemExit(3)

    @queue.task("t")
    async def handle() -> None:
        left.append(asyncio.create_task(leftover()))
        await asyncio.sleep(0)

    memory = queue.testing.in_memory()
    memory.__enter__()
    handle.send()
    queue.testing.advance(0)
    with pytest.raises(SystemExit):
        memory.__exit__(None, None, None)
    assert isinstance(left[0].exception(), SystemExit)
    assert "sqlite" in repr(queue)
    queue.close()


def test_a_queue_that_another_thread_has_elsewhere_is_not_moved_again(tmp_path: Path) -> None:
    queue = Queue(f"sqlite:///{tmp_path}/shop.db")
    with queue.testing.in_memory(), ThreadPoolExecutor(1) as other:
        with queue.testing.in_memory():
            assert queue.topics() == []

        def move() -> None:
            with queue.testing.in_memory():
                raise AssertionError("it was moved")

        with pytest.raises(ConfigError, match="one after the other"):
            other.submit(move).result()
    assert "sqlite" in repr(queue)
