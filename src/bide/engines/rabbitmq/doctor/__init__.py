"""What an operator should know of a broker: asked over AMQP, and through the management API where the URL names it."""

from collections.abc import Mapping

from bide.engines.base import Finding
from bide.engines.findings import Check, run, unreached
from bide.engines.rabbitmq.aio.line import AsyncBrokerLine
from bide.engines.rabbitmq.doctor import backlog, broker, topology
from bide.engines.rabbitmq.doctor.repair import done_apart
from bide.engines.rabbitmq.doctor.seen import BrokerSeen, seen
from bide.engines.rabbitmq.ladder import QueueNames
from bide.engines.rabbitmq.location import Address
from bide.errors import BideError

_CHECKS: Mapping[str, Check[BrokerSeen]] = {
    "broker": broker.server,
    "management": broker.management,
    "nodes": broker.nodes,
    "alarms": broker.alarms,
    "rights": broker.rights,
    "stream_queue": broker.flags,
    "dead-lettering": broker.dead_lettering,
    "after a restart": broker.after_failures,
    "clock": broker.clock,
    "consumer_timeout": broker.consumer_timeout,
    "policies": topology.policies,
    "layout": topology.layout,
    "arguments": topology.arguments,
    "bindings": topology.bindings,
    "silent queues": topology.silent,
    "topics without an entry": topology.unknown_topics,
    "replicas": topology.replicas,
    "leaders": topology.leaders,
    "waiting": backlog.waiting,
    "held": backlog.held,
    "lost": backlog.lost,
    "topics": backlog.topics,
    "oldest overdue": backlog.overdue,
}


def examine(address: Address, names: QueueNames) -> list[Finding]:
    """Asks the broker, for about eight seconds. Nothing is made that stays."""
    return done_apart(lambda: _examined(address, names))


async def _examined(address: Address, names: QueueNames) -> list[Finding]:
    findings = [Finding("queue", f"{address.shown}, namespace {address.namespace}")]
    line = AsyncBrokerLine(address, confirms=True)
    try:
        found = await seen(address, names, line)
    except BideError as error:
        return [*findings, unreached(error, "broker")]
    finally:
        await line.close()
    return [*findings, *run(_CHECKS, found)]
