"""What an operator should know of a broker: asked over AMQP, and through the management API where the URL names it."""

from collections.abc import Callable, Iterator, Sequence

from bide.engines.base import Finding
from bide.engines.rabbitmq.aio.line import AsyncBrokerLine
from bide.engines.rabbitmq.doctor import backlog, broker, topology
from bide.engines.rabbitmq.doctor.repair import done_apart
from bide.engines.rabbitmq.doctor.seen import BrokerSeen, seen
from bide.engines.rabbitmq.ladder import QueueNames
from bide.engines.rabbitmq.location import Address
from bide.errors import BideError, ConfigError

_CHECKS: Sequence[Callable[[BrokerSeen], Iterator[Finding]]] = (
    broker.server,
    broker.management,
    broker.nodes,
    broker.alarms,
    broker.rights,
    broker.flags,
    broker.dead_lettering,
    broker.after_failures,
    broker.clock,
    broker.consumer_timeout,
    topology.policies,
    topology.layout,
    topology.arguments,
    topology.bindings,
    topology.silent,
    topology.unknown_topics,
    topology.replicas,
    topology.leaders,
    backlog.waiting,
    backlog.held,
    backlog.lost,
    backlog.topics,
    backlog.overdue,
)


def examine(address: Address, names: QueueNames) -> list[Finding]:
    """Asks the broker, for about eight seconds. Nothing is made that stays."""
    return done_apart(lambda: _examined(address, names))


async def _examined(address: Address, names: QueueNames) -> list[Finding]:
    findings = [Finding("queue", f"{address.shown}, namespace {address.namespace}")]
    line = AsyncBrokerLine(address, confirms=True)
    try:
        found = await seen(address, names, line)
    except BideError as error:
        advice = "change the URL, or the user's rights on the broker" if isinstance(error, ConfigError) else "start the broker"
        return [*findings, Finding("state", str(error), "bad", advice)]
    finally:
        await line.close()
    return [*findings, *(finding for check in _CHECKS for finding in check(found))]
