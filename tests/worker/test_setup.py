"""What a worker can't be made or begun with: each is refused with a sentence."""

import asyncio
from typing import Any

import pytest

from bide import AsyncQueue, BadOption, BadTime, BadTopic, ConfigError, Queue
from bide.errors import BideError
from bide.worker import Worker


@pytest.fixture
def served(memory: AsyncQueue) -> AsyncQueue:
    @memory.task("a")
    async def handle() -> None:
        pass

    @memory.task("b")
    async def other() -> None:
        pass

    return memory


@pytest.mark.parametrize("given", ["redis://", None, 3, AsyncQueue, object()])
def test_a_worker_works_for_a_queue(given: Any) -> None:
    with pytest.raises(BadOption, match="works for a queue"):
        Worker(given)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"topics": "a"}, BadOption, "one text"),
        ({"topics": []}, BadTopic, "at least one topic"),
        ({"topics": ["no spaces"]}, BadTopic, "no spaces"),
        ({"topics": [3]}, BadTopic, "topic is 3"),
        ({"topics": 3}, BadOption, "topics"),
        ({"concurrency": 0}, BadOption, "concurrency"),
        ({"concurrency": 10_001}, BadOption, "concurrency"),
        ({"concurrency": 1.5}, BadOption, "concurrency"),
        ({"concurrency": "8"}, BadOption, "concurrency"),
        ({"concurrency": None}, BadOption, "concurrency"),
        ({"concurrency": True}, BadOption, "concurrency"),
        ({"threads": 0}, BadOption, "threads"),
        ({"threads": "4"}, BadOption, "threads"),
        ({"lease": 0}, BadTime, "lease"),
        ({"lease": "soon"}, BadTime, "lease"),
        ({"lease": "25h"}, BadTime, "lease"),
        ({"lease": None}, BadTime, "lease"),
        ({"grace": -1}, BadTime, "grace"),
        ({"grace": "never"}, BadTime, "grace"),
        ({"grace": None}, BadTime, "grace"),
        ({"grace": float("inf")}, BadTime, "grace"),
        ({"slots": ["a"]}, BadOption, "slots"),
        ({"slots": 3}, BadOption, "slots"),
        ({"slots": "a"}, BadOption, "slots"),
        ({"middleware": lambda delivery, handle: None}, BadOption, "middleware"),
        ({"middleware": [3]}, BadOption, "middleware"),
        ({"middleware": "timed"}, BadOption, "middleware"),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_options_that_cannot_be_used_are_refused_when_it_is_made(
    served: AsyncQueue, options: Any, error: type[BideError], text: str
) -> None:
    with pytest.raises(error, match=text):
        Worker(served, **options)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"topics": ["a", "c"]}, ConfigError, "no task for c. There is one for: a, b"),
        ({"slots": {"c": 1}}, BadOption, "'c'"),
        ({"slots": {"a": 0}}, BadOption, r"slots\['a'\]"),
        ({"slots": {"a": "2"}}, BadOption, r"slots\['a'\]"),
        ({"slots": {"a": 10}, "concurrency": 10}, BadOption, "leave at least one"),
        ({"slots": {"a": 1}, "topics": ["b"]}, BadOption, "does not serve"),
    ],
    ids=str,
)
async def test_what_does_not_fit_the_tasks_is_refused_when_it_begins(
    served: AsyncQueue, options: Any, error: type[BideError], text: str
) -> None:
    worker = Worker(served, **options)

    with pytest.raises(error, match=text):
        await worker.run(signals=False)
    with pytest.raises(error, match=text):
        async with worker:
            pytest.fail("The block was entered.")


async def test_a_queue_without_tasks_is_refused(memory: AsyncQueue) -> None:
    with pytest.raises(ConfigError, match=r"no tasks: write @queue\.task"):
        await Worker(memory).run(signals=False)
    with pytest.raises(ConfigError, match="no tasks"):
        Worker(memory).tasks()
    with pytest.raises(ConfigError, match="There is one for: nothing"):
        Worker(memory, topics=["a"]).tasks()


