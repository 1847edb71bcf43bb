"""A RabbitMQ broker, what work with it costs, and the bare driver that bide is measured beside."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiormq
import msgspec
from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.commands import Basic

from benchmarks import costs
from bide.engines.rabbitmq.ladder import QUORUM
from tests.servers.rabbitmq import RabbitServer

TICKS = os.sysconf("SC_CLK_TCK")
WINDOW = 500  # messages that are on their way to the broker and not confirmed
BODY = msgspec.json.encode(costs.body())


class Meter(costs.Meter):
    """Each piece of work has a topic of its own."""

    def __init__(self, server: RabbitServer) -> None:
        super().__init__()
        self.url: str = server.url
        self._pid = server.pid
        self._numbers = itertools.count()

    def topic(self) -> str:
        """A new one."""
        return f"t{next(self._numbers)}"

    def server(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / TICKS


class Bare:
    """A durable quorum queue, and the driver without bide."""

    def __init__(self, channel: AbstractChannel, queue: str) -> None:
        self._channel = channel
        self._queue = queue

    async def publish(self) -> None:
        """And wait until the broker has confirmed it."""
        await self._channel.basic_publish(
            BODY, routing_key=self._queue, properties=Basic.Properties(delivery_mode=2), mandatory=True
        )

    async def publish_many(self, many: int) -> None:
        for _ in range(0, many, WINDOW):
            await asyncio.gather(*(self.publish() for _ in range(WINDOW)))

    async def consume(self, many: int, prefetch: int) -> None:
        """And acknowledge each, until the broker has taken note of the last one."""
        left, all_done = many, asyncio.Event()

        async def arrive(message: DeliveredMessage) -> None:
            nonlocal left
            assert isinstance(message.delivery, Basic.Deliver)
            await self._channel.basic_ack(message.delivery.delivery_tag or 0, wait=False)
            left -= 1
            if not left:
                all_done.set()

        await self._channel.basic_qos(prefetch_count=prefetch)
        await self._channel.basic_consume(self._queue, arrive)
        await all_done.wait()
        await self._channel.flow(active=True)


@asynccontextmanager
async def bare(url: str, queue: str) -> AsyncIterator[Bare]:
    connection = await aiormq.connect(url)
    channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
    await channel.queue_declare(queue, durable=True, arguments=dict(QUORUM))
    yield Bare(channel, queue)
    await connection.close()
