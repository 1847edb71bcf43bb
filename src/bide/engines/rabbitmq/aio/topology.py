"""The exchanges, queues and bindings of a namespace and of its topics: made when first used, and looked at now and then."""

import asyncio
import contextlib
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from aiormq import exceptions as theirs
from aiormq.abc import AbstractChannel
from pamqp.commands import Basic

from bide.engines.rabbitmq.aio.line import AsyncBrokerLine, blocks
from bide.engines.rabbitmq.failures import told
from bide.engines.rabbitmq.ladder import QUORUM, LadderStep, QueueNames
from bide.engines.rabbitmq.location import Address
from bide.errors import BideError, QueueFull, SchemaMismatch, Unavailable

LIMITS = (4, 0)  # versions since this one drop what was delivered twenty times, unless told otherwise
BETWEEN = 0.05  # seconds between two messages of the probe: the broker counts what it holds a moment later
TRIES = 4  # messages of the probe; with at-least-once the third is refused
PROBE_MS = 1
AT_MOST_ONCE = (
    "The broker does not dead-letter at least once, so messages could be lost on their way, and the queue is not used. Run "
    "`rabbitmqctl enable_feature_flag stream_queue`, and see that no policy sets overflow, dead-letter-strategy or "
    "max-length for queues whose names begin with the namespace; `bide doctor` tells more."
)
MAKING = 60.0  # seconds for the whole ladder, at most
TOLD = 0.2  # seconds for the broker to tell receivers that a queue was removed; if it is made before, they hear of no message
CLOSING = 5.0  # seconds
FRESH = 5.0  # seconds for which a queue that was seen is believed to be there


def without_limit(channel: AbstractChannel) -> Mapping[str, Any]:
    """Arguments of a queue from which nothing is dropped for having been delivered often: bide counts attempts."""
    return {"x-delivery-limit": -1} if version(channel) >= LIMITS else {}


def version(channel: AbstractChannel) -> tuple[int, int]:
    """The broker's."""
    found = re.match(r"(\d+)\.(\d+)", str(channel.connection.server_properties.get("version")))
    return (0, 0) if found is None else (int(found[1]), int(found[2]))


async def is_made(channel: AbstractChannel, names: QueueNames) -> bool:
    """Whether all of it is there. The channel is closed when not."""
    try:
        await channel.exchange_declare(names.made, passive=True)
    except theirs.ChannelNotFoundEntity:
        return False
    return True


async def make(channel: AbstractChannel, names: QueueNames) -> None:
    """Make what is missing, and say so at the end."""
    for name, kind, arguments in names.exchanges():
        await channel.exchange_declare(name, exchange_type=kind, durable=True, arguments=dict(arguments))
    for name, arguments in names.queues():
        more = without_limit(channel) if name == names.lost else {}
        await channel.queue_declare(name, durable=True, arguments={**arguments, **more})
    await channel.queue_bind(names.lost, names.lost)
    for exchange, pattern, queue in names.bindings():
        await channel.queue_bind(queue, exchange, pattern, nowait=True)
    for exchange, pattern in names.arrivals():
        await channel.exchange_bind(names.topics, exchange, pattern, nowait=True)
    await channel.exchange_declare(names.made, exchange_type="fanout", durable=True)


async def probe(channel: AbstractChannel, names: QueueNames, patience: float) -> bool:
    """Refuse a broker that would lose messages: what a queue declares is not always what it does. False: it takes none now.

    A queue with the arguments of the ladder, and room for one message, dead-letters into an exchange that leads nowhere. The
    broker has to keep the first message, so that it refuses others; one that only says at-least-once drops them all.
    """
    name = names.wait(LadderStep(f"probe.{uuid.uuid4().hex}", "", "", PROBE_MS))
    arguments = {**names.arguments(PROBE_MS, names.made), "x-max-length": 1, "x-expires": 60_000}
    await channel.queue_declare(name, durable=True, arguments=arguments)
    try:
        for _ in range(TRIES):
            try:
                async with asyncio.timeout(patience):
                    await channel.basic_publish(b"", routing_key=name, properties=Basic.Properties(delivery_mode=2))
            except theirs.DeliveryError:
                return True
            except TimeoutError:
                if channel.connection.is_opened and await blocks(channel):  # the queue goes by itself, in a minute
                    return False
                raise
            await asyncio.sleep(BETWEEN)
        raise SchemaMismatch(AT_MOST_ONCE)
    finally:
        if not channel.is_closed and not await blocks(channel):
            await channel.queue_delete(name)


_HARMLESS = re.compile(r"inequivalent arg 'x-(?:delivery-limit|queue-leader-locator)'")  # as other brokers and releases made it


