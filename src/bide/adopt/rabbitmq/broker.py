"""The broker of the old system: one channel that gets and takes, and one that gives back. A thread keeps both alive."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import aiormq.exceptions as theirs
from aiormq.abc import AbstractChannel
from pamqp.commands import Basic
from pamqp.exceptions import PAMQPException

from bide.adopt.rabbitmq.notebook import Letter
from bide.engines.base import Settings
from bide.engines.rabbitmq.aio.line import AsyncBrokerLine
from bide.engines.rabbitmq.failures import told
from bide.engines.rabbitmq.location import read
from bide.errors import ConfigError, EngineError, Unavailable

T = TypeVar("T")


class Broker:
    """All verbs raise a BideError. When the channel is lost, the broker gives all that was not taken to the queue again."""

    def __init__(self, url: str, queue: str) -> None:
        self._address = read(Settings(url=url))
        self.shown: str = self._address.shown
        self._queue = queue
        self._lines = [AsyncBrokerLine(self._address, confirms=confirms) for confirms in (False, True)]
        self._channel: AbstractChannel | None = None
        self._aside = 0  # messages that were got, and neither taken nor put back
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bide-adopt", daemon=True)
        self._thread.start()

    def count(self) -> int:
        """How many messages are in the queue, and in nobody's hands."""
        return self._do(self._count)

    def get(self, limit: int) -> list[Any]:
        """The next messages. The broker keeps them aside, until they are taken or the connection ends."""
        return self._do(lambda: self._get(limit))

    def take(self, tags: Sequence[int]) -> None:
        """Let the broker forget these messages, all or none. After an error, nobody knows."""
        self._do(lambda: self._end(tags, forget=True))

    def put_back(self, tags: Sequence[int]) -> None:
        """Let messages that were got be in the queue again. One whose time is over is dead-lettered at once."""
        self._do(lambda: self._end(tags, forget=False))

    def publish(self, letters: Sequence[tuple[Letter, int]], sent: Callable[[Letter], object]) -> None:
        """Send messages as they were sent before, each with the ms that it still has to wait. `sent` is told of each."""
        self._do(lambda: self._publish(letters, sent))

    def close(self) -> None:
        try:
            for line in self._lines:
                asyncio.run_coroutine_threadsafe(line.close(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async def guarded() -> T:
            with told(self.shown):
                return await work()

        return asyncio.run_coroutine_threadsafe(guarded(), self._loop).result()

    async def _own(self) -> AbstractChannel:
        """The channel of this run. Once it is lost, its messages are no longer ours: the run ends, and another one resumes."""
        if self._channel is None:
            self._channel = await self._lines[0].channel()
            await self._channel.tx_select()
        elif self._channel.is_closed:
            raise Unavailable(f"{self.shown}: the connection was lost. Run the command again: it goes on.")
        return self._channel

    async def _count(self) -> int:
        channel = await (await self._own()).connection.channel(publisher_confirms=False)
        try:
            declared = await channel.queue_declare(self._queue, passive=True)
        except theirs.ChannelNotFoundEntity:
            raise ConfigError(f"{self.shown} has no queue {self._queue}: check its name and the virtual host.") from None
        await channel.close()
        return declared.message_count or 0

    async def _get(self, limit: int) -> list[Any]:
        channel = await self._own()
        found: list[Any] = []
        while len(found) < limit:
            try:
                delivered = await channel.basic_get(self._queue, timeout=self._address.timeout * 6)
            except theirs.InvalidFrameError as error:
                if not isinstance(error.__cause__, PAMQPException):
                    raise
                raise self._undecodable(self._aside + len(found) + 1, error.__cause__) from error
            if isinstance(delivered.delivery, Basic.GetEmpty):
                break
            found.append(delivered)
        self._aside += len(found)
        return found

    def _undecodable(self, place: int, why: PAMQPException) -> EngineError:
        """The driver closes the connection instead of handing such a message on, so it can't be left where it is."""
        return EngineError(
            f"{self.shown}: of the queue {self._queue}, message {place:,} from the head can't be decoded: {why}. "
            "Take it out of the queue, by Get messages in the management UI or with another client, and run the command again: "
            "what was not moved is there as before."
        )

    async def _end(self, tags: Sequence[int], *, forget: bool) -> None:
        channel = await self._own()
        for tag in tags:
            if forget:
                await channel.basic_ack(tag, wait=False)
            else:
                await channel.basic_nack(tag, requeue=True, wait=False)
        await channel.tx_commit(timeout=self._address.timeout * 6)
        self._aside -= len(tags)

    async def _publish(self, letters: Sequence[tuple[Letter, int]], sent: Callable[[Letter], object]) -> None:
        channel = await self._lines[1].channel()
        for each, left in letters:
            properties = Basic.Properties(
                headers=each.headers or None,
                expiration=str(left),
                message_id=each.message_id,
                content_type=each.content_type,
                content_encoding=each.content_encoding,
                correlation_id=each.correlation_id,
                message_type=each.kind,
                delivery_mode=2,
            )
            await channel.basic_publish(
                each.body, exchange=each.exchange, routing_key=each.routing_key, properties=properties, mandatory=True
            )
            sent(each)
