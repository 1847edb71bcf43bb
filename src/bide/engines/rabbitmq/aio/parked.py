"""Keeps deliveries that take long: the broker closes the channel of whoever does not acknowledge in time (consumer_timeout).

Before that, a copy is sent to a queue of this process alone, received from there, and the older delivery is acknowledged. If
the process dies, the copy leaves that queue for the one of its topic. This is repeated as long as the work goes on.
"""

import asyncio
import time
import uuid
from typing import Any

from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.commands import Basic

from bide.engines.rabbitmq import label
from bide.engines.rabbitmq.aio import topology
from bide.engines.rabbitmq.aio.ends import AsyncEndings
from bide.engines.rabbitmq.aio.send import AsyncSender
from bide.engines.rabbitmq.failures import told
from bide.engines.rabbitmq.holdings import Arrived, Held, Holdings
from bide.engines.rabbitmq.ladder import QueueNames
from bide.engines.rabbitmq.location import Address
from bide.errors import BideError
from bide.logs import Log

_log = Log("bide.rabbitmq")
PARTS = 3  # of the broker's consumer_timeout: a delivery is renewed after one of them
STAY_MS = 10_000  # for which a copy waits to be received here, before it goes to its topic
UNUSED_MS = 7 * 86_400_000  # after which the queue of a dead process is removed; what was in it has left long before


class AsyncParkedDeliveries:
    def __init__(
        self, address: Address, names: QueueNames, endings: AsyncEndings, sender: AsyncSender, holdings: Holdings
    ) -> None:
        self._address = address
        self._names = names
        self._endings = endings
        self._line = endings.line  # on which deliveries come
        self._closed = False
        self._sender = sender
        self._holdings = holdings
        self._after = address.consumer_timeout / PARTS
        self._owner = uuid.uuid4().hex
        self._channel: AbstractChannel | None = None  # on which copies come
        self._alarm: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """There are deliveries that may take long."""
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(self._after, self._begin)

    async def close(self) -> None:
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    def _begin(self) -> None:
        self._alarm = None
        if self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        channel = self._line.opened
        kept = [] if channel is None else self._holdings.of_channel(channel)
        try:
            for held in kept:
                if held.arrived.at <= time.monotonic() - self._after:
                    try:
                        await self._park(held)
                    except BideError as error:
                        _log.warning("A delivery could not be renewed with the broker, which is tried again soon: %s", error)
        finally:
            self._renewing = None
            if kept and not self._closed:
                oldest = min(held.arrived.at for held in kept) + self._after - time.monotonic()
                self._alarm = asyncio.get_running_loop().call_later(max(oldest, self._after / PARTS), self._begin)

    async def _park(self, held: Held) -> None:
        await self._receive()
        given = held.delivered
        copy = given.label.again(given.label.due, given.attempt, given.told, given.label.began, given.lost + 1)
        await self._sender.send_by(self._names.enter, self._names.parking(self._owner, copy.topic), copy, given.body)

    async def _receive(self) -> None:
        """See to it that copies come in, on the channel of the deliveries: it is lost as a whole, or not at all."""
        channel = await self._line.channel()
        if channel is self._channel:
            return
        queue = self._names.parked(self._owner)
        arguments: dict[str, Any] = {
            **self._names.arguments(STAY_MS, self._names.topics),
            **topology.without_limit(channel),
            "x-expires": UNUSED_MS,
        }
        with told(self._address.shown):
            async with asyncio.timeout(self._address.timeout), self._line.consuming:
                await channel.queue_declare(queue, durable=True, arguments=arguments)
                await channel.queue_bind(queue, self._names.enter, self._names.parking(self._owner))
                await channel.basic_qos(prefetch_count=0)
                await channel.basic_consume(queue, self._arrive)
        self._channel = channel

    async def _arrive(self, message: DeliveredMessage) -> None:
        """A copy takes the place of the delivery that it was made of. If that has ended meanwhile, so has the copy."""
        assert isinstance(message.delivery, Basic.Deliver)
        found = label.read(message.header.properties.headers, message.body)
        tag = message.delivery.delivery_tag or 0
        held = None if found is None else self._holdings.held(found.label.id, found.label.told)
        if held is not None and held.arrived.channel is message.channel:
            tag, held.arrived = held.arrived.tag, Arrived(held.delivered, message.channel, tag, time.monotonic())
        with told(self._address.shown):
            if held is None and message.delivery.redelivered:  # what it was made of was acknowledged, and then the channel lost
                await message.channel.basic_reject(tag, requeue=False)  # to its topic
            else:
                await self._endings.acknowledge(message.channel, tag)
