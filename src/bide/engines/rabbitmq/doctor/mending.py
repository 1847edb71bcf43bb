"""Makes again what somebody has removed, so that no message goes astray."""

import asyncio

from pamqp.commands import Basic

from bide.core.formats import plural
from bide.engines.base import Finding
from bide.engines.rabbitmq.aio import topology
from bide.engines.rabbitmq.aio.line import AsyncLine
from bide.engines.rabbitmq.doctor.apart import done_apart
from bide.engines.rabbitmq.doctor.look import Look
from bide.engines.rabbitmq.doctor.management import Management, Refused
from bide.engines.rabbitmq.failures import told
from bide.engines.rabbitmq.ladder import Names
from bide.engines.rabbitmq.location import Address

MAKING = 60.0  # seconds
DURABLE = 2  # delivery mode


def mend(address: Address, names: Names) -> list[Finding]:
    """What was made. A namespace that is not there is left so."""
    return done_apart(lambda: _mended(address, names))


async def _mended(address: Address, names: Names) -> list[Finding]:
    line = AsyncLine(address, confirms=True)
    try:
        look = Look(address, line)
        exchanges = [name for name in (names.made, *(name for name, *_ in names.exchanges())) if not await look.exchange(name)]
        queues = [name for name, found in (await look.queues(name for name, _ in names.queues())).items() if found is None]
        if len(exchanges) == 1 + len(list(names.exchanges())) and len(queues) == len(list(names.queues())):
            return []
        channel = await line.another()
        with told(address.shown, acts=True):
            async with asyncio.timeout(max(MAKING, address.timeout)):
                await topology.make(channel, names)  # with all bindings, which can't be asked for
                topics = await look.topics(names)
                unlisted = sorted(set(await asyncio.to_thread(_topics, address, names)) - set(topics))
                for topic in unlisted:
                    properties = Basic.Properties(delivery_mode=DURABLE)
                    await channel.basic_publish(topic.encode(), routing_key=names.index, properties=properties, mandatory=True)
                for topic in {*topics, *unlisted}:
                    if await look.queue(names.topic(topic)) is not None:
                        await channel.queue_bind(names.topic(topic), names.topics, names.to_topic(topic))
    finally:
        await line.close()
    findings = []
    if exchanges or queues:
        made = f"{plural(len(queues), 'queue')} and {plural(len(exchanges), 'exchange')} that were missing"
        findings.append(Finding("mended", f"{made}, and all bindings"))
    if unlisted:
        findings.append(Finding("mended", f"{plural(len(unlisted), 'topic')} listed again: {', '.join(unlisted[:5])}"))
    return findings or [Finding("mended", "no queue was missing; all bindings were made again")]


def _topics(address: Address, names: Names) -> list[str]:
    """Those whose queues the management API finds."""
    if address.management is None:
        return []
    prefix = names.topic("")
    try:
        return [str(each["name"]).removeprefix(prefix) for each in Management(address).queues(prefix)]
    except Refused:
        return []
