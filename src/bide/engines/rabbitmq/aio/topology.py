"""Makes the exchanges, queues and bindings of a namespace, and finds out whether the broker keeps its word."""

import asyncio
import re
import uuid
from collections.abc import Mapping
from typing import Any

from aiormq import exceptions as theirs
from aiormq.abc import AbstractChannel
from pamqp.commands import Basic

from bide.engines.rabbitmq.aio.line import blocks
from bide.engines.rabbitmq.ladder import Names, Step
from bide.errors import SchemaMismatch

LIMITS = (4, 0)  # versions since this one drop what was delivered twenty times, unless told otherwise
BETWEEN = 0.05  # seconds between two messages of the probe: the broker counts what it holds a moment later
TRIES = 4  # messages of the probe; with at-least-once the third is refused
PROBE_MS = 1
AT_MOST_ONCE = (
    "The broker does not dead-letter at least once, so messages could be lost on their way, and the queue is not used. Run "
    "`rabbitmqctl enable_feature_flag stream_queue`, and see that no policy sets overflow, dead-letter-strategy or "
    "max-length for queues whose names begin with the namespace; `bide doctor` tells more."
)


def without_limit(channel: AbstractChannel) -> Mapping[str, Any]:
    """Arguments of a queue from which nothing is dropped for having been delivered often: bide counts attempts."""
    return {"x-delivery-limit": -1} if version(channel) >= LIMITS else {}


def version(channel: AbstractChannel) -> tuple[int, int]:
    """The broker's."""
    found = re.match(r"(\d+)\.(\d+)", str(channel.connection.server_properties.get("version")))
    return (0, 0) if found is None else (int(found[1]), int(found[2]))


async def is_made(channel: AbstractChannel, names: Names) -> bool:
    """Whether all of it is there. The channel is closed when not."""
    try:
        await channel.exchange_declare(names.made, passive=True)
    except theirs.ChannelNotFoundEntity:
        return False
    return True


async def make(channel: AbstractChannel, names: Names) -> None:
    """Make what is missing, and say so at the end."""
    for name, kind, arguments in names.exchanges():
        await channel.exchange_declare(name, exchange_type=kind, durable=True, arguments=dict(arguments))
    for name, arguments in names.queues():
        more = without_limit(channel) if name == names.lost else {}
        await channel.queue_declare(name, durable=True, arguments={**arguments, **more})
    await channel.queue_bind(names.lost, names.lost)
    for exchange, pattern, queue in names.bindings():
        await channel.queue_bind(queue, exchange, pattern, nowait=True)
    for exchange, pattern in names.arrivals():
        await channel.exchange_bind(names.topics, exchange, pattern, nowait=True)
    await channel.exchange_declare(names.made, exchange_type="fanout", durable=True)


async def probe(channel: AbstractChannel, names: Names, patience: float) -> bool:
    """Refuse a broker that would lose messages: what a queue declares is not always what it does. False: it takes none now.

    A queue with the arguments of the ladder, and room for one message, dead-letters into an exchange that leads nowhere. The
    broker has to keep the first message, so that it refuses others; one that only says at-least-once drops them all.
    """
    name = names.wait(Step(f"probe.{uuid.uuid4().hex}", "", "", PROBE_MS))
    arguments = {**names.arguments(PROBE_MS, names.made), "x-max-length": 1, "x-expires": 60_000}
    await channel.queue_declare(name, durable=True, arguments=arguments)
    try:
        for _ in range(TRIES):
            try:
                async with asyncio.timeout(patience):
                    await channel.basic_publish(b"", routing_key=name, properties=Basic.Properties(delivery_mode=2))
            except theirs.DeliveryError:
                return True
            except TimeoutError:
                if channel.connection.is_opened and await blocks(channel):  # the queue goes by itself, in a minute
                    return False
                raise
            await asyncio.sleep(BETWEEN)
        raise SchemaMismatch(AT_MOST_ONCE)
    finally:
        if not channel.is_closed and not await blocks(channel):
            await channel.queue_delete(name)
