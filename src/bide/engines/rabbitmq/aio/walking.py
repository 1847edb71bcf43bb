"""Walks along a queue from its head: each message is taken, and goes back to its place unless it is acknowledged."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiormq import exceptions as theirs
from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.commands import Basic

from bide.engines.rabbitmq import label
from bide.engines.rabbitmq.aio.line import AsyncLine
from bide.engines.rabbitmq.failures import told
from bide.engines.rabbitmq.label import Delivered
from bide.engines.rabbitmq.location import Address
from bide.errors import BideError

LONGEST = 60.0  # seconds to wait for another walk
PAUSE = 0.1  # seconds between two tries
BACK = 1.0  # seconds for the broker to put back what was taken
LOOK = 0.005


class Taken:
    """A message that was taken from a queue, to be acknowledged or left where it was."""

    def __init__(self, message: DeliveredMessage) -> None:
        assert isinstance(message.delivery, Basic.GetOk)
        self.tag: int = message.delivery.delivery_tag or 0
        self.left: int = message.delivery.message_count or 0  # in the queue behind it
        self.body: bytes = message.body
        self.delivered: Delivered | None = label.read(message.header.properties.headers, message.body)


class Walk:
    """Along one queue, by one process at a time: what another one has taken would be missed."""

    def __init__(self, channel: AbstractChannel, address: Address, queue: str) -> None:
        self._channel = channel
        self._address = address
        self._queue = queue
        self._open = 0  # messages that are taken and not dropped
        self._left = 0  # in the queue, when the last one was taken

    async def messages(self) -> AsyncIterator[Taken]:
        while True:
            try:
                with told(self._address.shown):
                    async with asyncio.timeout(self._address.timeout):
                        message = await self._channel.basic_get(self._queue)
            except BideError as error:
                if isinstance(error.__cause__, theirs.ChannelNotFoundEntity):
                    return
                raise
            if isinstance(message.delivery, Basic.GetEmpty):
                self._left = 0
                return
            taken = Taken(message)
            self._open, self._left = self._open + 1, taken.left
            yield taken

    async def drop(self, taken: Taken) -> None:
        """It is not put back."""
        with told(self._address.shown, acts=True):
            await self._channel.basic_ack(taken.tag)
        self._open -= 1

    async def end(self, channel: AbstractChannel) -> None:
        """Put each back. The broker does so some time after the channel is closed."""
        if self._channel.is_closed:
            return
        await self._channel.close()
        give_up = time.monotonic() + BACK
        while self._open and time.monotonic() < give_up:
            if ((await channel.queue_declare(self._queue, passive=True)).message_count or 0) >= self._left + self._open:
                break
            await asyncio.sleep(LOOK)


@asynccontextmanager
async def walk(line: AsyncLine, address: Address, queue: str) -> AsyncIterator[Walk]:
    """Along a queue, which may be missing. What is not dropped is back when the walk is over."""
    async with line.walking:
        mark = f"{queue}:walk"
        walk = Walk(await _alone(line, address, mark), address, queue)
        try:
            yield walk
        finally:
            channel = await line.another()
            with told(address.shown):
                async with asyncio.timeout(address.timeout):
                    await walk.end(channel)
                    await channel.queue_delete(mark)
                    await channel.close()


async def _alone(line: AsyncLine, address: Address, mark: str) -> AbstractChannel:
    """A channel, when no other process walks there: a queue of this name belongs to the connection that has made it."""
    give_up = time.monotonic() + LONGEST
    while True:
        channel = await line.another()
        try:
            with told(address.shown):
                async with asyncio.timeout(address.timeout):
                    await channel.queue_declare(mark, exclusive=True)
        except BideError as error:
            if not isinstance(error.__cause__, theirs.ChannelLockedResource) or time.monotonic() > give_up:
                raise
            await asyncio.sleep(PAUSE)
        else:
            return channel
