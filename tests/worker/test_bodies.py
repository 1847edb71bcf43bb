"""Bodies in a worker: handlers get their arguments, and the body is there for those who ask."""

import asyncio
from typing import Any

import pytest

from bide import AsyncQueue, current
from tests.worker.test_running import ended

BODY = {"order": 42, "note": "two cups"}


class Reversed:
    """JSON, from back to front."""

    def encode(self, body: Any) -> bytes:
        return repr(body).encode()[::-1]

    def decode(self, raw: bytes) -> Any:
        return eval(raw[::-1])


@pytest.mark.parametrize("codec", [None, Reversed()], ids=["JSON", "a codec of the queue's own"])
async def test_handlers_and_middleware_find_the_body_in_the_delivery(working: Any, until: Any, codec: Any) -> None:
    async with AsyncQueue("memory://", **({} if codec is None else {"codec": codec})) as queue:
        seen: list[Any] = []

        async def middleware(delivery: Any, handle: Any) -> None:
            seen.append(("middleware", delivery.body))
            await handle()

        @queue.task("a")
        async def in_loop(order: int, note: str) -> None:
            seen.append((order, note, current().body))

        @queue.task("s")
        def in_thread(order: int, note: str) -> None:
            seen.append((order, note, current().body))

        await queue.send("a", BODY)
        async with working(queue, middleware=[middleware]):
            await until(lambda: ended(queue))
            await queue.send("s", BODY)
            await until(lambda: ended(queue))
        assert seen == [("middleware", BODY), (42, "two cups", BODY)] * 2


async def test_a_handler_is_called_once_with_what_was_merged(working: Any, until: Any) -> None:
    async with AsyncQueue("memory://") as queue:
        seen: list[Any] = []

        @queue.task("a", lock="all")
        async def handle(users: list[int], notes: list[str] | None = None) -> None:
            seen.append((users, notes, current().body))

        for user in (1, 2, 3):
            await handle.options(key="k", if_exists="merge").send([user])
        async with working(queue):
            await until(lambda: ended(queue))
        assert seen == [([1, 2, 3], None, [{"users": [1]}, {"users": [2]}, {"users": [3]}])]


async def test_a_body_that_is_longer_than_the_worker_reads_is_buried(working: Any, until: Any) -> None:
    async with AsyncQueue("memory://bodies") as sender, AsyncQueue("memory://bodies", max_body=30) as queue:
        handled = asyncio.Queue[str]()

        @queue.task("a")
        async def handle(note: str) -> None:
            handled.put_nowait(note)

        for note in ("x" * 30, "short"):
            await sender.send("a", {"note": note})
        async with working(queue):
            await until(lambda: ended(queue))
        assert [handled.get_nowait() for _ in range(handled.qsize())] == ["short"]
        [dead] = await sender.messages("a", state="dead")
        assert "the limit is 30" in (dead.last_error or "")