class AsyncTopicQueues:
    def __init__(self, address: Address, names: QueueNames, line: AsyncBrokerLine, dead_max: int) -> None:
        self._address = address
        self._names = names
        self._line = line
        self.looking: AsyncBrokerLine = line  # on which nothing is sent, so a broker that is full answers there
        self._dead_max = dead_max
        self.torn: bool = False  # whether a message was returned from the ladder
        self._lock = asyncio.Lock()
        self._seen: dict[str, float] = {}  # queues, and when

    async def mend(self) -> None:
        """Make all of the ladder that is missing."""
        channel = await self._line.another()
        with told(self._address.shown):
            async with asyncio.timeout(MAKING):
                await make(channel, self._names)
                await channel.close()
        self.torn = False

    async def see_to(self, *topics: str) -> None:
        """Make the queues of topics that were never seen here. One that was seen and is gone is an error, once."""
        if all(self._is_fresh(self._names.topic(each)) for each in topics):
            return
        async with self._lock:
            blocked = await self._line.is_blocked()
            stale = [each for each in topics if not self._is_fresh(self._names.topic(each))]
            stale = [each for each in stale if not (blocked and self._names.topic(each) in self._seen)]
            if stale and blocked:
                raise QueueFull(f"{self._address.shown} takes nothing for now, so there is no queue for {stale[0]} yet.")
            missing = [each for each in stale if not await self._found(each)]
            if missing:
                await asyncio.sleep(TOLD)  # if they were removed just now
            for each in missing:
                await self._make(each)

    async def make_new(self, topics: Iterable[str]) -> None:
        """The same, of those that were never seen."""
        await self.see_to(*(each for each in topics if self._names.topic(each) not in self._seen))

    async def _found(self, topic: str) -> bool:
        name = self._names.topic(topic)
        channel = await self._line.another()
        try:
            with told(self._address.shown):
                async with asyncio.timeout(self._address.timeout):
                    if await self._is_there(channel, name):
                        if name not in self._seen:
                            await self._refuse_foreign(topic)
                        await channel.queue_bind(name, self._names.topics, self._names.to_topic(topic))
                        self._seen[name] = time.monotonic()
                        return True
        finally:
            await _close(channel)
        if name in self._seen:
            self.forget(topic)
            raise Unavailable(
                f"{self._address.shown}: somebody has removed the queue of the topic {topic} with the messages in it. Nothing "
                "was done; the next call makes it again."
            )
        return False

    async def _refuse_foreign(self, topic: str) -> None:
        """A queue that somebody else has made may keep one message, or lose them all: the broker compares the arguments."""
        channel = await self._line.another()
        try:
            await channel.queue_declare(self._names.topic(topic), durable=True, arguments=await self._arguments_of_topic())
        except theirs.ChannelPreconditionFailed as error:
            if not _HARMLESS.search(str(error)):
                raise
        except theirs.ChannelAccessRefused:
            pass  # this user may not make queues, and trusts whoever may
        finally:
            await _close(channel)

    async def _make(self, topic: str) -> None:
        name = self._names.topic(topic)
        channel = await self._line.another()
        arguments = await self._arguments_of_topic()
        try:
            with told(self._address.shown):
                async with asyncio.timeout(self._address.timeout):
                    await channel.basic_publish(
                        topic.encode(),
                        routing_key=self._names.index,
                        properties=Basic.Properties(delivery_mode=2),
                        mandatory=True,
                    )
                    await channel.queue_declare(name, durable=True, arguments=arguments)
                    await channel.queue_bind(name, self._names.topics, self._names.to_topic(topic))
        except BideError as error:
            self.torn = self.torn or isinstance(error.__cause__, theirs.PublishError)
            raise
        finally:
            await _close(channel)
        self._seen[name] = time.monotonic()

    async def count(self, topic: str) -> int:
        """How many messages wait in the topic's queue, which is made if there is none."""
        name = self._names.topic(topic)
        channel = await self.looking.another()
        try:
            with told(self._address.shown):
                async with asyncio.timeout(self._address.timeout):
                    return (await channel.queue_declare(name, passive=True)).message_count or 0
        except Unavailable as error:
            if not isinstance(error.__cause__, theirs.ChannelNotFoundEntity):
                raise
            self.forget(topic)
            await self.see_to(topic)
            return 0
        finally:
            await _close(channel)

    async def are_blocked(self) -> bool:
        """Whether the broker takes nothing for now."""
        return await self._line.is_blocked()

    async def dead(self, topic: str) -> str:
        """The name of the queue of the topic's dead letters, which is made if there is none."""
        name = self._names.dead(topic)
        if not self._is_fresh(name):
            async with self._lock:
                channel = await self._line.another()
                try:
                    with told(self._address.shown):
                        async with asyncio.timeout(self._address.timeout):
                            if not await self._is_there(channel, name):
                                channel = await self._line.another()
                                most = {"x-max-length": self._dead_max}
                                await channel.queue_declare(name, durable=True, arguments=await self._arguments() | most)
                    self._seen[name] = time.monotonic()
                finally:
                    await _close(channel)
        return name

    def forget(self, topic: str) -> None:
        """Look at it before the next message is sent."""
        for name in (self._names.topic(topic), self._names.dead(topic)):
            self._seen.pop(name, None)

    def _is_fresh(self, name: str) -> bool:
        seen = self._seen.get(name)
        return seen is not None and time.monotonic() < seen + FRESH

    @staticmethod
    async def _is_there(channel: AbstractChannel, name: str) -> bool:
        """The channel is closed when not."""
        try:
            await channel.queue_declare(name, passive=True)
        except theirs.ChannelNotFoundEntity:
            return False
        return True

    async def _arguments_of_topic(self) -> dict[str, Any]:
        return await self._arguments() | {"x-dead-letter-exchange": self._names.lost}

    async def _arguments(self) -> dict[str, Any]:
        """Of a queue from which nothing is dropped for having been delivered often: bide counts attempts."""
        return {**QUORUM, **without_limit(await self._line.channel())}


async def _close(channel: AbstractChannel) -> None:
    """What was asked on it is answered, so it does not matter how this ends."""
    with contextlib.suppress(BideError), told(""):
        async with asyncio.timeout(CLOSING):
            if not channel.is_closed:
                await channel.close()
