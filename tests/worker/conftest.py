"""Workers on memory, on SQLite and on Redis, or on every engine; and a way to wait for what is to happen, and for no longer."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from bide import AsyncQueue, Queue
from bide.worker import Worker
from tests.worker.faults import Faults

LONG = 20.0  # seconds: a test that waits so long has failed
Working: TypeAlias = Callable[..., AbstractAsyncContextManager[Worker]]


@pytest.fixture(params=["memory", "sqlite", pytest.param("redis", marks=pytest.mark.server)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return place(request, tmp_path)


EVERY_ENGINE = ("memory", "sqlite", *(pytest.param(name, marks=pytest.mark.server) for name in ("redis", "postgres")))


def place(request: pytest.FixtureRequest, folder: Path) -> str:
    """The URL of the engine that a fixture's parameter names."""
    if request.param in ("memory", "sqlite"):
        return "memory://" if request.param == "memory" else f"sqlite:///{folder}/bide.db"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
async def queue(url: str) -> AsyncIterator[AsyncQueue]:
    made = AsyncQueue(url)
    yield made
    await made.close()


@pytest.fixture
async def memory() -> AsyncIterator[AsyncQueue]:
    """For what has nothing to do with the engine."""
    made = AsyncQueue("memory://")
    yield made
    await made.close()


@pytest.fixture(params=[AsyncQueue, Queue], ids=["async queue", "sync queue"])
async def either(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Any]:
    """A queue of either colour."""
    made = request.param(url)
    yield made
    closed = made.close()
    if inspect.isawaitable(closed):
        await closed


@pytest.fixture
def working() -> Working:
    """Runs a worker in the background, as `async with Worker(…)`; at the end it waits for no handler."""

    @asynccontextmanager
    async def work(queue: Any, **options: Any) -> AsyncIterator[Worker]:
        async with Worker(queue, **{"grace": 0, **options}) as worker:
            yield worker

    return work


@pytest.fixture
def soon() -> Callable[[Awaitable[Any]], Awaitable[Any]]:
    """Waits for something that is to happen."""

    def wait(awaitable: Awaitable[Any]) -> Awaitable[Any]:
        return asyncio.wait_for(awaitable, LONG)

    return wait


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], Awaitable[None]]:
    """Waits until something is so. What it asks may be async."""

    return once


async def once(so: Callable[[], Any]) -> None:
    """Goes on once something is so."""
    async with asyncio.timeout(LONG):
        while True:
            answer = so()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            await asyncio.sleep(0.005)


async def done(result: Any) -> Any:
    """What a verb says, in either colour."""
    return await result if inspect.isawaitable(result) else result


@pytest.fixture
async def faults(queue: AsyncQueue) -> Faults:
    """What a worker on `queue` meets; the queue's own calls go on as they are."""
    return await Faults.of(queue)
