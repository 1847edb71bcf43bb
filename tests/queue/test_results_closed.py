"""Who waits for a result when the queue is closed is told so, instead of looking once more."""

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from bide import AsyncQueue, Call, Hook, Queue, Unavailable
from bide.queue import results

HOUR = 3_600.0
LONG = 20.0  # seconds: a test that waits so long has failed


class Looked(Hook):
    """Knows when somebody has looked for a message that is not done, and is about to sleep."""

    def __init__(self) -> None:
        self.looked = threading.Event()

    def after(self, call: Call) -> None:
        if call.verb == "get":
            self.looked.set()


@pytest.fixture(autouse=True)
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "FIRST_LOOK", HOUR)
    monkeypatch.setattr(results, "LAST_LOOK", HOUR)
    monkeypatch.setattr(results, "ASLEEP", HOUR)


async def test_a_coroutine_that_waits_for_a_result_is_told_that_the_queue_is_closed() -> None:
    looked = Looked()
    queue = AsyncQueue("memory://", hooks=[looked])

    @queue.task("add", keep="1h")
    async def add(a: int, b: int) -> int:
        return a + b

    sent: Any = await add.after("1h").send(1, b=2)
    waiting = asyncio.create_task(sent.result())
    async with asyncio.timeout(LONG):
        await asyncio.to_thread(looked.looked.wait)
        await queue.close()
        with pytest.raises(Unavailable, match="The queue is closed"):
            await waiting


def test_a_thread_that_waits_for_a_result_is_told_that_the_queue_is_closed() -> None:
    looked = Looked()
    queue = Queue("memory://", hooks=[looked])

    @queue.task("add", keep="1h")
    def add(a: int, b: int) -> int:
        return a + b

    sent: Any = add.after("1h").send(1, b=2)
    told = Future[BaseException | None]()

    def wait() -> None:
        try:
            sent.result()
        except BaseException as error:
            told.set_result(error)
        else:
            told.set_result(None)

    threading.Thread(target=wait, daemon=True).start()
    assert looked.looked.wait(LONG)
    queue.close()
    with pytest.raises(Unavailable, match="The queue is closed"):
        raise told.result(LONG) or AssertionError("it had a result")
