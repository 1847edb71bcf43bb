"""Messages that have led nowhere, as when somebody has removed a binding or a queue: they are kept, and sent on from here."""

import asyncio

from bide.engines.rabbitmq.aio.ending import STRANGE
from bide.engines.rabbitmq.aio.line import AsyncLine
from bide.engines.rabbitmq.aio.sending import AsyncSender
from bide.engines.rabbitmq.aio.topics import AsyncTopics
from bide.engines.rabbitmq.aio.walking import walk
from bide.engines.rabbitmq.failures import is_astray, told
from bide.engines.rabbitmq.label import Label
from bide.engines.rabbitmq.ladder import Names
from bide.engines.rabbitmq.location import Address
from bide.errors import BideError
from bide.ids import sequence
from bide.logs import Log

_log = Log("bide.rabbitmq")
TOPIC = "lost"  # of the dead letters that others have sent
PAUSE = 5.0  # seconds between two looks
MOST = 1_000  # messages in one go


class AsyncLost:
    def __init__(
        self, address: Address, names: Names, line: AsyncLine, sender: AsyncSender, topics: AsyncTopics, dead_for: int
    ) -> None:
        self._address = address
        self._names = names
        self._line = line
        self._sender = sender
        self._topics = topics
        self._dead_for = dead_for
        self._new_id = sequence()
        self._looked = -PAUSE

    async def bring_back(self, now: int, *, at_once: bool = False) -> int:
        """Send on what is there, after all that is missing was made again. How many messages."""
        clock = asyncio.get_running_loop().time()
        if not at_once and clock < self._looked + PAUSE:
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
