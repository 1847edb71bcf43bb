"""Walks along a queue from its head: each message is taken, and goes back to its place unless it is acknowledged."""

import asyncio
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


class Taken:
    """A message that was taken from a queue, to be acknowledged or left where it was."""

    def __init__(self, message: DeliveredMessage) -> None:
        assert isinstance(message.delivery, Basic.GetOk)
        self.tag: int = message.delivery.delivery_tag or 0
        self.left: int = message.delivery.message_count or 0  # in the queue behind it
        self.body: bytes = message.body
        self.delivered: Delivered | None = label.read(message.header.properties.headers, message.body)


@asynccontextmanager
async def walk(line: AsyncLine, address: Address, queue: str) -> AsyncIterator[tuple[AbstractChannel, AsyncIterator[Taken]]]:
    """The messages of a queue, which may be missing. What is not acknowledged goes back when the walk is over."""
    channel = await line.another()
    try:
        yield channel, _messages(channel, address, queue)
    finally:
        if not channel.is_closed:
            with told(address.shown):
                await channel.close()


async def _messages(channel: AbstractChannel, address: Address, queue: str) -> AsyncIterator[Taken]:
    while True:
        try:
            with told(address.shown):
                async with asyncio.timeout(address.timeout):
                    message = await channel.basic_get(queue)
        except BideError as error:
            if isinstance(error.__cause__, theirs.ChannelNotFoundEntity):
                return
            raise
        if isinstance(message.delivery, Basic.GetEmpty):
            return
        yield Taken(message)
