"""What the broker delivers to this process: a consumer a topic, and messages that wait here until they are claimed, briefly."""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar, cast

from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.channel import Channel
from pamqp.commands import Basic

from bide.engines.base import SWEEP
from bide.engines.rabbitmq import label
from bide.engines.rabbitmq.aio.ending import AsyncEndings
from bide.engines.rabbitmq.aio.line import CLOSED
from bide.engines.rabbitmq.aio.topics import AsyncTopics
from bide.engines.rabbitmq.failures import told
from bide.engines.rabbitmq.holdings import Arrived, Holdings
from bide.engines.rabbitmq.ladder import TICK, Names
from bide.engines.rabbitmq.location import Address
from bide.engines.sleepers import Sleeper, Sleepers
from bide.errors import Unavailable
from bide.wakeable import AsyncSignal

T = TypeVar("T")
SURPLUS = 1.0  # seconds after which a message that nobody claims goes back, for others
IDLE = 15.0  # seconds after which a topic that nobody asks for is not received any more
LATE = 60.0  # seconds after which a consumer that was ended gets nothing more
RECENT = 1.0  # seconds for which a topic that has brought a message may bring another one
PROMPT = 0.5  # seconds for the messages that were there when the receiving of a topic began


class _Consumer:
    """How the messages of a topic come in."""

    def __init__(self, tag: str, room: int) -> None:
        self.tag = tag
        self.room = room  # messages that may be here and not acknowledged
        self.asked = time.monotonic()
        self.came = -RECENT  # when it brought a message last


