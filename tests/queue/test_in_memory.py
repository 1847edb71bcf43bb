"""An application's own queue in memory, for the length of a test."""

import asyncio
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
