"""Subscribers around the handlers of a worker: in the handler's own context, around the middleware, in loops and threads."""

import asyncio
import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bide import AsyncQueue, Bury, Failed, MessagesHandling, current, current_batch, steps
from tests.worker.test_running import ended

place: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="outside")


class Around:
    def __init__(self) -> None:
        self.ids: list[str] = []
        self.outcomes: list[Any] = []
        self.errors: list[str] = []

    @contextmanager
    def handling(self, event: MessagesHandling) -> Iterator[None]:
        self.ids += [each.id for each in event.messages]
        assert event.outcome is None
        assert place.get() == "outside"
        token = place.set(event.messages[0].id)
        try:
            yield
        except BaseException as error:
            self.errors.append(type(error).__name__)
            raise
        finally:
            place.reset(token)
            self.outcomes += event.outcomes


async def test_many_messages_at_once_have_each_their_own_context(
    queue: AsyncQueue, working: Any, until: Any, coloured: Any
) -> None:
    around, seen = Around(), list[tuple[str, str]]()
    queue.events.subscribe(around)

    @queue.task("t")
    @coloured
    def handle(number: int) -> None:
        seen.append((place.get(), current().id))

    sent = await handle.send_many({"number": each} for each in range(60))
    async with working(queue):
        await until(lambda: ended(queue))

    assert all(told == real for told, real in seen)
    assert sorted(around.ids) == sorted(each.id for each in sent)
    assert around.outcomes == ["done"] * 60
    assert place.get() == "outside"


async def test_who_subscribes_while_a_worker_runs_is_told_of_what_begins_then(
    memory: AsyncQueue, working: Any, until: Any
) -> None:
    around, seen = Around(), list[str]()

    @memory.task("t")
    async def handle() -> None:
        seen.append(place.get())

    async with working(memory):
        await handle.send()
        await until(lambda: len(seen) == 1)
        with memory.events.subscribe(around):
            sent = await handle.send()
            await until(lambda: len(seen) == 2)
        await handle.send()
        await until(lambda: len(seen) == 3)

    assert seen == ["outside", sent.id, "outside"]
    assert around.ids == [sent.id]


async def test_it_is_around_the_middleware_and_told_what_that_makes_of_an_error(
    memory: AsyncQueue, working: Any, until: Any, coloured: Any
) -> None:
    around, places = Around(), list[str]()
    memory.events.subscribe(around)

    async def forgiving(delivery: Any, handle: Any) -> None:
        places.append(place.get())
        try:
            await handle()
        except ValueError:
            places.append(place.get())

    @memory.task("t")
    @coloured
    def handle() -> None:
        raise ValueError

    sent = await handle.send()
    async with working(memory, middleware=[forgiving]):
        await until(lambda: ended(memory))

    assert places == [sent.id] * 2
    assert (around.errors, around.outcomes) == ([], ["done"])


async def test_each_attempt_is_told_as_what_becomes_of_it(memory: AsyncQueue, working: Any, until: Any, coloured: Any) -> None:
    around, waits = Around(), list[int]()
    memory.events.subscribe(around)

    def backoff(attempt: int) -> float:
        waits.append(attempt)
        return 0.0

    @memory.task("t", max_attempts=2, backoff=backoff)
    @coloured
    def handle() -> None:
        raise ValueError

    await handle.send()
    async with working(memory):
        await until(lambda: ended(memory))

    assert around.outcomes == ["retried", "dead"]
    assert around.errors == ["ValueError"] * 2
    assert waits == [1, 2]


async def test_a_batch_is_told_as_one(memory: AsyncQueue, working: Any, until: Any, coloured: Any) -> None:
    around, places = Around(), list[str]()
    memory.events.subscribe(around)

    @memory.task("t", batch=3, linger="10s", max_attempts=1)
    @coloured
    def handle(numbers: list[int]) -> list[Failed]:
        places.append(place.get())
        return [Failed(2, Bury("no"))]

    sent = await handle.send_many([1, 2, 3])
    async with working(memory):
        await until(lambda: ended(memory))

    assert sorted(around.ids) == sorted(each.id for each in sent)
    assert sorted(around.outcomes) == ["dead", "done", "done"]
    assert places == [around.ids[0]]


@pytest.mark.parametrize("plain", [True, False])
async def test_a_timeout_is_told_as_retried(memory: AsyncQueue, working: Any, until: Any, plain: bool) -> None:
    around = Around()
    memory.events.subscribe(around)

    @memory.task("t", timeout=0.05, max_attempts=2, backoff=steps(0))
    async def handle() -> None:
        await asyncio.Event().wait()

    await handle.send()
    async with working(memory, middleware=[] if plain else [passes]):
        await until(lambda: ended(memory))

    assert around.outcomes == ["retried", "dead"]
    assert around.errors == ["TimeoutError"] * 2


async def passes(delivery: Any, handle: Any) -> None:
    await handle()


async def test_what_a_stopping_worker_gives_back_is_released(memory: AsyncQueue, working: Any, until: Any) -> None:
    around, began = Around(), asyncio.Event()
    memory.events.subscribe(around)

    @memory.task("t")
    async def handle() -> None:
        began.set()
        await asyncio.Event().wait()

    await handle.send()
    async with working(memory):
        await asyncio.wait_for(began.wait(), 20)

    assert (around.outcomes, around.errors) == (["released"], ["CancelledError"])


async def test_a_handler_that_ends_its_messages_has_no_outcome(memory: AsyncQueue, working: Any, until: Any) -> None:
    around = Around()
    memory.events.subscribe(around)

    @memory.task("t")
    async def handle() -> None:
        await memory.ack_many(current_batch())

    await handle.send()
    async with working(memory):
        await until(lambda: ended(memory))

    assert around.outcomes == [None]