async def test_type_hints_that_cannot_be_used_are_refused_before_anything_is_taken(memory: AsyncQueue) -> None:
    async def handle(order: "NoSuchThing") -> None:  # type: ignore[name-defined]  # noqa: F821
        pass

    memory.task("a")(handle)
    await memory.send("a", {"order": 1})

    with pytest.raises(ConfigError, match=r"type hints of handle.*NoSuchThing"):
        async with Worker(memory):
            pytest.fail("The block was entered.")
    assert (await memory.stats("a")).ready == 1


async def test_a_worker_that_could_not_begin_can_be_begun_when_it_can(memory: AsyncQueue, until: Any) -> None:
    worker = Worker(memory)
    with pytest.raises(ConfigError):
        await worker.run(signals=False)
    handled: list[int] = []

    @memory.task("a")
    async def handle() -> None:
        handled.append(1)

    await handle.send()
    async with worker:
        await until(lambda: handled)


async def test_a_task_that_is_defined_while_the_worker_runs_is_not_served(memory: AsyncQueue, until: Any) -> None:
    handled: list[str] = []

    @memory.task("a")
    async def handle() -> None:
        handled.append("a")

    async with Worker(memory):

        @memory.task("b")
        async def late() -> None:
            handled.append("b")

        await late.send()
        await handle.send()
        await until(lambda: handled == ["a"])

    assert (await memory.stats("b")).ready == 1


def test_grace_may_be_nothing_at_all(served: AsyncQueue) -> None:
    assert Worker(served, grace=0).plan.grace == 0


def test_threads_are_no_more_than_places_unless_that_is_asked_for(served: AsyncQueue) -> None:
    assert Worker(served).plan.threads == 32
    assert Worker(served, concurrency=8).plan.threads == 8
    assert Worker(served, threads=50).plan.threads == 50


async def test_an_error_in_the_block_is_not_covered_up(served: AsyncQueue) -> None:
    with pytest.raises(ValueError, match="mine"):
        async with Worker(served):
            raise ValueError("mine")


async def test_the_users_queue_stays_open(url: str, until: Any) -> None:
    with Queue(url) as queue:
        handled: list[int] = []

        @queue.task("a")
        def handle() -> None:
            handled.append(1)

        handle.send()
        async with Worker(queue):
            await until(lambda: handled)

        assert handle.send().created


async def test_a_cancelled_block_stops_the_worker(served: AsyncQueue, until: Any) -> None:
    worker = Worker(served)
    entered = asyncio.Event()

    async def block() -> None:
        async with worker:
            entered.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(block())
    await until(entered.is_set)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert worker._service is None


@pytest.mark.parametrize("rounds", range(4))
async def test_a_block_that_is_cancelled_before_it_was_entered_leaves_no_worker(served: AsyncQueue, rounds: int) -> None:
    worker = Worker(served)
    entering = asyncio.ensure_future(worker.__aenter__())
    for _ in range(rounds):
        await asyncio.sleep(0)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering

    assert worker._service is None
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "bide-worker"]


@pytest.mark.parametrize("count", [1_000, 1_001])
async def test_more_topics_than_the_engine_can_wait_for_are_refused_before_anything_is_taken(count: int) -> None:
    """Also where async and sync tasks, which are asked for apart, are few enough each."""
    queue = AsyncQueue("redis://127.0.0.1:1/0")

    async def in_loop() -> None: ...

    def in_thread() -> None: ...

    for number in range(count):
        queue.task(f"topic.{number}")(in_loop if number % 2 else in_thread)
    worker = Worker(queue)
    if count <= 1_000:
        assert len(worker.tasks()) == count
        return
    with pytest.raises(ConfigError, match="takes 1,000 topics in one worker, and this one has tasks for 1,001: give each"):
        await worker.run()
    assert len(Worker(queue, topics=[f"topic.{number}" for number in range(1_000)]).tasks()) == 1_000
