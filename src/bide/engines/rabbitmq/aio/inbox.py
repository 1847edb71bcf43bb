"""What the broker delivers to this process: messages wait here until they are claimed, briefly."""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiormq.abc import AbstractChannel, DeliveredMessage
from msgspec.structs import replace
from pamqp.commands import Basic

from bide.engines.base import SWEEP
from bide.engines.callers import Sleeper, Sleepers
from bide.engines.rabbitmq import label
from bide.engines.rabbitmq.aio.consumers import AsyncConsumers, ReceivedTopic
from bide.engines.rabbitmq.aio.ends import AsyncEndings
from bide.engines.rabbitmq.aio.topology import AsyncTopicQueues
from bide.engines.rabbitmq.failures import is_foreseen, is_of_one_queue
from bide.engines.rabbitmq.holdings import Arrived, Holdings
from bide.engines.rabbitmq.ladder import TICK, QueueNames
from bide.engines.rabbitmq.location import Address
from bide.errors import BideError
from bide.logs import Log
from bide.wakeable import AsyncSignal

T = TypeVar("T")
_log = Log("bide.rabbitmq")
SURPLUS = 1.0  # seconds after which a message that nobody claims goes back, for others
IDLE = 15.0  # seconds after which a topic that nobody asks for is not received any more
RECENT = 1.0  # seconds for which a topic that has brought a message may bring another one
PROMPT = 0.5  # seconds for the messages that were there when the receiving of a topic began
BURST = 0.005  # seconds in which another one comes, of messages that were there
RETRY = 10.0  # seconds until a topic that was refused is tried again
CALM = 0.1  # seconds after an acknowledgement in which the next message comes
FILLING = 3.0  # seconds for a consumer that nobody asks for to get as many as it may have
QUIET = 0.1  # seconds after which a caller that has not asked again does not want the next message at once


