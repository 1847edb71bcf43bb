"""What the doctor has seen of a broker, over AMQP and, where it may, through the management API."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bide.engines.rabbitmq.aio.line import AsyncBrokerLine
from bide.engines.rabbitmq.doctor.look import ApiRefused, BrokerLook, Counts, Management, Missing
from bide.engines.rabbitmq.doctor.probe import Probe, Probed
from bide.engines.rabbitmq.ladder import LadderStep, QueueNames
from bide.engines.rabbitmq.location import Address
from bide.errors import BideError, Unavailable

REPORTED = 6.0  # seconds: queues report their numbers to the management API every 5
LONGEST = 30.0  # seconds
MOST_TOPICS = 1_000  # whose queues are looked at over AMQP


class ToldByApi(NamedTuple):
    """What the management API said. None: this was not answered, and `refused` says why."""

    shown: str = ""  # empty: the URL names no management API
    user: str = ""  # who asked
    nodes: Sequence[Mapping[str, Any]] | None = None
    flags: Mapping[str, str] | None = None  # name: state
    queues: Mapping[str, Mapping[str, Any]] | None = None
    held: Mapping[str, int] | None = None  # messages that have waited to be passed on in two looks, by queue
    bindings: frozenset[tuple[str, str, str]] | None = None  # source, key, destination
    refused: Mapping[str, str] = {}


class Looked(NamedTuple):
    """What was seen over AMQP; the same fields as in Seen."""

    made: bool
    exchanges: Mapping[str, bool]
    queues: Mapping[str, Counts | BideError | None]
    topics: Sequence[str]
    of_topics: Mapping[str, Counts | BideError | None]


class BrokerSeen(NamedTuple):
    address: Address
    names: QueueNames
    broker: Mapping[str, object]  # what it says of itself
    made: bool  # the marker is there
    exchanges: Mapping[str, bool]
    queues: Mapping[str, Counts | BideError | None]  # those of the ladder
    topics: Sequence[str]
    of_topics: Mapping[str, Counts | BideError | None]  # their queues, and those of their dead letters
    probed: Probed
    told: ToldByApi = ToldByApi()

    @property
    def version(self) -> tuple[int, int]:
        first, _, rest = str(self.broker.get("version", "")).partition(".")
        second = rest.partition(".")[0]
        return (int(first), int(second)) if first.isdecimal() and second.isdecimal() else (0, 0)

    @property
    def unused(self) -> bool:
        """Nothing of the namespace is there yet."""
        return not self.made and not any(self.exchanges.values()) and not any(self.queues.values())


async def seen(address: Address, names: QueueNames, line: AsyncBrokerLine) -> BrokerSeen:
    """Asks both ways at once. Raises what the connection raises; the rest may be silent."""
    broker, probing = await BrokerLook(address, line).told_by_broker(), AsyncBrokerLine(address, confirms=True)
    asked = asyncio.create_task(asyncio.to_thread(told, address, names))
    looking = asyncio.create_task(_looked(address, names, line))
    trying = asyncio.create_task(Probe(address, names, probing).found())
    await asyncio.wait({looking, trying}, timeout=max(LONGEST, 10 * address.timeout))
    silent = Unavailable(f"{address.shown} did not answer in time.")
    queues: dict[str, Counts | BideError | None] = {name: silent for name, _ in names.queues()}
    looked = Looked(True, {}, queues, [], {})
    try:
        if looking.done():
            looked = looking.result()
        probed = trying.result() if trying.done() else Probed(trouble=str(silent))
    finally:
        for each, task in ((line, looking), (probing, trying)):
            if not task.done():  # such as one that waits for a queue that has lost most of its replicas
                each.abandon()
                task.cancel()
        await probing.close()
    return BrokerSeen(address, names, broker, *looked, probed, await asked)


async def _looked(address: Address, names: QueueNames, line: AsyncBrokerLine) -> Looked:
    look = BrokerLook(address, line)
    made = await look.exchange(names.made)
    exchanges = {name: await look.exchange(name) for name, *_ in names.exchanges()}
    queues = await look.queues(name for name, _ in names.queues())
    topics: list[str] = []
    if isinstance(queues[names.index], Counts):
        try:
            topics = await look.topics(names)
        except BideError as error:
            queues[names.index] = error
    of_topics = await look.queues(of(topic) for topic in topics[:MOST_TOPICS] for of in (names.topic, names.dead))
    return Looked(made, exchanges, queues, topics, of_topics)


def told(address: Address, names: QueueNames) -> ToldByApi:
    if address.management is None:
        return ToldByApi()
    management, refused = Management(address), dict[str, str]()

    def asked(what: str, *path: str) -> Any:
        try:
            return management.get(*path)
        except ApiRefused as error:
            refused[what] = str(error)

    flags, nodes = asked("flags", "feature-flags"), asked("nodes", "nodes")
    queues = held = bindings = None
    try:
        probes = names.wait(LadderStep("probe.", "", "", 0))  # one that was killed leaves it for a minute
        queues = {each["name"]: each for each in management.queues(names.prefix) if not each["name"].startswith(probes)}
        held = _held(management, names, queues)
        bindings = frozenset(_bindings(management, names))
    except ApiRefused as error:
        refused["queues"] = str(error)
    return ToldByApi(
        shown=management.shown,
        user=management.user,
        nodes=nodes,
        flags=None if flags is None else {each["name"]: each["state"] for each in flags},
        queues=queues,
        held=held,
        bindings=bindings,
        refused=refused,
    )


def _held(management: Management, names: QueueNames, queues: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """A message passes a dead-letter worker in a moment. So what is still there at a second look may be stuck."""
    first = {name: count for name, each in queues.items() if (count := int(each.get("messages_dlx") or 0))}
    if not first:
        return {}
    time.sleep(REPORTED)
    again = {each["name"]: int(each.get("messages_dlx") or 0) for each in management.queues(names.prefix)}
    return {name: min(count, again.get(name, 0)) for name, count in first.items() if again.get(name)}


def _bindings(management: Management, names: QueueNames) -> Iterator[tuple[str, str, str]]:
    for exchange, *_ in names.exchanges():
        try:
            found = management.get("exchanges", "{vhost}", exchange, "bindings", "source")
        except Missing:
            continue
        for each in found:
            yield exchange, each["routing_key"], each["destination"]
