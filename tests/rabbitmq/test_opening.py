"""A queue that is not opened, as its caller was cancelled or the broker refuses it, leaves no connection."""

import asyncio
import logging
import time
from typing import Any

import pytest
from aiormq.abc import AbstractChannel, AbstractConnection

from bide import AsyncQueue, SchemaMismatch, Unavailable
from bide.engines.rabbitmq.aio import topology

pytestmark = pytest.mark.server


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[AbstractConnection]:
    """Those on which somebody has looked for the queues."""
    found: list[AbstractConnection] = []
    real = topology.is_made

    async def look(channel: AbstractChannel, *names: Any) -> bool:
        found.append(channel.connection)
        return await real(channel, *names)

    monkeypatch.setattr(topology, "is_made", look)
    return found


async def test_an_opening_that_is_cancelled_hangs_up_without_a_word(
    rabbitmq_url: str,
    connections: list[AbstractConnection],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Amid an answer of the broker."""
    real = topology.make

    async def make(*asked: Any) -> None:
        asyncio.get_running_loop().call_soon(sending.cancel)
        await real(*asked)

    monkeypatch.setattr(topology, "make", make)
    queue = AsyncQueue(rabbitmq_url)
    with caplog.at_level(logging.WARNING):
        sending = asyncio.create_task(queue.send("t"))
        with pytest.raises(asyncio.CancelledError):
            await sending
        await asyncio.wait({connections[0].closing}, timeout=30)
    assert connections[0].is_closed
    assert [record.getMessage() for record in caplog.records] == []
    monkeypatch.undo()
    assert (await queue.send("t")).created
    await queue.close()


async def test_an_opening_that_is_refused_hangs_up(rabbitmq_url: str, connections: list[AbstractConnection]) -> None:
    queue = AsyncQueue(f"{rabbitmq_url}{'&' if '?' in rabbitmq_url else '?'}make=0")
    with pytest.raises(SchemaMismatch):
        await queue.send("t")
    assert connections[0].is_closed


async def test_a_first_connection_that_is_refused_is_told_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"Is the broker running, and is the URL right\?"):
        await AsyncQueue("amqp://guest:guest@127.0.0.1:1/").send("t", 1)
    assert time.monotonic() < began + 3  # and not its timeout of five seconds
