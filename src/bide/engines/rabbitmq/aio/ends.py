"""Ends deliveries: what is to come back is copied first, and then the delivery is acknowledged on its channel.

One acknowledgement can stand for many: the broker takes one with `multiple` for all deliveries up to a number. So it may be
sent only where each of them was acknowledged before or is now, also those that this process has not seen.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from aiormq.abc import AbstractChannel, DeliveredMessage
from msgspec.structs import replace
from pamqp.commands import Basic

from bide.engines.base import Ended
from bide.engines.rabbitmq.aio.line import AsyncBrokerLine
from bide.engines.rabbitmq.aio.send import AsyncSender
from bide.engines.rabbitmq.aio.topology import AsyncTopicQueues
from bide.engines.rabbitmq.failures import told
from bide.engines.rabbitmq.holdings import Arrived, Holdings
from bide.engines.rabbitmq.label import DeliveryEnd, Label, LabelledDelivery, unused
from bide.engines.rabbitmq.location import Address
from bide.errors import BideError, OutcomeUnknown, Unavailable
from bide.ids import sequence

MOST = 10_000  # numbers that are remembered beyond one that is missing
AGAIN = 1.0  # seconds after which it is tried again to end what could not be ended
PATIENCE = 4  # timeouts: to end a delivery, the broker may have to answer several times
LOT = 100  # messages that are ended together, when nobody waits for them
LATER = 1_000  # ms after which a message comes again that is held here by another delivery
STRANGE = "It was not sent by bide: only bide can send to the queue of a topic."


class Tags:
    def __init__(self) -> None:
        self._all_to = 0  # each number up to this one was acknowledged
        self._beyond: set[int] = set()
        self._stuck = False  # too many beyond one that is missing: it is not waited for any more

    def acknowledgements(self, tags: Collection[int]) -> Iterator[tuple[int, bool]]:
        """What to send, in this order, for deliveries that were not acknowledged before: numbers, and whether up to them."""
        if self._stuck:
            return ((tag, False) for tag in tags)
        self._beyond.update(tags)
        while self._all_to + 1 in self._beyond:
            self._all_to += 1
            self._beyond.discard(self._all_to)
        if len(self._beyond) > MOST:
            self._stuck = True
            self._beyond.clear()
        return self._joined(tags, self._all_to)

    @staticmethod
    def _joined(tags: Collection[int], all_to: int) -> Iterator[tuple[int, bool]]:
        last = max((tag for tag in tags if tag <= all_to), default=0)  # the broker must hold this very one
        if last:
            yield last, True
        yield from ((tag, False) for tag in tags if tag > last)


T = TypeVar("T")


class Ending(NamedTuple):
    """A delivery, and what is to become of its message."""

    arrived: Arrived
    outcome: DeliveryEnd


class AsyncEndings:
    """For the event loop of its engine; other threads call it by `run`."""

    def __init__(
        self, address: Address, sender: AsyncSender, topics: AsyncTopicQueues, holdings: Holdings, dead_for: int
    ) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None  # of the engine, once it is open
        self._address = address
        self.line: AsyncBrokerLine = AsyncBrokerLine(address, self._on_lost, confirms=False)  # on which deliveries come
        self._sender = sender
        self._topics = topics
        self._holdings = holdings
        self._dead_for = dead_for
        self.on_lost: Callable[[AbstractChannel], None] = lambda channel: None
        self.before: Callable[[Sequence[Arrived]], Awaitable[None]] = _nothing  # acknowledgements
        self._new_id = sequence()
        self._acknowledging = asyncio.Lock()
        self._channel: AbstractChannel | None = None  # the one of these numbers
        self._tags = Tags()

    @property
    def is_gone(self) -> bool:
        """Whether nothing that was delivered here can be ended any more."""
        return self.loop is not None and self.loop.is_closed()

    async def run(self, part: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do this in the loop of these deliveries, which may be another one than the caller's."""
        if self.loop is None or asyncio.get_running_loop() is self.loop:
            return await part()
        asking = part()
        try:
            asked = asyncio.run_coroutine_threadsafe(asking, self.loop)
        except RuntimeError:
            asking.close()
            self.line.abandon()
            raise Unavailable("The event loop that received this message is closed: the broker delivers it again.") from None
        try:
            async with asyncio.timeout(PATIENCE * self._address.timeout):
                return await asyncio.shield(
                    asyncio.wrap_future(asked)
                )  # if it was cancelled, the driver would close the channel
        except TimeoutError:
            raise OutcomeUnknown("The event loop that received this message does not answer: it may be blocked.") from None

    async def end(self, endings: Sequence[Ending]) -> list[Ended | BideError]:
        """What became of each message, or why that is not known."""
        answers: list[Ended | BideError] = [each.outcome.ended for each in endings]
        copies = [place for place, each in enumerate(endings) if each.outcome.label is not None]
        if copies:
            made = await self._copy([endings[place] for place in copies])
            for place, error in zip(copies, made, strict=True):
                if error is not None:
                    answers[place] = error
        done = [place for place, answer in enumerate(answers) if not isinstance(answer, BideError)]
        for place, answer in zip(done, await self._acknowledge([endings[place].arrived for place in done]), strict=True):
            if answer is not None:
                answers[place] = answer
        return answers

    async def see_to(self, endings: Sequence[Ending]) -> None:
        """End what nobody waits for. The broker leaves it here until it is acknowledged, so there is no giving up.

        What may have been copied is not copied again: the broker gives it to others.
        """
        left = list(endings)
        while left:
            answers, tried, left = await self.end(left[:LOT]), left[:LOT], left[LOT:]
            failed = [(each, answer) for each, answer in zip(tried, answers, strict=True) if isinstance(answer, BideError)]
            failed = [(each, answer) for each, answer in failed if not each.arrived.channel.is_closed]
            await self._return([each.arrived for each, answer in failed if isinstance(answer, OutcomeUnknown)])
            again = [each for each, answer in failed if not isinstance(answer, OutcomeUnknown)]
            left += again
            if again:
                await asyncio.sleep(AGAIN)

    async def _return(self, arrived: Sequence[Arrived]) -> None:
        """To the end of its queue. The broker counts this as a delivery that was lost."""
        current = self.line.opened
        for each in arrived:
            if current is not None and each.channel is current:
                self._holdings.losses.note(each.delivered)
                async with self._acknowledging:
                    self._note(current, [each.tag])
                    with contextlib.suppress(Exception):  # of the driver: then the channel is lost, and all of it goes back
                        await current.basic_nack(each.tag, requeue=True, wait=False)

    async def send_round(self, arrived: Sequence[Arrived], delay: int = 0) -> None:
        """Give back what was not begun here, as copies that count no attempt."""
        now = self._holdings.time.now()
        endings = []
        for each in arrived:
            copy = unused(each.delivered)
            if copy.expired(max(copy.due, now)):
                endings.append(Ending(each, DeliveryEnd("expired")))
            else:
                due = max(copy.due, now + delay) if delay else copy.due
                due = due if copy.expires is None else min(due, copy.expires - 1)
                endings.append(Ending(each, DeliveryEnd("scheduled", replace(copy, due=due))))
        await self.see_to(endings)

    async def refuse(self, topic: str, channel: AbstractChannel, message: DeliveredMessage) -> None:
        """Bury what bide has not sent, where people find it."""
        now = self._holdings.time.now()
        delivery = cast(Basic.Deliver, message.delivery)
        strange = Label(id=self._new_id(), topic=topic, due=now, since=now)
        arrived = Arrived(LabelledDelivery(strange, message.body, 0), channel, delivery.delivery_tag or 0, time.monotonic())
        await self.see_to([Ending(arrived, DeliveryEnd("dead", strange.buried(now, 0, 0, STRANGE)))])

    async def acknowledge(self, channel: AbstractChannel, tag: int) -> None:
        """A delivery that was not claimed."""
        await self._send_acknowledgements(channel, [tag])

    def _on_lost(self, channel: AbstractChannel) -> None:
        """The broker gives all that was delivered here to others."""
        self._holdings.drop(channel)
        self.on_lost(channel)

    async def _copy(self, endings: Sequence[Ending]) -> list[BideError | None]:
        """Send what is to come again, and bury what is dead. The reason, of what was not."""
        now = self._holdings.time.now()
        again = [place for place, each in enumerate(endings) if each.outcome.ended != "dead"]
        found: list[BideError | None] = [None] * len(endings)
        messages = [(cast(Label, endings[place].outcome.label), endings[place].arrived.delivered.body) for place in again]
        try:
            for place, error in zip(again, await self._sender.send(messages, now) if messages else (), strict=True):
                found[place] = error
        except BideError as error:
            for place in again:
                found[place] = error
        dead = [place for place, each in enumerate(endings) if each.outcome.ended == "dead"]
        for place, failure in zip(dead, await asyncio.gather(*(self._bury(endings[each]) for each in dead)), strict=True):
            found[place] = failure
        return found

    async def _bury(self, ending: Ending) -> BideError | None:
        dead = cast(Label, ending.outcome.label)
        try:
            queue = await self._topics.dead(dead.topic)
            await self._sender.bury(queue, dead, ending.arrived.delivered.body, self._dead_for)
        except BideError as error:
            self._topics.forget(dead.topic)
            return error
        return None

    async def _acknowledge(self, arrived: Sequence[Arrived]) -> list[BideError | None]:
        """And wait until the broker has taken note of it."""
        current = self.line.opened
        lost = OutcomeUnknown(f"{self._address.shown}: the connection was lost, and the broker delivers it again.")
        found: list[BideError | None] = [None if current is not None and each.channel is current else lost for each in arrived]
        if current is not None and None in found:
            await self.before(arrived)
            try:
                with told(self._address.shown, acts=True):
                    async with asyncio.timeout(self._address.timeout):
                        await self._send_acknowledgements(current, [each.tag for each in arrived if each.channel is current])
                    await current.flow(active=True, timeout=self._address.timeout)
            except BideError as error:
                await self.line.drop(current)
                return [each or error for each in found]
        return found

    async def _send_acknowledgements(self, channel: AbstractChannel, tags: Sequence[int]) -> None:
        async with self._acknowledging:  # one at a time, since none may overtake another one
            for tag, multiple in self._note(channel, tags):
                await channel.basic_ack(tag, multiple, wait=False)

    def _note(self, channel: AbstractChannel, tags: Sequence[int]) -> Iterator[tuple[int, bool]]:
        """What to send for deliveries of a channel that end now."""
        if channel is not self._channel:
            self._channel, self._tags = channel, Tags()
        return self._tags.acknowledgements(tags)


async def _nothing(arrived: Sequence[Arrived]) -> None:
    """Nobody is to be told."""
