"""What the log says of a worker's stop: when it begins, and what the worker has done when it is over."""

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, steps
from bide.core.formats import span
from bide.worker import Worker
from tests.worker.processes import Shop, open_shop

HANDLERS = """
@queue.task("slow")
async def slow():
    say("slow")
    await asyncio.sleep(1000)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        yield made


async def test_a_stop_is_told_when_it_begins_and_with_counts_when_it_is_over(
    queue: AsyncQueue, until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Given one message done, one that failed, and one that is running; when the grace is over; then each is counted."""
    begun = asyncio.Event()

    @queue.task("quick")
    async def quick() -> None: ...

    @queue.task("bad", backoff=steps("1h"))
    async def bad() -> None:
        raise ValueError

    @queue.task("slow")
    async def slow() -> None:
        begun.set()
        await asyncio.Event().wait()

    caplog.set_level(logging.INFO, "bide.worker")
    await quick.send()
    await bad.send()
    async with Worker(queue, grace="50ms") as worker:
        await until(lambda: (worker.health().done, worker.health().failed) == (1, 1))
        await slow.send()
        await begun.wait()
        assert not [text for text in caplog.messages if "stop" in text]
    [stopped] = [each for each in caplog.records if "has stopped" in each.getMessage()]
    done, failed, given_back, ran = (getattr(stopped, name) for name in ("done", "failed", "given_back", "seconds"))
    assert (done, failed, given_back) == (1, 1, 1)
    assert [text for text in caplog.messages if "stop" in text] == [
        "The worker is stopping: running messages get up to 0.05 s. Running: 1.",
        f"The worker has stopped after {span(ran) or 'less than a second'}. Done: 1. Failed: 1. Given back to the queue: 1.",
    ]


@pytest.mark.parametrize("options", [(), ("--processes", "1")])
def test_the_command_tells_it_after_a_signal(shop: Shop, options: tuple[str, ...]) -> None:
    shop.write(HANDLERS)
    shop.queue.send("slow")
    worker = shop.start("--grace", "100ms", *options)
    shop.said("slow")
    code, _ = worker.stop()
    assert code == 0
    assert "INFO" in worker.err
    assert "The worker is stopping: running messages get up to 0.1 s. Running: 1." in worker.err
    assert re.search(r"The worker has stopped after .+\. Done: 0\. Failed: 0\. Given back to the queue: 1\.", worker.err)
