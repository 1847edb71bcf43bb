"""Nobody is starved: topics share a worker, and workers share a queue."""

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bide import AsyncQueue
from bide.worker import Worker
from tests.worker.test_running import ended


@pytest.mark.parametrize("first", ["slow", "quick"])
async def test_a_hundred_slow_handlers_do_not_keep_another_topic_from_running(
    queue: AsyncQueue, working: Any, until: Any, first: str
) -> None:
    began = Counter[str]()

    @queue.task("slow")
    async def slow() -> None:
        began["slow"] += 1
        await asyncio.Event().wait()

    @queue.task("quick")
    async def quick() -> None:
        began["quick"] += 1

    await queue.send_many("slow", [{}] * 300)
    if first == "quick":
        await queue.send_many("quick", [{}] * 300)
    async with working(queue, concurrency=100):
        await until(lambda: began["slow"] == 90)
        if first == "slow":
            await queue.send_many("quick", [{}] * 300)
        await until(lambda: began["quick"] == 300)

    assert began["slow"] == 90


async def test_one_loud_topic_does_not_keep_ninety_nine_quiet_ones_waiting(
    memory: AsyncQueue, working: Any, until: Any
) -> None:
    handled: list[str] = []

    def define(topic: str) -> None:
        @memory.task(topic)
        async def handle() -> None:
            handled.append(topic)
            await asyncio.sleep(0)

    define("loud")
    for number in range(99):
        define(f"quiet{number}")
    for _ in range(20):
        await memory.send_many("loud", [{}] * 1_000)
    for number in range(99):
        await memory.send(f"quiet{number}", {})
    async with working(memory, concurrency=50):
        await until(lambda: len({each for each in handled if each != "loud"}) == 99)

    last = max(place for place, each in enumerate(handled) if each != "loud")
    assert handled[:last].count("loud") < 2_000


@pytest.mark.parametrize(
    ("loud", "quiet"),
    [
        (["a1", "a2"], ["s1"]),
        (["s1", "s2"], ["a1"]),
        (["a1", "a2", "a3"], ["a4"]),
        (["a1", "a3", "s1", "s3"], ["a2", "a4", "s2", "s4"]),
        (["a2", "a4", "s2", "s4"], ["a1", "a3", "s1", "s3"]),
    ],
    ids=str,
)
async def test_loud_topics_together_do_not_starve_another_of_either_colour(
    memory: AsyncQueue, working: Any, until: Any, loud: list[str], quiet: list[str]
) -> None:
    handled: list[str] = []

    def define(topic: str) -> None:
        if topic.startswith("a"):

            @memory.task(topic)
            async def in_loop() -> None:
                await asyncio.sleep(0.0002)
                handled.append(topic)

        else:

            @memory.task(topic)
            def in_thread() -> None:
                handled.append(topic)

    for topic in sorted(loud + quiet):
        define(topic)
    for topic in loud:
        await memory.send_many(topic, [{}] * 1_000)
    for topic in quiet:
        await memory.send_many(topic, [{}] * 5)
    async with working(memory, concurrency=4, threads=4):
        await until(lambda: sum(each in quiet for each in handled) == 5 * len(quiet))

    last = max(place for place, each in enumerate(handled) if each in quiet)
    assert last < 400 * len(loud + quiet) / 2, Counter(handled[:last])


@pytest.mark.parametrize("topics", ["a1 a2 a3 a4", "a1 a2 s1 s2", "a1 a2 a3 a4 s1 s2"])
async def test_of_topics_with_much_to_do_each_gets_a_good_part(
    memory: AsyncQueue, working: Any, until: Any, topics: str
) -> None:
    """Every handler takes 2 ms, and there is work for all the time."""
    handled: list[str] = []

    def define(topic: str) -> None:
        if topic.startswith("a"):

            @memory.task(topic)
            async def in_loop() -> None:
                await asyncio.sleep(0.002)
                handled.append(topic)

        else:

            @memory.task(topic)
            def in_thread() -> None:
                time.sleep(0.002)
                handled.append(topic)

    for topic in topics.split():
        define(topic)
        await memory.send_many(topic, [{}] * 600)
    async with working(memory, concurrency=4, threads=4):
        await until(lambda: len(handled) >= 600)

    shares = Counter(handled[:600])
    each = 600 / len(topics.split())
    assert min(shares[topic] for topic in topics.split()) > each / 8, (
        shares
    )  # threads are slower than the loop on a busy machine


class Crew:
    """Four equal workers of one place."""

    def __init__(self) -> None:
        self.handled: Counter[int] = Counter()
        self.workers: list[Worker] = []

    def hire(self, queue: AsyncQueue, number: int) -> None:
        @queue.task("a")
        async def handle(ms: float) -> None:
            await asyncio.sleep(ms / 1000)
            self.handled[number] += 1

        self.workers.append(Worker(queue, concurrency=4, grace=0))

    def spread(self) -> float:
        """How much more than the mean the busiest has done."""
        return max(self.handled.values()) * len(self.workers) / self.handled.total()


LOADS = {
    "one by one": (1, 0.0009),
    "in bursts": (16, 0.0144),
}


@pytest.mark.parametrize("load", LOADS)
async def test_four_equal_workers_at_half_load_do_about_the_same(url: str, tmp_path: Any, until: Any, load: str) -> None:
    """16 places and handlers of 5 to 10 ms: that is 2,100 a second at most, and about 1,000 a second are sent."""
    size, pause = LOADS[load]
    place = "memory://four-workers" if url.startswith("memory") else url
    crew = Crew()
    dice = random.Random(1)
    async with AsyncExitStack() as stack:
        queues = [await stack.enter_async_context(AsyncQueue(place)) for _ in range(4)]
        for number, each in enumerate(queues):
            crew.hire(each, number)
        for worker in crew.workers:
            await stack.enter_async_context(worker)
        sender = await stack.enter_async_context(AsyncQueue(place))
        loop = asyncio.get_running_loop()
        due = loop.time()
        for _ in range(1_200 // size):
            await sender.send_many("a", [{"ms": dice.uniform(5, 10)} for _ in range(size)])
            due += pause
            await asyncio.sleep(due - loop.time())
        await until(lambda: crew.handled.total() == 1_200)
        await until(lambda: ended(sender))

    assert len(crew.handled) == 4
    assert crew.spread() <= 1.3, crew.handled
