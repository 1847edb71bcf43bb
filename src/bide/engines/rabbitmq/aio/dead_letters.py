"""Dead letters, and messages that have led nowhere: each kind is in a queue of its own, which is walked from its head."""

import asyncio
import bisect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from aiormq import exceptions as theirs
from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.commands import Basic

from bide.engines.base import Scanned, Swept
from bide.engines.rabbitmq import label
from bide.engines.rabbitmq.aio.ends import STRANGE
from bide.engines.rabbitmq.aio.line import AsyncBrokerLine
from bide.engines.rabbitmq.aio.send import AsyncSender
from bide.engines.rabbitmq.aio.topology import AsyncTopicQueues
from bide.engines.rabbitmq.failures import is_astray, told
from bide.engines.rabbitmq.label import Label, LabelledDelivery
from bide.engines.rabbitmq.ladder import QueueNames
from bide.engines.rabbitmq.location import Address
from bide.errors import BadOption, BideError
from bide.ids import sequence
from bide.logs import Log

LONGEST = 60.0  # seconds to wait for another walk
PAUSE = 0.1  # seconds between two tries
BACK = 1.0  # seconds for the broker to put back what was taken
LOOK = 0.005
TOPIC = "lost"  # of the dead letters that others have sent
LOST_PAUSE = 5.0  # seconds between two looks
MOST = 1_000  # messages in one go


class TakenMessage:
    """A message that was taken from a queue, to be acknowledged or left where it was."""

    def __init__(self, message: DeliveredMessage) -> None:
        assert isinstance(message.delivery, Basic.GetOk)
        self.tag: int = message.delivery.delivery_tag or 0
        self.left: int = message.delivery.message_count or 0  # in the queue behind it
        self.body: bytes = message.body
        self.delivered: LabelledDelivery | None = label.read(message.header.properties.headers, message.body)


class Walk:
    """Along one queue, by one process at a time: what another one has taken would be missed."""

    def __init__(self, channel: AbstractChannel, address: Address, queue: str) -> None:
        self._channel = channel
        self._address = address
        self._queue = queue
        self._open = 0  # messages that are taken and not dropped
        self._left = 0  # in the queue, when the last one was taken

    async def messages(self) -> AsyncIterator[TakenMessage]:
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
            taken = TakenMessage(message)
            self._open, self._left = self._open + 1, taken.left
            yield taken

    async def drop(self, taken: TakenMessage) -> None:
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
async def walk(line: AsyncBrokerLine, address: Address, queue: str) -> AsyncIterator[Walk]:
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


async def _alone(line: AsyncBrokerLine, address: Address, mark: str) -> AbstractChannel:
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


class AsyncDeadLetters:
    def __init__(self, address: Address, names: QueueNames, line: AsyncBrokerLine, sender: AsyncSender) -> None:
        self._address = address
        self._names = names
        self._line = line
        self._sender = sender

    async def scan(self, topic: str, limit: int, after: str | None) -> Scanned:
        """A page, by the time of death and the id. `after`: those of the last one of the page before.

        All are looked at for each page: the broker keeps no order of messages that were taken and put back.
        """
        mark = _read_mark(after) or (-1, "")
        page: list[LabelledDelivery] = []
        async with walk(self._line, self._address, self._names.dead(topic)) as along:
            async for each in along.messages():
                if each.delivered is not None and _place(each.delivered) > mark:
                    bisect.insort(page, each.delivered, key=_place)
                    del page[limit + 1 :]
        stored = [each.label.stored(each.body) for each in page[:limit]]
        return Scanned(stored, _mark(page[limit - 1].label) if len(page) > limit else None)

    async def requeue(self, topic: str, ids: Sequence[str] | None, limit: int, due: Callable[[int], int], now: int) -> Swept:
        """`due` tells when number n of them is due."""

        async def revive(number: int, delivered: LabelledDelivery) -> None:
            await self._sender.send_all([(delivered.label.revived(due(number)), delivered.body)], now)

        return await self._sweep(topic, ids, limit, revive, revives=True)

    async def purge(self, topic: str, ids: Sequence[str] | None, limit: int) -> Swept:
        async def drop(number: int, delivered: LabelledDelivery) -> None:
            """It is acknowledged, and that is all."""

        return await self._sweep(topic, ids, limit, drop)

    async def _sweep(
        self,
        topic: str,
        ids: Sequence[str] | None,
        limit: int,
        do: Callable[[int, LabelledDelivery], Awaitable[None]],
        *,
        revives: bool = False,
    ) -> Swept:
        """`revives`: what somebody else has put there stays, since it is no message of bide's."""
        wanted = None if ids is None else set(ids)
        count = 0
        async with walk(self._line, self._address, self._names.dead(topic)) as along:
            async for each in along.messages():
                if each.delivered is None and (wanted is not None or revives):
                    continue
                if wanted is not None and each.delivered is not None and each.delivered.label.id not in wanted:
                    continue
                if count == limit:
                    return Swept(count, True)
                if each.delivered is not None:
                    await do(count, each.delivered)
                await along.drop(each)
                count += 1
                if wanted is not None and each.delivered is not None:
                    wanted.discard(each.delivered.label.id)
                    if not wanted:
                        break
        return Swept(count, False)