class AsyncInbox:
    def __init__(
        self,
        address: Address,
        names: Names,
        topics: AsyncTopics,
        holdings: Holdings,
        endings: AsyncEndings,
    ) -> None:
        self._address = address
        self._names = names
        self._topics = topics
        self._holdings = holdings
        self._endings = endings
        self._line = endings.line
        endings.on_lost = self._on_lost
        self._lock = asyncio.Lock()
        self._consumers: dict[str, _Consumer] = {}
        self._here: dict[str, deque[Arrived]] = {}  # by topic; for all that are received
        self._sleepers: Sleepers[str] = Sleepers()
        self._asleep: set[AsyncSignal] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._look: asyncio.TimerHandle | None = None
        self._numbers = itertools.count(1)  # of consumers
        self._closed = False

    async def receive(self, topics: Sequence[str], room: int) -> None:
        """See to it that so many messages of these topics can come in, beside those that are held."""
        held = self._holdings.counts(self._line.opened)
        began = []
        for topic in topics:
            consumer, needed = self._consumers.get(topic), held.get(topic, 0) + room
            if consumer is not None and consumer.room >= needed:
                consumer.asked = time.monotonic()
            elif await asyncio.shield(self.do(self._begin(topic, needed))):
                began.append(topic)
        await self._await_first(began)

    async def more(self, topics: Sequence[str]) -> bool:
        """Whether there are more of these topics after all: a message may be on its way here when the one before was taken."""
        since = time.monotonic() - RECENT
        lively = [topic for topic in topics if topic in self._consumers and self._consumers[topic].came > since]
        for topic in lively:
            if await self._topics.count(topic):
                return await self._await_first(lively)
        return any(self._has(topic) for topic in topics)

    async def _await_first(self, topics: Sequence[str]) -> bool:
        """Wait for a message that is on its way; whether it has come."""
        until = time.monotonic() + PROMPT
        while topics and not self._closed and not any(self._has(topic) for topic in topics):
            if (left := until - time.monotonic()) <= 0:
                return False
            await self._sleep(topics, left)
        return bool(topics)

    def next(self, topic: str, now: int) -> Arrived | None:
        """The message that came first, of those that are due."""
        waiting = self._here.get(topic) or ()
        for place, arrived in enumerate(waiting):
            if arrived.delivered.label.due <= now:
                del self._here[topic][place]
                return arrived
        return None

    def hand_on(self, topics: Sequence[str]) -> None:
        """Wake another caller for what was left behind."""
        self._sleepers.wake(topic for topic in topics if self._has(topic))

    def _has(self, topic: str) -> bool:
        """Whether a message is here that is due."""
        now = self._holdings.time.now()
        return any(each.delivered.label.due <= now for each in self._here.get(topic, ()))

    async def wait(self, topics: Sequence[str], timeout: float) -> None:
        """Sleep until a message of these topics is here."""
        await self.receive(topics, 1 + len(self._asleep))
        await self._sleep(topics, min(timeout, SWEEP))

    async def close(self) -> None:
        """Give back what nobody has claimed, and hang up."""
        self._closed = True
        if self._look is not None:
            self._look.cancel()
        for signal in list(self._asleep):
            signal.set()
        left = [each for waiting in self._here.values() for each in waiting]
        self._here.clear()
        if left:
            self.do(self._endings.send_round(left))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._address.timeout)
        await self._line.close()
        if self._tasks:  # they are told so
            await asyncio.wait(self._tasks, timeout=self._address.timeout)

    def abandon(self) -> None:
        self._closed = True
        self._line.abandon()

    async def _sleep(self, topics: Sequence[str], timeout: float) -> None:
        signal = AsyncSignal()
        sleeper: Sleeper[str] = Sleeper(signal, topics)
        if self._closed or any(self._has(topic) for topic in topics) or not self._sleepers.add(sleeper):
            return
        self._asleep.add(signal)
        try:
            await signal.wait(timeout)
        finally:
            self._asleep.discard(signal)
            self._sleepers.remove(sleeper)
            now = time.monotonic()
            for topic in topics:
                if topic in self._consumers:
                    self._consumers[topic].asked = now

    async def _begin(self, topic: str, room: int) -> bool:
        """Whether messages are there already."""
        async with self._lock:
            consumer = self._consumers.get(topic)
            if consumer is not None and consumer.room >= room:
                return False
            if self._closed:
                raise Unavailable(CLOSED)
            ready = await self._topics.count(topic)
            channel = await self._line.channel()
            channel.on_consumer_cancel_callbacks.add(self._on_cancelled)
            with told(self._address.shown):
                async with asyncio.timeout(self._address.timeout), self._line.consuming:
                    if consumer is not None:
                        await self._end(channel, topic)
                    await channel.basic_qos(prefetch_count=room)
                    self._here.setdefault(topic, deque())
                    tag = f"bide-{next(self._numbers)}"
                    self._consumers[topic] = _Consumer(tag, room)
                    await channel.basic_consume(self._names.topic(topic), self._arriving(topic), consumer_tag=tag)
            self._look_again(IDLE)
            return bool(ready)

    async def _end(self, channel: AbstractChannel, topic: str) -> None:
        consumer = self._consumers.pop(topic, None)
        if consumer is not None:
            await channel.basic_cancel(consumer.tag)
            consumers = cast(Channel, channel).consumers
            consumers[consumer.tag] = self._arriving(topic)  # a quorum queue may deliver to it still
            asyncio.get_running_loop().call_later(LATE, consumers.pop, consumer.tag, None)

    def _arriving(self, topic: str) -> Callable[[DeliveredMessage], Coroutine[Any, Any, None]]:
        async def arrive(message: DeliveredMessage) -> None:
            self._arrive(topic, message)

        return arrive

    def _arrive(self, topic: str, message: DeliveredMessage) -> None:
        assert isinstance(message.delivery, Basic.Deliver)
        now = time.monotonic()
        headers: Mapping[str, Any] = message.header.properties.headers or {}
        delivered = label.read(headers, message.body)
        if delivered is None or delivered.label.topic != topic or message.delivery.delivery_tag is None:
            self.do(self._endings.refuse(topic, message.channel, message))
            return
        self._holdings.time.hear_of(headers, now)
        if topic in self._consumers:
            self._consumers[topic].came = now
        arrived = Arrived(delivered, message.channel, message.delivery.delivery_tag, now)
        early = delivered.label.due - self._holdings.time.now()
        if early > TICK:
            self.do(self._endings.send_round([arrived]))
        elif message.channel is self._line.opened:
            self._here.setdefault(topic, deque()).append(arrived)
            self._look_again(SURPLUS)
            if early > 0:
                asyncio.get_running_loop().call_later(early / 1000, self._sleepers.wake, [topic])
            else:
                self._sleepers.wake([topic])

    def do(self, part: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Meanwhile, and to its end if that may be."""
        task = asyncio.get_running_loop().create_task(part)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # which is as good as said

    def _look_again(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._look is None or self._look.when() > loop.time() + seconds:
            if self._look is not None:
                self._look.cancel()
            self._look = loop.call_later(seconds, self._look_over)

    def _look_over(self) -> None:
        """End the receiving of topics that nobody asks for, and give back what came too much."""
        self._look = None
        now, wanted = time.monotonic(), set(self._sleepers.topics())
        for topic in {*self._consumers, *self._here}:  # a message may come after the receiving of its topic was ended
            consumer = self._consumers.get(topic)
            surplus = any(each.at <= now - SURPLUS for each in self._here.get(topic, ()))
            if surplus and topic in wanted:
                self._sleepers.wake([topic])  # whoever was woken for it has not come
            elif surplus or (consumer is not None and consumer.asked <= now - IDLE and topic not in wanted):
                self.do(self._stop(topic))
        if self._consumers or any(self._here.values()):
            self._look_again(SURPLUS if any(self._here.values()) else IDLE)
            self._look_at_one(now)

    def _look_at_one(self, now: float) -> None:
        """By turns: whether messages wait of a topic that has brought none for a while."""
        topic = next(iter(self._consumers))
        consumer = self._consumers[topic] = self._consumers.pop(topic)
        if consumer.came <= now - IDLE and not self._holdings.counts(self._line.opened).get(topic):
            self.do(self._try_again(topic, consumer))

    async def _try_again(self, topic: str, consumer: _Consumer) -> None:
        """A queue that somebody has removed and made again does not always tell its consumers."""
        if await self._topics.count(topic) and self._consumers.get(topic) is consumer:
            room, consumer.room = consumer.room, 0
            await self._begin(topic, room)

    async def _stop(self, topic: str) -> None:
        async with self._lock:
            channel = self._line.opened
            if channel is not None:
                await self._end(channel, topic)
            left = self._here.pop(topic, None)
        if left:
            await self._endings.send_round(list(left))

    def _on_cancelled(self, frame: Basic.Cancel) -> None:
        """The broker has ended a consumer: its queue was removed."""
        for topic, consumer in list(self._consumers.items()):
            if consumer.tag == frame.consumer_tag:
                del self._consumers[topic]
                self._topics.forget(topic)
                self._wake_all()

    def _on_lost(self) -> None:
        self._consumers.clear()
        self._here.clear()
        self._wake_all()

    def _wake_all(self) -> None:
        for signal in list(self._asleep):
            signal.set()
