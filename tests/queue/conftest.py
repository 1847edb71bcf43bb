"""One test, both colours: a sync queue is awaited as if it were async."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from bide import AsyncQueue, Delivery, ManualClock, Queue


class Awaited:
    """Offers a sync object's methods as coroutines, and its deliveries likewise."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name == "listen":
            return functools.partial(self._listen, found)
        if name == "testing":
            return Awaited(found)
        return functools.partial(self._call, found) if callable(found) else found

    async def _call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if name_of(method) in ("ack_many", "retry_many"):
            deliveries, *rest = args
            args = ([getattr(each, "inner", each) for each in deliveries], *rest)
        if options.get("wait"):
            return _wrapped(await asyncio.to_thread(method, *args, **options))
        return _wrapped(method(*args, **options))

    async def _listen(self, method: Callable[..., Any], *args: Any, **options: Any) -> AsyncIterator[Any]:
        deliveries = method(*args, **options)
        try:
            while True:
                yield Awaited(await asyncio.to_thread(next, deliveries))
        finally:
            deliveries.close()

    async def __aenter__(self) -> "Awaited":
        self.inner.__enter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        left: bool | None = self.inner.__exit__(*error)
        return left


def name_of(method: Callable[..., Any]) -> str:
    return getattr(method, "__name__", "")


def _wrapped(result: Any) -> Any:
    if isinstance(result, Delivery):
        return Awaited(result)
    if isinstance(result, list):
        return [_wrapped(each) for each in result]
    return result


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["async", "sync"])
def make_queue(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes queues in memory, of one colour."""

    def make(url: str = "memory://", **options: Any) -> Any:
        return AsyncQueue(url, **options) if request.param == "async" else Awaited(Queue(url, **options))

    return make


@pytest.fixture
async def queue(make_queue: Callable[..., Any], clock: ManualClock) -> AsyncIterator[Any]:
    made = make_queue(clock=clock)
    yield made
    await made.close()
