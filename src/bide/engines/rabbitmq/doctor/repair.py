"""Makes again what somebody has removed, so that no message goes astray; and takes away all that bide has made."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from pamqp.commands import Basic

from bide.core.formats import plural
from bide.engines.base import Finding
from bide.engines.rabbitmq.aio import topology
from bide.engines.rabbitmq.aio.line import AsyncBrokerLine
from bide.engines.rabbitmq.doctor.look import ApiRefused, BrokerLook, Counts, Management
from bide.engines.rabbitmq.failures import told
from bide.engines.rabbitmq.ladder import STEPS, QueueNames
from bide.engines.rabbitmq.location import Address

T = TypeVar("T")
MAKING = 60.0  # seconds
DURABLE = 2  # delivery mode
SHOWN = 10  # topics that are named


def done_apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What comes of it, done in a loop of its own in a thread of its own."""
    with ThreadPoolExecutor(1, "bide-doctor") as thread:
        return thread.submit(lambda: asyncio.run(work())).result()


def mend(address: Address, names: QueueNames) -> list[Finding]:
    """What was made. A namespace that is not there is left so."""
    return done_apart(lambda: _mended(address, names))


async def _mended(address: Address, names: QueueNames) -> list[Finding]:
    line = AsyncBrokerLine(address, confirms=True)
    try:
        look = BrokerLook(address, line)
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


def _topics(address: Address, names: QueueNames) -> list[str]:
    """Those whose queues the management API finds."""
    if address.management is None:
        return []
    prefix = names.topic("")
    try:
        return [str(each["name"]).removeprefix(prefix) for each in Management(address).queues(prefix)]
    except ApiRefused:
        return []


class Contents(NamedTuple):
    """What is there. Of messages AMQP counts those that are neither delivered nor about to be dead-lettered."""

    queues: Mapping[str, int]  # messages in each
    exchanges: Sequence[str]
    topics: Sequence[str]
    delayed: int
    ready: Mapping[str, int]  # by topic
    dead: Mapping[str, int]
    lost: int
    receivers: int
    listed: bool  # by the management API, which knows private queues of receivers, too

    @property
    def is_empty(self) -> bool:
        return not self.queues and not self.exchanges

    @property
    def messages(self) -> int:
        return self.delayed + sum(self.ready.values()) + sum(self.dead.values()) + self.lost

    def words(self) -> str:
        """What would be lost."""
        parts = [plural(self.delayed, "delayed message")]
        for topic in self.topics[:SHOWN]:
            counts = [f"{self.ready[topic]:,} ready"] if self.ready.get(topic) else []
            counts += [plural(self.dead[topic], "dead letter")] if self.dead.get(topic) else []
            parts.append(f"the topic {topic}" + (f" with {' and '.join(counts)}" if counts else ""))
        if self.topics[SHOWN:]:
            rest = self.topics[SHOWN:]
            ready, dead = (sum(each.get(topic, 0) for topic in rest) for each in (self.ready, self.dead))
            parts.append(f"{plural(len(rest), 'more topic')} with {ready:,} ready and {plural(dead, 'dead letter')}")
        parts += [f"{plural(self.lost, 'message')} that led nowhere"] if self.lost else []
        return ", ".join(parts)


class RemovedParts(NamedTuple):
    queues: int
    exchanges: int
    messages: int


class Removal:
    """Of one namespace. Programs that use it meanwhile make parts of it anew, so they are to be stopped before."""

    def __init__(self, address: Address, names: QueueNames) -> None:
        self._address = address
        self._names = names

    def contents(self) -> Contents:
        """What is there. Nothing is changed."""
        return done_apart(self._contents)

    def carry_out(self, contents: Contents) -> RemovedParts:
        """Remove it. If this is cut short, the same again removes the rest."""
        return done_apart(lambda: self._carry_out(contents))

    async def _contents(self) -> Contents:
        names = self._names
        async with self._connected() as line:
            look = BrokerLook(self._address, line)
            exchanges = [name for name in self._exchanges() if await look.exchange(name)]
            topics = await look.topics(names)
            mine = [name for name, _ in names.queues()]
            mine += [of(topic) for topic in topics for of in (names.topic, names.dead)]
            listed = self._listed()
            mine += [name for name in listed or () if name not in mine]
            found = {name: counts for name, counts in (await look.queues(mine)).items() if counts is not None}
        counts = {name: each.ready if isinstance(each, Counts) else 0 for name, each in found.items()}
        counts |= {name: max(count, counts[name]) for name, count in (listed or {}).items() if name in counts}
        topics = sorted({*topics, *(name.removeprefix(names.topic("")) for name in counts if name.startswith(names.topic("")))})
        return Contents(
            queues=counts,
            exchanges=exchanges,
            topics=topics,
            delayed=sum(counts.get(names.wait(step), 0) for step in STEPS),
            ready={topic: counts.get(names.topic(topic), 0) for topic in topics},
            dead={topic: counts.get(names.dead(topic), 0) for topic in topics},
            lost=counts.get(names.lost, 0),
            receivers=sum(each.consumers for each in found.values() if isinstance(each, Counts)),
            listed=listed is not None,
        )

    async def _carry_out(self, contents: Contents) -> RemovedParts:
        """The marker first, so that nobody takes the rest for the whole. The index last: it names the topics."""
        names, messages = self._names, 0
        first = [name for name in (names.made, names.enter) if name in contents.exchanges]
        async with self._connected() as line:
            channel = await line.another()
            with told(self._address.shown, acts=True):
                for name in first:
                    await channel.exchange_delete(name, timeout=self._address.timeout)
                for name in sorted(contents.queues, key=lambda each: each == names.index):
                    gone = await channel.queue_delete(name, timeout=self._address.timeout)
                    messages += gone.message_count or 0 if name != names.index else 0
                for name in contents.exchanges:
                    if name not in first:
                        await channel.exchange_delete(name, timeout=self._address.timeout)
        return RemovedParts(len(contents.queues), len(contents.exchanges), messages)

    def _exchanges(self) -> Iterator[str]:
        yield self._names.made
        for name, *_ in self._names.exchanges():
            yield name

    def _listed(self) -> dict[str, int] | None:
        """The queues that only the management API finds, and how many messages it counts in each. None: it was not asked."""
        if self._address.management is None:
            return None
        names = self._names
        kinds = tuple(of("") for of in (names.topic, names.dead, names.parked))
        fixed = {name for name, _ in names.queues()}
        try:
            found = Management(self._address).queues(names.prefix)
        except ApiRefused:
            return None
        ours = [each for each in found if each["name"] in fixed or each["name"].startswith(kinds)]
        return {each["name"]: int(each.get("messages") or 0) for each in ours}

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncBrokerLine]:
        line = AsyncBrokerLine(self._address, confirms=False)
        try:
            yield line
        finally:
            await line.close()
