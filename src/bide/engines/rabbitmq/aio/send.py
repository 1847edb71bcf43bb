"""Publishes messages, and waits until the broker has them safely."""

import asyncio
import time
from collections.abc import Sequence
from typing import cast

from aiormq import Channel
from aiormq.abc import AbstractChannel
from msgspec.structs import replace
from pamqp.commands import Basic

from bide.engines.rabbitmq import label
from bide.engines.rabbitmq.aio.line import AsyncBrokerLine, blocks
from bide.engines.rabbitmq.aio.topology import AsyncTopicQueues
from bide.engines.rabbitmq.failures import is_astray, size_limit, told
from bide.engines.rabbitmq.label import HEADER, Label
from bide.engines.rabbitmq.ladder import QueueNames, routing_key
from bide.engines.rabbitmq.location import Address
from bide.errors import BadOption, BideError, OutcomeUnknown, QueueFull, TooLarge

DURABLE = 2  # delivery mode
BLINK = 0.001  # seconds
SHORT = 1_000  # characters of an error, if there is no more room
LARGE = 16_384  # bytes: such a body has left this process before the next message is written
KNOWN = 300.0  # seconds until the broker is asked again for its largest message, which somebody may have changed


class AsyncSender:
    def __init__(self, address: Address, names: QueueNames, line: AsyncBrokerLine, topics: AsyncTopicQueues) -> None:
        self._address = address
        self._names = names
        self._line = line
        self._topics = topics
        self._most = 0  # bytes of a message, since the broker has refused a larger one
        self._told_at = float("-inf")  # by time.monotonic(): when it said so

    def check(self, body: bytes) -> None:
        """Raises TooLarge for what the broker is known to refuse: then it closes the channel, and what became of all others
        that were sent on it is not known.
        """
        if len(body) > self._most and time.monotonic() < self._told_at + KNOWN:
            raise TooLarge(
                f"The broker takes messages of at most {self._most:,} bytes (max_message_size), and this one has {len(body):,}."
            )

    async def send(self, messages: Sequence[tuple[Label, bytes]], now: int) -> list[BideError | None]:
        """Each to its queue, or into the ladder if it is due later. Answers what became of each."""
        began = time.monotonic()
        written = [(label.written(each), each, body) for each, body in messages]
        if await self._line.is_blocked():
            await self._unblocked(await self._line.channel())
        if self._topics.torn:
            await self._topics.mend()
        await self._topics.see_to(*{each.topic for each, _ in messages})
        channel = await self._line.channel()
        await self._unblocked(channel)
        now += int((time.monotonic() - began) * 1000)
        found = await asyncio.gather(
            *(self._send(channel, text, each, body, each.due - now) for text, each, body in written), return_exceptions=True
        )
        failed = [each for each in found if isinstance(each, BaseException)]
        for error in failed:
            if not isinstance(error, BideError):
                raise error
        if any(isinstance(each, OutcomeUnknown) for each in failed) and not await blocks(channel, BLINK):
            await self._line.drop(channel)  # one that the broker has blocked is kept, since it knows that
        return [each if isinstance(each, BideError) else None for each in found]

    async def send_all(self, messages: Sequence[tuple[Label, bytes]], now: int) -> None:
        """The same, when all of it must have been sent."""
        for error in await self.send(messages, now):
            if error is not None:
                raise error

    async def bury(self, queue: str, dead: Label, body: bytes, keep: int) -> None:
        """Into a queue of dead letters, to be kept for so many milliseconds."""
        try:
            text = label.written(dead)
        except BadOption:  # control characters take six bytes each
            text = label.written(replace(dead, error=(dead.error or "")[:SHORT]))
        channel = await self._line.channel()
        await self._publish(channel, "", queue, text, dead.id, body, expiration=str(keep))

    async def send_by(self, exchange: str, key: str, each: Label, body: bytes) -> None:
        """Wherever this key leads."""
        await self._publish(await self._line.channel(), exchange, key, label.written(each), each.id, body)

    async def _send(self, channel: AbstractChannel, text: str, each: Label, body: bytes, delay: int) -> None:
        try:
            if delay > 0:
                await self._publish(channel, self._names.enter, routing_key(delay, each.topic), text, each.id, body)
            else:
                await self._publish(channel, "", self._names.topic(each.topic), text, each.id, body)
        except BideError as error:
            self._topics.forget(each.topic)
            self._topics.torn = self._topics.torn or (delay > 0 and is_astray(error))
            raise

    async def _publish(
        self, channel: AbstractChannel, exchange: str, key: str, text: str, id: str, body: bytes, expiration: str | None = None
    ) -> None:
        self.check(body)
        properties = Basic.Properties(headers={HEADER: text}, delivery_mode=DURABLE, message_id=id, expiration=expiration)
        try:
            with told(self._address.shown, acts=True):
                await cast(Channel, channel).basic_publish(
                    body,
                    exchange=exchange,
                    routing_key=key,
                    properties=properties,
                    mandatory=True,
                    timeout=self._address.timeout,
                    wait=len(body) > LARGE,
                )
        except BideError as error:
            most = size_limit(error)
            if most is not None:
                self._most, self._told_at = most, time.monotonic()
                self.check(body)
            raise

    async def _unblocked(self, channel: AbstractChannel) -> None:
        """A broker whose memory or disk is full takes nothing more until it has room."""
        if await blocks(channel, self._address.timeout):
            raise QueueFull(
                f"{self._address.shown} takes no messages for now, as its memory or disk is full: nothing was sent. It still "
                "delivers, so let receivers go on, or give it room."
            )
