"""Tries what a broker does not tell: the user's rights, whether it loses messages, and when it tries again to pass one on.

Everything is made under a name that is used once, and is gone at the end: a queue and an exchange that end with the connection,
and a queue like those of the ladder, which the broker removes after a minute if nobody else does.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import NamedTuple

from aiormq import exceptions as theirs
from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.commands import Basic

from bide.engines.rabbitmq.aio.line import AsyncBrokerLine, blocks
from bide.engines.rabbitmq.aio.topology import BETWEEN, PROBE_MS, TRIES
from bide.engines.rabbitmq.failures import translated
from bide.engines.rabbitmq.ladder import LadderStep, QueueNames
from bide.engines.rabbitmq.location import Address
from bide.errors import BideError

SOON = 7.0  # seconds: a broker that is set as docs/rabbitmq.md says tries again after 5
PAUSE = 0.02  # seconds between two looks into a queue
DURABLE = 2  # delivery mode


class Probed(NamedTuple):
    """What was found out. None: it could not be tried."""

    refused: tuple[str, ...] = ()  # what the user may not do, as the broker says it
    blocked: bool = False  # the broker takes no messages for now
    passed_on: bool | None = None  # a message that expired came to the queue that it was meant for
    behind: float | None = None  # seconds that the broker's clock is behind ours; negative when it is ahead
    unsure: float = 0.0  # seconds that `behind` may be off
    at_least_once: bool | None = None
    again: float | None = None  # seconds after which it tried again; none: later than SOON
    trouble: str = ""  # why it could not be tried


class Probe:
    def __init__(self, address: Address, names: QueueNames, line: AsyncBrokerLine) -> None:
        self._address = address
        self._line = line
        self._once = once = uuid.uuid4().hex
        self._target = f"{names.prefix}doctor:{once}"  # a queue, and an exchange
        self._waiting = names.wait(LadderStep(f"probe.{once}", "", "", PROBE_MS))
        # Dead letters go to the target by the default exchange, so that removing it leaves them nowhere to go.
        self._arguments = {
            **names.arguments(PROBE_MS, ""),
            "x-dead-letter-routing-key": self._target,
            "x-max-length": 1,
            "x-expires": 60_000,
        }

    async def found(self) -> Probed:
        try:
            async with asyncio.timeout(4 * self._address.timeout):
                refused = await self._refused()
            return Probed(refused) if refused else await self._tried()
        except (BideError, theirs.AMQPError, OSError, RuntimeError, TimeoutError) as error:
            if await self._is_blocked():
                return Probed(blocked=True)
            return Probed(trouble=str(error if isinstance(error, BideError) else translated(error, self._address.shown)))
        finally:
            await self._tidy()

    async def _refused(self) -> tuple[str, ...]:
        """Try each right once: for names of the namespace, and to send to a queue."""
        own = {"routing_key": "nowhere", "mandatory": True, "timeout": self._address.timeout}
        trials: tuple[Callable[[AbstractChannel], Awaitable[object]], ...] = (
            lambda channel: channel.queue_declare(self._target, exclusive=True),
            lambda channel: channel.exchange_declare(self._target, exchange_type="topic", auto_delete=True),
            lambda channel: channel.queue_bind(self._target, self._target, "somewhere"),
            lambda channel: channel.basic_publish(b"", exchange=self._target, **own),  # type: ignore[arg-type]
            lambda channel: channel.basic_publish(b"", exchange="", **own),  # type: ignore[arg-type]
            lambda channel: channel.basic_get(self._target, no_ack=True),
            lambda channel: channel.queue_declare(self._waiting, durable=True, arguments=self._arguments),
        )
        refused = dict[str, None]()
        for trial in trials:
            channel = await self._line.another()
            try:
                await trial(channel)
            except theirs.ChannelAccessRefused as error:
                refused[_right(error).replace(self._once, "…")] = None
            except (theirs.PublishError, theirs.ChannelNotFoundEntity):
                pass  # returned, as it leads nowhere; not found, as it could not be made before
            finally:
                await _close(channel)
        return tuple(refused)

    async def _tried(self) -> Probed:
        channel = await self._line.another()
        wait = self._address.timeout
        sent = time.time()
        first_kept = await self._send(channel)
        arrived = await self._arrived(channel, wait)
        behind, unsure = _behind(arrived, sent, time.time())
        await channel.queue_delete(self._target)
        kept = 0
        for _ in range(TRIES):
            kept += await self._send(channel)
            await asyncio.sleep(BETWEEN)
        at_least_once = first_kept and kept < TRIES
        began, again = time.monotonic(), None
        if at_least_once:
            await channel.queue_declare(self._target, exclusive=True)
            if await self._arrived(channel, SOON) is not None:
                again = time.monotonic() - began
        return Probed((), False, arrived is not None, behind, unsure, at_least_once, again)

    async def _send(self, channel: AbstractChannel) -> bool:
        """Whether the broker took the message."""
        properties = Basic.Properties(delivery_mode=DURABLE)
        try:
            await channel.basic_publish(
                b"", routing_key=self._waiting, properties=properties, mandatory=True, timeout=self._address.timeout
            )
        except theirs.DeliveryError:
            return False
        return True

    async def _arrived(self, channel: AbstractChannel, patience: float) -> DeliveredMessage | None:
        give_up = time.monotonic() + patience
        while time.monotonic() < give_up:
            found = await channel.basic_get(self._target, no_ack=True)
            if isinstance(found.delivery, Basic.GetOk):
                return found
            await asyncio.sleep(PAUSE)
        return None

    async def _is_blocked(self) -> bool:
        """Whether the broker has told this connection to wait, as it does when its memory or disk is full."""
        with contextlib.suppress(Exception):
            channel = self._line.opened
            return channel is not None and await blocks(channel, 1.0)
        return False

    async def _tidy(self) -> None:
        """With a connection of its own: the other one may be told to wait."""
        line = AsyncBrokerLine(self._address, confirms=False)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self._address.timeout):
                channel = await line.channel()
                await channel.queue_delete(self._waiting)
        await line.close()


def _behind(arrived: DeliveredMessage | None, sent: float, now: float) -> tuple[float | None, float]:
    """How far the broker's clock is behind ours, and how far that may be off: it notes in whole seconds what expired."""
    deaths = (arrived.header.properties.headers or {}).get("x-death") if arrived is not None else None
    noted = deaths[0].get("time") if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else None
    if not isinstance(noted, datetime):
        return None, 0.0
    middle = noted.timestamp() + 0.5
    return (sent + now) / 2 - middle, 0.5 + (now - sent) / 2


def _right(error: BaseException) -> str:
    """What the broker says of a right, without its codes."""
    return str(error).partition("ACCESS_REFUSED - ")[2].strip('"') or "access refused"


async def _close(channel: AbstractChannel) -> None:
    if not channel.is_closed:
        await channel.close()
