"""Why a ladder: in one queue, a message waits behind another one whose TTL is longer. In bide it does not."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiormq
import pytest
import pytest_asyncio
from aiormq.abc import AbstractChannel
from pamqp.commands import Basic

from bide import AsyncQueue


@pytest_asyncio.fixture
async def channel(rabbitmq_shared_url: str) -> AsyncIterator[AbstractChannel]:
    async with aiormq.connect(rabbitmq_shared_url) as connection:
        yield await connection.channel()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_in_one_queue_a_short_ttl_waits_behind_a_long_one(channel: AbstractChannel, kind: str) -> None:
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    orders = (await channel.queue_declare("", exclusive=True)).queue or ""
    await channel.basic_consume(orders, lambda message: arrived.put(message.body), no_ack=True)
    delay = f"delay-{kind}"
    arguments: dict[str, Any] = {"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": orders}
    await channel.queue_declare(delay, durable=True, arguments=arguments)
    # When a message of 20 ms comes behind one of 2 s
    for body, ttl in ((b"long", 2_000), (b"short", 20)):
        await channel.basic_publish(body, routing_key=delay, properties=Basic.Properties(expiration=str(ttl)))
    # Then it is passed on after that one
    assert [await arrived.get(), await arrived.get()] == [b"long", b"short"]
    await channel.queue_delete(delay)


async def test_in_bide_a_short_delay_does_not_wait_behind_a_long_one(rabbitmq_shared_url: str) -> None:
    async with AsyncQueue(rabbitmq_shared_url) as queue:
        await queue.send("orders", "long", delay="1h")
        await queue.send("orders", "short", delay="20ms")
        [delivery] = await queue.receive("orders", limit=2, wait="60s")
        assert delivery.body == "short"
        await delivery.ack()