class AsyncInbox:
    def __init__(
        self,
        address: Address,
        names: QueueNames,
        topics: AsyncTopicQueues,
        holdings: Holdings,
        endings: AsyncEndings,
    ) -> None:
        self._address = address
        self._topics = topics
        self._holdings = holdings
        self._endings = endings
        self._line = endings.line
        endings.on_lost = self._on_lost
        endings.before = self._hold_back
        self._consumers = AsyncConsumers(address, names, topics, self._line, self._arrive, self._wake_all)
        self._sources = self._consumers.sources
        self._here: dict[str, deque[Arrived]] = {}  # by topic; for all that are received
        self._sleepers: Sleepers[str] = Sleepers()
        self._asleep: set[AsyncSignal] = set()
        self._waiting: Counter[str] = Counter()  # by topic: callers that sleep, or are about to
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping: set[str] = set()  # topics
        self._look: asyncio.TimerHandle | None = None
        self._refused: dict[str, BideError] = {}  # topics that are left alone for a while
        self._turn = 0  # of topics that are asked one by one

    async def receive(self, topics: Sequence[str], room: int, *, patient: bool = True) -> None:
        """See to it that so many messages of these topics can come in, and not many more.

        Topics that may bring none share the room. When there are more of them than room, they are asked one by one: to let
        each bring one would take messages from others that nobody here can run.
        """
        used, now = self._used(), time.monotonic()
        for topic in topics:
            if topic in self._sources:
                self._sources[topic].asked = now
        dry = [topic for topic in topics if topic not in self._refused and self._consumers.free(topic, used) <= 0]
        if len(dry) <= room:
            shares = dict.fromkeys(topics, room // len(topics)) | dict.fromkeys(dry, room // max(1, len(dry)))
            await self._add(shares, used, patient=patient)
        elif patient:
            self._turn += 1
            await asyncio.shield(self.do(self._get(dry[self._turn % len(dry) :] + dry[: self._turn % len(dry)], room)))

    async def _add(self, rooms: Mapping[str, int], used: Mapping[str, int], *, patient: bool = False) -> None:
        began = []
        with contextlib.suppress(BideError):  # which is met again, topic by topic
            await asyncio.shield(self.do(self._topics.make_new(rooms)))
        for topic, room in rooms.items():
            if self._consumers.free(topic, used) < room and topic not in self._refused:
                try:
                    if await asyncio.shield(self.do(self._consumers.add(topic, room, used))):
                        began.append(topic)
                except BideError as error:
                    if not is_of_one_queue(error):
                        raise
                    self._leave_alone(topic, error)
        if rooms and self._refused.keys() >= rooms.keys():
            raise self._refused[next(iter(rooms))]
        self._look_again(IDLE)
        if patient and await self._await_first(began):
            await self._await_rest(began, sum(rooms[topic] for topic in began))

    def _leave_alone(self, topic: str, error: BideError) -> None:
        """For a while: each try costs the connection, with the deliveries of all topics."""
        _log.warning("The topic %s can't be received, which is tried again in %.0f s: %s", topic, RETRY, error)
        self._refused[topic] = error
        asyncio.get_running_loop().call_later(RETRY, self._refused.pop, topic, None)

    async def _get(self, topics: Sequence[str], room: int) -> None:
        await self._topics.make_new(topics)
        for topic in topics:
            if room > 0 and await self._consumers.get(topic):
                room -= 1

    def _used(self, ending: Sequence[Arrived] = ()) -> Mapping[str, int]:
        """By consumer: what came through it and is here or held, or about to be ended."""
        used = Counter(self._holdings.counts(self._line.opened))
        used.update(each.consumer for each in ending if each.consumer is not None)
        used.update(each.consumer for waiting in self._here.values() for each in waiting if each.consumer is not None)
        return used

    async def more(self, topics: Sequence[str]) -> bool:
        """Whether there are more of these topics after all: a message may be on its way here when the one before was taken."""
        since = time.monotonic() - RECENT
        lively = [topic for topic in topics if topic in self._sources and self._sources[topic].came > since]
        for topic in lively:
            if await asyncio.shield(self.do(self._topics.count(topic))):
                return await self._await_first(lively)
        return any(self._has(topic) for topic in topics)

    async def _await_first(self, topics: Sequence[str]) -> bool:
        """Wait for a message that is on its way; whether it has come."""
        until = time.monotonic() + PROMPT
        while topics and not self._consumers.closed and not any(self._has(topic) for topic in topics):
            if (left := until - time.monotonic()) <= 0:
                return False
            await self._sleep(topics, left)
        return bool(topics)

    async def _await_rest(self, topics: Sequence[str], room: int) -> None:
        """The others come right behind the first one; what is not claimed now may have to go back."""
        before, count = 0, 1
        while before < count < room:
            before, count = count, sum(len(self._here.get(topic, ())) for topic in topics)
            await asyncio.sleep(BURST)

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
        self._waiting.update(topics)
        try:
            await self._add({topic: self._waiting[topic] for topic in topics}, self._used())
            await self._sleep(topics, min(timeout, SWEEP))
        finally:
            self._waiting -= Counter(topics)

    async def close(self) -> None:
        """Give back what nobody has claimed, and hang up: what is not given back before counts as an attempt."""
        if self._look is not None:
            self._look.cancel()
        for signal in list(self._asleep):
            signal.set()
        with contextlib.suppress(Exception):  # of the driver: then the broker gives all of it to others
            async with asyncio.timeout(self._address.timeout):
                await self._consumers.begin_none()
                await self._rest(list(self._sources), CALM, PROMPT)
                await self._consumers.end_all()
        self._consumers.closed = True
        left = [each for waiting in self._here.values() for each in waiting]
        self._here.clear()
        if left:
            self.do(self._endings.send_round(left))
        await self._finish()
        await self._line.close()
        await self._finish()  # they are told so

    async def _rest(self, topics: Sequence[str], quiet: float, patience: float) -> None:
        """Wait until all consumers of these topics are full, or quiet for so long.

        The broker takes some milliseconds to end a consumer, and counts what it sends to it meanwhile as lost.
        """
        until = time.monotonic() + patience
        while (now := time.monotonic()) < until:
            used, sources = self._used(), [self._sources[topic] for topic in topics if topic in self._sources]
            if not any(each.free(used) and max(each.came, each.ended) > now - quiet for each in sources):
                break
            await asyncio.sleep(CALM / 2)

    async def _finish(self) -> None:
        until = time.monotonic() + self._address.timeout
        while self._tasks and (left := until - time.monotonic()) > 0:
            await asyncio.wait(self._tasks, timeout=left)

    def abandon(self) -> None:
        self._consumers.closed = True
        self._line.abandon()

    async def _sleep(self, topics: Sequence[str], timeout: float) -> None:
        signal = AsyncSignal()
        sleeper: Sleeper[str] = Sleeper(signal, topics)
        if self._consumers.closed or any(self._has(topic) for topic in topics) or not self._sleepers.add(sleeper):
            return
        self._asleep.add(signal)
        try:
            await signal.wait(timeout)
        except asyncio.CancelledError:
            if sleeper.woken_by is not None:
                self._sleepers.wake([sleeper.woken_by])
            raise
        finally:
            self._asleep.discard(signal)
            self._sleepers.remove(sleeper)
            now = time.monotonic()
            for topic in topics:
                if topic in self._sources:
                    self._sources[topic].asked = now

    def _arrive(self, topic: str, message: DeliveredMessage, consumer: str | None) -> None:
        assert isinstance(message.delivery, Basic.Deliver | Basic.GetOk)
        now = time.monotonic()
        headers: Mapping[str, Any] = message.header.properties.headers or {}
        delivered = label.read(headers, message.body)
        if delivered is None or delivered.label.topic != topic or message.delivery.delivery_tag is None:
            self.do(self._endings.refuse(topic, message.channel, message))
            return
        self._holdings.time.hear_of(headers, now)
        if topic in self._sources:
            self._sources[topic].came = now
        if delivered.count:
            delivered = replace(delivered, known=self._holdings.losses.known(delivered))
        arrived = Arrived(delivered, message.channel, message.delivery.delivery_tag, now, consumer)
        early = delivered.label.due - self._holdings.time.now()
        if early > TICK or self._consumers.closed:
            self.do(self._endings.send_round([arrived]))
        elif message.channel is self._line.opened:
            self._here.setdefault(topic, deque()).append(arrived)
            self._look_again(SURPLUS)
            if early > 0:
                asyncio.get_running_loop().call_later(early / 1000, self._sleepers.wake, [topic])
            else:
                self._sleepers.wake([topic])

    async def _hold_back(self, ended: Sequence[Arrived]) -> None:
        """Before these are acknowledged: the broker would bring as many more, and nobody may ask for them soon.

        Of consumers that are full. The others may bring some anyway, and what is on its way when they end would count as lost.
        """
        now, quiet = time.monotonic(), []
        for topic in {each.delivered.label.topic for each in ended}:
            if (source := self._sources.get(topic)) is not None:
                source.ended = now
                if source.asked < now - QUIET and any(each.consumer in source.rooms for each in ended):
                    quiet.append(topic)
        for topic in set(quiet).difference(self._sleepers.topics()) if quiet else ():
            with contextlib.suppress(Exception):  # of the driver: then the broker gives all of it to others
                await self._end_full(topic, ended)
        await self._consumers.have_ended([each.consumer for each in ended])

    async def _end_full(self, topic: str, ended: Sequence[Arrived]) -> None:
        await self._consumers.end_full(topic, lambda: None if self._is_asked(topic) else self._used(ended))

    def _is_asked(self, topic: str) -> bool:
        """Whether somebody waits for it, or did a moment ago."""
        source = self._sources.get(topic)
        return topic in self._sleepers.topics() or (source is not None and source.asked >= time.monotonic() - QUIET)

    def do(self, part: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Meanwhile, and to its end if that may be."""
        task = asyncio.get_running_loop().create_task(part)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not is_foreseen(error):
            _log.error("What goes on meanwhile has ended with an error: %r", error, exc_info=error)

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
        for topic in {*self._sources, *self._here}:  # a message may come after the receiving of its topic was ended
            if topic in wanted and self._has_surplus(topic, now):
                self._sleepers.wake([topic])  # whoever was woken for it has not come
            elif topic not in self._stopping and self._is_unwanted(topic, now):
                self.do(self._stop(topic))
        if self._sources or any(self._here.values()):
            self._look_again(SURPLUS if any(self._here.values()) else IDLE)
        if self._sources:
            self._look_at_one(now)

    def _look_at_one(self, now: float) -> None:
        """By turns: whether messages wait of a topic that has brought none for a while."""
        topic = next(iter(self._sources))
        source = self._sources[topic] = self._sources.pop(topic)
        if source.came <= now - IDLE and self._consumers.free(topic, self._used()) == sum(source.rooms.values()):
            self.do(self._try_again(topic, source))

    async def _try_again(self, topic: str, source: ReceivedTopic) -> None:
        """A queue that somebody has removed and made again does not always tell its consumers."""
        if await self._topics.count(topic) and self._sources.get(topic) is source:
            await self._consumers.end(topic)
            await self._consumers.add(topic, 1, {})

    def _has_surplus(self, topic: str, now: float) -> bool:
        return any(each.at <= now - SURPLUS for each in self._here.get(topic, ()))

    def _is_unwanted(self, topic: str, now: float) -> bool:
        """Whether nobody asks for it, or for what it has brought."""
        source = self._sources.get(topic)
        idle = source is not None and source.asked <= now - IDLE
        return (idle or self._has_surplus(topic, now)) and topic not in self._sleepers.topics()

    async def _stop(self, topic: str) -> None:
        self._stopping.add(topic)
        try:
            if self._here.get(topic) and await self._topics.are_blocked():
                return  # nothing can be given back now, and here it can be claimed
            await self._rest([topic], SURPLUS, FILLING)
            if self._is_unwanted(topic, time.monotonic()):
                await self._consumers.end(topic)
                self._sleepers.wake({topic}.intersection(self._sleepers.topics()))  # of those who came meanwhile
                await self._consumers.have_come()  # or what is given back may go to a consumer that is ending, and be lost
                await self._endings.send_round(list(self._here.pop(topic, ())))
        finally:
            self._stopping.discard(topic)

    def _on_lost(self, channel: AbstractChannel) -> None:
        for topic, waiting in self._here.items():
            for each in waiting:
                if each.channel is channel:
                    self._holdings.losses.note(each.delivered)
            self._here[topic] = deque(each for each in waiting if each.channel is not channel)
        self._consumers.lost(channel)
        self._wake_all()

    def _wake_all(self) -> None:
        for signal in list(self._asleep):
            signal.set()
