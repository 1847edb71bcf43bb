"""Asks the broker for its time: messages that expire at once come back with the second in which they did.

Many of them around the end of a second tell the time to the millisecond. That goes on while others work.
"""

import asyncio
import contextlib
import time
import uuid
from typing import Any

from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.commands import Basic

from bide.engines.rabbitmq.aio.line import AsyncBrokerLine
from bide.engines.rabbitmq.broker_time import BrokerTime
from bide.errors import Unavailable
from bide.logs import Log

_log = Log("bide.rabbitmq")
ROUNDS = 4  # each narrows the bounds to about a tenth
PARTS = 10  # of the time in which a second may begin: a message is sent at the end of each
LONGEST = 60.0  # seconds for all rounds; a timeout of the driver closes the channel, and its queues go with the connection
HEAD_START = 0.02  # seconds from planning a round to its first message


class AsyncBrokerClock:
    """For all engines of the process on one broker: one of them asks at a time."""

    def __init__(self, line: AsyncBrokerLine, broker_time: BrokerTime, prefix: str) -> None:
        self._line = line
        self._prefix = prefix
        self._time = broker_time
        self._asking: asyncio.Task[None] | None = None

    async def first(self) -> None:
        """To the second, before the first message is sent; the rest meanwhile."""
        if self._time.begin_asking():
            try:
                async with asyncio.timeout(self._line.patience):
                    await _Conversation(await self._line.another(), self._time, self._prefix).end()
            except Exception as error:  # of the driver, or of a user who may not; the wall clock is believed
                _log.debug("The broker has not told its time: %s", error)
            finally:
                self._time.end_asking()
        self.see_to()

    def see_to(self) -> None:
        """Ask again if that would help."""
        if self._asking is None and self._time.begin_asking():
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self) -> None:
        try:
            with contextlib.suppress(Exception):  # the wall clock is believed meanwhile, and it is asked again
                async with asyncio.timeout(LONGEST):
                    conversation = _Conversation(await self._line.another(), self._time, self._prefix)
                    await conversation.narrow()
                    await conversation.end()
        finally:
            self._time.end_asking()
            self._asking = None


class _Conversation:
    def __init__(self, channel: AbstractChannel, broker_time: BrokerTime, prefix: str) -> None:
        self._channel = channel
        self._prefix = f"{prefix}clock:{uuid.uuid4().hex}"  # of queues that are this connection's alone
        self._time = broker_time
        self._sent: dict[str, float] = {}  # by the id of the message
        self._alarm: str | None = None
        self._consumer = ""
        self._answered = asyncio.Event()
        channel.closing.add_done_callback(lambda _: self._answered.set())

    async def narrow(self) -> None:
        """Send messages all over the time in which the broker's next second may begin."""
        for _ in range(ROUNDS):
            begin, width = self._time.next_second(HEAD_START)
            for part in range(PARTS + 1):
                await asyncio.sleep(max(0.0, begin + width * part / PARTS - time.monotonic()))
                await self._ask()
            await self._answer()
            if not self._time.wanted:
                return

    async def end(self) -> None:
        if not self._sent:
            await self._ask()
        await self._answer()
        await self._channel.basic_cancel(self._consumer)  # or the driver tells of a consumer that was lost
        for each in (f"{self._prefix}:answers", f"{self._prefix}:alarm"):
            await self._channel.queue_delete(each)
        await self._channel.close()

    async def _answer(self) -> None:
        while self._sent:
            if self._channel.is_closed:
                raise Unavailable("The connection was lost before the broker had told its time.")
            self._answered.clear()
            await self._answered.wait()

    async def _ask(self) -> None:
        if self._alarm is None:
            answers, self._alarm = f"{self._prefix}:answers", f"{self._prefix}:alarm"
            await self._channel.queue_declare(answers, exclusive=True)
            arguments: dict[str, Any] = {
                "x-message-ttl": 0,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": answers,
            }
            await self._channel.queue_declare(self._alarm, exclusive=True, arguments=arguments)
            self._consumer = (await self._channel.basic_consume(answers, self._hear, no_ack=True)).consumer_tag or ""
        id = str(len(self._sent)) + str(time.monotonic_ns())
        self._sent[id] = time.monotonic()
        await self._channel.basic_publish(b"", routing_key=self._alarm, properties=Basic.Properties(message_id=id))

    async def _hear(self, message: DeliveredMessage) -> None:
        sent = self._sent.pop(message.header.properties.message_id or "", None)
        if sent is not None:
            self._time.hear_of(message.header.properties.headers or {}, time.monotonic(), sent)
        if not self._sent:
            self._answered.set()
