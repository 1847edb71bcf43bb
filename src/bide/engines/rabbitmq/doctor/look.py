"""Asks the broker over AMQP what is there. Nothing is made, and no message is taken."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aiormq import exceptions as theirs
from aiormq.abc import AbstractChannel, DeliveredMessage

from bide.engines.rabbitmq.aio.line import AsyncLine
from bide.engines.rabbitmq.failures import told, translated
from bide.engines.rabbitmq.ladder import Names
from bide.engines.rabbitmq.location import Address
from bide.errors import BideError, Unavailable

ENOUGH = 3  # queues that don't answer, after which no other one is asked: each may take the whole timeout
AHEAD = 500  # names of topics that the broker sends ahead
QUIET = 1.0  # seconds without another name, after which there is none


class Counts(NamedTuple):
    """Of a queue. AMQP tells no more: what was delivered is not counted, nor what the broker is about to dead-letter."""

    ready: int
    consumers: int


class Look:
    """At one namespace, through one connection."""

    def __init__(self, address: Address, line: AsyncLine) -> None:
        self._address = address
        self._line = line
        self._channel: AbstractChannel | None = None

    async def told_by_broker(self) -> Mapping[str, object]:
        """What the broker said of itself when it was connected."""
        channel = await self._line.channel()
        return channel.connection.server_properties

    async def exchange(self, name: str) -> bool:
        """Whether it is there."""
        channel = await self._opened()
        with told(self._address.shown):
            try:
                await channel.exchange_declare(name, passive=True, timeout=self._address.timeout)
            except theirs.ChannelNotFoundEntity:
                return False
        return True

    async def queue(self, name: str) -> Counts | None:
        """None: it is not there. Raises Unavailable for one that is there and does not answer."""
        channel = await self._opened()
        with told(self._address.shown):
            try:
                found = await channel.queue_declare(name, passive=True, timeout=self._address.timeout)
            except theirs.ChannelNotFoundEntity as error:
                if "no queue" in str(error):
                    return None
                raise Unavailable(str(translated(error, self._address.shown))) from error
        return Counts(found.message_count or 0, found.consumer_count or 0)

    async def queues(self, names: Iterable[str]) -> dict[str, Counts | BideError | None]:
        """Of each what `queue` says, or why it says nothing. When several are silent, the others are taken for it."""
        found: dict[str, Counts | BideError | None] = {}
        errors: list[BideError] = []
        for name in names:
            if len(errors) == ENOUGH:
                found[name] = errors[-1]
                continue
            try:
                found[name] = await self.queue(name)
            except BideError as error:
                errors.append(error)
                found[name] = error
        return found

    async def topics(self, names: Names) -> list[str]:
        """All that the index knows. Empty where there is none. The broker counts what is in it some seconds late."""
        index = await self.queue(names.index)
        if index is None:
            return []
        topics, known, came = dict[str, None](), 0, asyncio.Event()
        channel = await self._line.another()

        async def take(message: DeliveredMessage) -> None:
            nonlocal known
            topics[message.body.decode(errors="replace")] = None
            known += 1
            came.set()
            await channel.basic_ack(message.delivery_tag or 0, wait=False)

        with told(self._address.shown):
            try:
                await channel.basic_qos(prefetch_count=AHEAD)
                await channel.basic_consume(names.index, take, arguments={"x-stream-offset": "first"})
                while await _in_time(came, self._address.timeout if known < index.ready else QUIET):
                    came.clear()
                if known < index.ready:
                    raise TimeoutError
            finally:
                if not channel.is_closed:
                    await channel.close()
        return sorted(topics)

    async def _opened(self) -> AbstractChannel:
        """A channel; a new one after each error, as the broker closes it then."""
        if self._channel is None or self._channel.is_closed:
            self._channel = await self._line.another()
        return self._channel


async def _in_time(event: asyncio.Event, patience: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), patience)
    except TimeoutError:
        return False
    return True
