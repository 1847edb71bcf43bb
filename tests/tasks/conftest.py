"""One test, both colours: `do` sees a call through, whether it has to be awaited or not."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from bide import AsyncQueue, ManualClock, Queue

COLOURS: dict[str, type[Any]] = {"async": AsyncQueue, "sync": Queue}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def do() -> Iterator[Callable[[Any], Any]]:
    """Gives the result of a call; what is async is run in a loop of this test."""
    with asyncio.Runner() as runner:

        def see_through(result: Any) -> Any:
            return runner.run(_awaited(result)) if inspect.isawaitable(result) else result

        yield see_through


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


@pytest.fixture(params=["async", "sync"])
def make_queue(request: pytest.FixtureRequest, do: Callable[[Any], Any]) -> Iterator[Callable[..., Any]]:
    """Makes queues of one colour; they and their twins are closed when the test ends."""
    made: list[Any] = []

    def make(url: str = "memory://", **options: Any) -> Any:
        made.append(COLOURS[request.param](url, **options))
        return made[-1]

    yield make
    for queue in made:
        do(queue.close())
        for twin in ("aio", "sync"):
            if twin in queue.__dict__:
                do(queue.__dict__[twin].close())


@pytest.fixture
def queue(make_queue: Callable[..., Any], clock: ManualClock) -> Any:
    return make_queue(clock=clock)
