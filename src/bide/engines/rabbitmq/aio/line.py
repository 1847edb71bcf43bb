"""A connection to the broker with one channel, made when it is needed and again when it was lost; it writes once a turn."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any, cast

import aiormq
from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory

from bide.engines.base import MAX_BATCH
from bide.engines.rabbitmq.failures import is_refused, told, translated
from bide.engines.rabbitmq.location import Address
from bide.errors import BideError, Unavailable

CLOSED = "The RabbitMQ engine is closed: make a new queue."


class GatheringWriter:
    """In the place of a StreamWriter: all of it that the driver uses."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._beneath = writer
        self._parts: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    @property
    def transport(self) -> asyncio.WriteTransport:
        return self._beneath.transport

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    async def drain(self) -> None:
        self._flush()
        await self._beneath.drain()

    def can_write_eof(self) -> bool:
        return self._beneath.can_write_eof()

    def write_eof(self) -> None:
        self._flush()
        self._beneath.write_eof()

    def close(self) -> None:
        self._flush()
        self._beneath.close()

    def is_closing(self) -> bool:
        return self._beneath.is_closing()

    async def wait_closed(self) -> None:
        await self._beneath.wait_closed()

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            if self._beneath.is_closing():  # the connection was lost meanwhile, which its reader tells
                return
            self._beneath.write(b"".join(parts))


# The driver logs each lost connection, which bide tells by an error: shown only by applications that set up logging.
logging.getLogger("aiormq").addHandler(logging.NullHandler())


class _Transport(TransportFactory):
    """Makes the socket, and remembers it: a loop that is closed can't close its connections any more."""

    def __init__(self, *, tls: bool) -> None:
        self._plain: TransportFactory = TLSTransportFactory() if tls else TCPTransportFactory()
        self._made: asyncio.StreamWriter | None = None

    async def create(self, url: Any, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self._made = await self._plain.create(url, **kwargs)
        return reader, cast(asyncio.StreamWriter, GatheringWriter(self._made))

    def abandon(self) -> None:
        if self._made is not None:
            with contextlib.suppress(OSError):
                self._made.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


class _Connection(aiormq.Connection):
    FRAME_BUFFER_SIZE = MAX_BATCH  # messages of a batch are written one after the other, without a turn of the loop for each


async def blocks(channel: AbstractChannel, patience: float = 0.0) -> bool:
    """Whether the broker has told the connection of this channel to wait, and does so for so long."""
    try:
        async with asyncio.timeout(patience):
            await channel.connection.ready()
    except TimeoutError:
        return True
    return False


class AsyncBrokerLine:
    """`confirms`: for publishing. `on_lost` is called once for each channel that was lost."""

    def __init__(
        self, address: Address, on_lost: Callable[[AbstractChannel], None] = lambda channel: None, *, confirms: bool
    ) -> None:
        self._address = address
        self._on_lost = on_lost
        self._confirms = confirms
        self._lock = asyncio.Lock()
        self.walking: asyncio.Lock = asyncio.Lock()  # one walk at a time
        self.consuming: asyncio.Lock = asyncio.Lock()  # held from setting the prefetch until a consumer has begun with it
        self._transport: _Transport | None = None
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._first = 0  # which broker is tried first
        self._closed = False

    @property
    def patience(self) -> float:
        """Seconds for an answer."""
        return self._address.timeout

    @property
    def opened(self) -> AbstractChannel | None:
        """The channel, if it is open now."""
        return None if self._channel is None or self._channel.is_closed else self._channel

    async def channel(self) -> AbstractChannel:
        """The channel; a new one if there is none that is open."""
        if (channel := self.opened) is not None:
            return channel
        async with self._lock:
            if self._closed:
                raise Unavailable(CLOSED)
            if (channel := self.opened) is None:
                with told(self._address.shown):
                    async with asyncio.timeout(2 * self._address.timeout):
                        channel = await self._new_channel()
                channel.closing.add_done_callback(lambda _, lost=channel: self._on_lost(lost))  # type: ignore[misc]
                self._channel = channel
            return channel

    async def another(self) -> AbstractChannel:
        """One more channel on the same connection, for the caller to close: an error on it leaves the first one as it is."""
        connection = (await self.channel()).connection
        with told(self._address.shown):
            async with asyncio.timeout(self._address.timeout):
                return await connection.channel(publisher_confirms=self._confirms, on_return_raises=True)

    async def is_blocked(self) -> bool:
        """Whether the broker has said that it hears nothing more on this connection for now: its memory or disk is full."""
        return self.opened is not None and await blocks(self.opened)

    async def drop(self, channel: AbstractChannel | None = None) -> None:
        """Leave this connection: the next call makes a new one. With a channel: only if it is still the one of this line."""
        if channel is not None and channel is not self._channel:
            return
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(BideError), told(self._address.shown):
                async with asyncio.timeout(self._address.timeout):
                    await connection.close()

    async def close(self) -> None:
        self._closed = True
        await self.drop()

    def abandon(self) -> None:
        self._closed = True
        if self._transport is not None:
            self._transport.abandon()

    async def _new_channel(self) -> AbstractChannel:
        if self._connection is None or self._connection.is_closed:
            self._connection = await self._connect()
        return await self._connection.channel(publisher_confirms=self._confirms, on_return_raises=True)

    async def _connect(self) -> AbstractConnection:
        """To the first broker of the cluster that lets us in, beginning with the one that did last."""
        urls = self._address.urls
        failure: Exception | None = None
        for turn in range(len(urls)):
            place = (self._first + turn) % len(urls)
            transport = _Transport(tls=urls[place].startswith("amqps"))
            try:
                connection = _Connection(urls[place], transport_factory=transport)
                async with asyncio.timeout(self._address.timeout / len(urls)):
                    await connection.connect()
            except BideError:
                raise
            except TimeoutError as error:  # a broker that stands still, beside which others may not
                failure = error
            except Exception as error:
                failure = error
                if is_refused(error):
                    break
            else:
                self._first, self._transport = place, transport
                return connection
        assert failure is not None
        raise translated(failure, self._address.shown)