def _place(dead: LabelledDelivery) -> tuple[int, str]:
    return dead.label.died or 0, dead.label.id


def _mark(dead: Label) -> str:
    return f"{dead.died or 0}:{dead.id}"


def _read_mark(text: str | None) -> tuple[int, str] | None:
    if text is None:
        return None
    died, colon, id = text.partition(":")
    if not colon or not died.isdecimal() or not died.isascii() or not id:
        raise BadOption("`after` is not a mark of a page of dead letters: give what the page before has told.")
    return int(died), id


_log = Log("bide.rabbitmq")


class AsyncLost:
    def __init__(
        self,
        address: Address,
        names: QueueNames,
        line: AsyncBrokerLine,
        sender: AsyncSender,
        topics: AsyncTopicQueues,
        dead_for: int,
    ) -> None:
        self._address = address
        self._names = names
        self._line = line
        self._sender = sender
        self._topics = topics
        self._dead_for = dead_for
        self._new_id = sequence()
        self._looked = -LOST_PAUSE

    async def bring_back(self, now: int, *, at_once: bool = False) -> int:
        """Send on what is there, after all that is missing was made again. How many messages."""
        clock = asyncio.get_running_loop().time()
        if not at_once and clock < self._looked + LOST_PAUSE:
            return 0
        self._looked = clock
        if await self._line.is_blocked() or not await self._count():
            return 0
        await self._topics.mend()
        return await self._send_on(now)

    async def _count(self) -> int:
        """How many messages are there. The queue is made again if it was removed."""
        channel = await self._line.another()
        try:
            with told(self._address.shown):
                async with asyncio.timeout(self._address.timeout):
                    found = (await channel.queue_declare(self._names.lost, passive=True)).message_count
                    await channel.close()
        except BideError as error:
            if not is_astray(error):
                raise
            await self._topics.mend()
            return 0
        return found or 0

    async def _send_on(self, now: int) -> int:
        count, failed = 0, set[str]()
        async with walk(self._line, self._address, self._names.lost) as along:
            async for each in along.messages():
                if each.delivered is None:
                    await self._bury(each.body, now)
                    await along.drop(each)
                else:
                    if not count:
                        _log.warning(
                            "Queues or bindings of namespace %s were removed. Messages for which the broker found no queue are "
                            "sent on.",
                            self._address.namespace,
                        )
                    topic = each.delivered.label.topic
                    if topic in failed:
                        continue
                    self._topics.forget(topic)
                    try:
                        await self._sender.send_all([(each.delivered.label, each.delivered.body)], now)
                    except BideError as error:
                        failed.add(topic)
                        _log.warning("Messages of %s can't be sent on now, which is tried again soon: %s", topic, error)
                        continue
                    await along.drop(each)
                    count += 1
                if count == MOST:
                    break
        return count

    async def _bury(self, body: bytes, now: int) -> None:
        """Somebody else has sent it: it is found among the dead letters of a topic of its own."""
        strange = Label(id=self._new_id(), topic=TOPIC, due=now, since=now).buried(now, 0, 0, STRANGE)
        await self._sender.bury(await self._topics.dead(TOPIC), strange, body, self._dead_for)
