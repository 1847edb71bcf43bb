"""How messages come in: through consumers, whose prefetch is the credit that callers have given a topic, or one by one.

AMQP's prefetch counts for one consumer: what it brought and what is not acknowledged yet. So a topic that may bring more gets
one more consumer, and the others go on.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias, cast

from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.channel import Channel
from pamqp.commands import Basic

from bide.engines.rabbitmq.aio.line import CLOSED, AsyncBrokerLine
from bide.engines.rabbitmq.aio.topology import AsyncTopicQueues
from bide.engines.rabbitmq.failures import told
from bide.engines.rabbitmq.ladder import QueueNames
from bide.engines.rabbitmq.location import Address
from bide.errors import Unavailable

Arrive: TypeAlias = Callable[[str, DeliveredMessage, str | None], None]
MOST = 10_000  # messages of a consumer; the broker takes up to 65,535
LATE = 60.0  # seconds after which a consumer that was ended gets nothing more


class ReceivedTopic:
    """A topic that is received."""

    def __init__(self) -> None:
        self.rooms: dict[str, int] = {}  # by consumer: messages that may be here, or held, and came through it
        self.asked: float = time.monotonic()
        self.came: float = float("-inf")  # when it brought a message last
        self.ended: float = float("-inf")  # when one that it had brought was ended last

    def free(self, used: Mapping[str, int]) -> int:
        return sum(max(0, room - used.get(tag, 0)) for tag, room in self.rooms.items())


class AsyncConsumers:
    def __init__(
        self,
        address: Address,
        names: QueueNames,
        topics: AsyncTopicQueues,
        line: AsyncBrokerLine,
        arrive: Arrive,
        on_removed: Callable[[], None],
    ) -> None:
        self._address = address
        self._names = names
        self._topics = topics
        self._line = line
        self._arrive = arrive
        self._on_removed = on_removed
        self._lock = asyncio.Lock()
        self._numbers = itertools.count(1)
        self.closed: bool = False
        self._refuses = False  # to begin anything new
        self._leaving: set[str] = set()  # consumers that are about to be ended
        self._channel: AbstractChannel | None = None  # of these sources
        self.sources: dict[str, ReceivedTopic] = {}

    async def add(self, topic: str, room: int, used: Mapping[str, int]) -> bool:
        """Let so many come, beside those that are used. Whether messages are there already that could not come before."""
        async with self._lock:
            self._check()
            room -= self.free(topic, used)
            if room <= 0:
                return False
            ready = await self._topics.count(topic)
            channel = await self._line.channel()
            self._check()
            if channel is not self._channel:
                self._channel = channel
                self.sources.clear()
            channel.on_consumer_cancel_callbacks.add(self._was_ended)
            with told(self._address.shown):
                async with asyncio.timeout(self._address.timeout), self._line.consuming:
                    await channel.basic_qos(prefetch_count=min(room, MOST))
                    tag = f"bide-{next(self._numbers)}"
                    source = self.sources.setdefault(topic, ReceivedTopic())
                    source.rooms[tag] = min(room, MOST)
                    try:
                        await channel.basic_consume(self._names.topic(topic), self._arriving(topic, tag), consumer_tag=tag)
                    except BaseException:
                        source.rooms.pop(tag, None)
                        raise
            return bool(ready)

    def free(self, topic: str, used: Mapping[str, int]) -> int:
        """How many more may come of a topic. `used`: what has come and was not acknowledged yet, by consumer."""
        return self.sources[topic].free(used) if topic in self.sources and self._channel is self._line.opened else 0

    async def get(self, topic: str) -> bool:
        """Ask for one message. Whether there was one."""
        async with self._lock:
            self._check()
            await self._topics.see_to(topic)
            channel = await self._line.channel()
            with told(self._address.shown):
                async with asyncio.timeout(self._address.timeout):
                    message = await channel.basic_get(self._names.topic(topic))
            if isinstance(message.delivery, Basic.GetEmpty):
                return False
            self._arrive(topic, message, None)
            return True

    def lost(self, channel: AbstractChannel) -> None:
        """With it, all that it would have brought."""
        if channel is self._channel:
            self.sources.clear()

    async def end(self, topic: str) -> None:
        """Let nothing more come of a topic."""
        async with self._lock:
            source, channel = self.sources.pop(topic, None), self._line.opened
            if source is not None and channel is not None:
                await self._cancel(channel, topic, list(source.rooms))

    async def end_full(self, topic: str, used: Callable[[], Mapping[str, int] | None]) -> None:
        """End the consumers of a topic through which nothing can be on its way. `used` says None if it is wanted after all."""
        async with self._lock:
            source, channel, counts = self.sources.get(topic), self._line.opened, used()
            if source is None or channel is None or counts is None:
                return
            full = [tag for tag, room in source.rooms.items() if counts.get(tag, 0) >= room]
            for tag in full:
                del source.rooms[tag]
            if not source.rooms:
                del self.sources[topic]
            await self._cancel(channel, topic, full)

    async def have_ended(self, tags: Collection[str | None]) -> None:
        """Wait for those of these consumers that are about to be ended: with room, they would get one more before that."""
        if not self._leaving.isdisjoint(tags):
            async with self._lock:
                pass

    async def begin_none(self) -> None:
        """From now on; one that is about to begin has begun afterwards."""
        self._refuses = True
        async with self._lock:
            pass

    async def end_all(self) -> None:
        """For good: afterwards, all that the broker had sent before is here."""
        self.closed = True
        for topic in list(self.sources):
            await self.end(topic)
        await self.have_come()

    async def have_come(self) -> None:
        """Wait until the broker has ended those that were ended, and all that it had sent before is here."""
        channel = self._line.opened
        if channel is not None:
            await channel.flow(active=True, timeout=self._address.timeout)
            await asyncio.sleep(0)  # the driver has a task for each message that came before the answer

    def _was_ended(self, frame: Basic.Cancel) -> None:
        """The broker has ended a consumer: its queue was removed."""
        for topic, source in list(self.sources.items()):
            if frame.consumer_tag in source.rooms:
                del self.sources[topic]
                self._topics.forget(topic)
                self._on_removed()

    def _check(self) -> None:
        if self.closed or self._refuses:
            raise Unavailable(CLOSED)

    async def _cancel(self, channel: AbstractChannel, topic: str, tags: Sequence[str]) -> None:
        """The broker may deliver to them still: the driver would forget a consumer with the answer, and so drop the message."""
        self._leaving.update(tags)
        try:
            for tag in tags:
                await channel.basic_cancel(tag, nowait=True, timeout=self._address.timeout)
                consumers = cast(Channel, channel).consumers
                consumers[tag] = self._arriving(topic, tag)
                asyncio.get_running_loop().call_later(LATE, consumers.pop, tag, None)
        finally:
            self._leaving.difference_update(tags)

    def _arriving(self, topic: str, tag: str) -> Callable[[DeliveredMessage], Coroutine[Any, Any, None]]:
        async def arrive(message: DeliveredMessage) -> None:
            self._arrive(topic, message, tag)

        return arrive
