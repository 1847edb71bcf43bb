"""Engines on a broker, each as in a process of its own, as far as one process can have them."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest_asyncio

from bide.engines.base import Settings
from bide.engines.rabbitmq import RabbitSource
from bide.engines.rabbitmq.aio.engine import AsyncRabbit
from bide.engines.rabbitmq.holdings import Holdings
from bide.engines.rabbitmq.ladder import QueueNames
from bide.engines.rabbitmq.location import read
from tests.rabbitmq.short_ladder import ShortLadder

New = Callable[..., Awaitable[AsyncRabbit]]


@pytest_asyncio.fixture
async def new(rabbitmq_url: str) -> AsyncIterator[New]:
    """Opens an engine. `apart`: it knows nothing of what the others hold or have lost."""
    made: list[AsyncRabbit] = []

    async def make(names: QueueNames | None = None, *, apart: bool = False) -> AsyncRabbit:
        settings = Settings(url=rabbitmq_url)
        source = RabbitSource(read(settings), settings, names or ShortLadder("bide"))
        if apart:
            source._holdings = Holdings()
        made.append(engine := source.aio())
        await engine.open()
        return engine

    yield make
    for engine in made:
        await engine.close()
