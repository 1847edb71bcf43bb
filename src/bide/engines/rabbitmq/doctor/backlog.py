"""What is found of messages: how many wait for how long, what each topic has, and what is stuck or lost."""

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from bide.core.formats import plural, span
from bide.engines.base import Finding
from bide.engines.findings import judged
from bide.engines.rabbitmq.doctor.look import Counts
from bide.engines.rabbitmq.doctor.seen import MOST_TOPICS, BrokerSeen
from bide.engines.rabbitmq.ladder import STEPS

SHOWN = 20  # topics, and levels
NOBODY = "nobody receives it: is a worker running, with room for more?"


class _Topic(NamedTuple):
    name: str
    ready: int
    unacked: int | None  # None: not known
    dead: int
    consumers: int  # a worker that is busy with all it can do has none for a while

    @property
    def is_alone(self) -> bool:
        return self.ready > 0 and not self.consumers and not self.unacked


def waiting(seen: BrokerSeen) -> Iterator[Finding]:
    """By the queues of the ladder: a message is in one of them at a time, and goes on to shorter ones."""
    if seen.unused:
        return
    levels = [(step, _messages(seen, seen.names.wait(step))) for step in STEPS]
    held = [f"{count:,} in the queue of {span(step.ms / 1000) or f'{step.ms} ms'}" for step, count in levels if count]
    total = sum(count for _, count in levels)
    more = f" and {len(held) - SHOWN} more" if len(held) > SHOWN else ""
    value = f"{plural(total, 'message')}{': ' if held else ''}{', '.join(held[:SHOWN])}{more}"
    if seen.told.queues is None:
        value += f". Not those that the broker is about to pass on: {seen.address.ctl('list_queues name messages')}"
    yield Finding("waiting", value)


def held(seen: BrokerSeen) -> Iterator[Finding]:
    """Those whose time is over, and that the broker has not passed on between two looks."""
    if not seen.told.held:
        return
    total = sum(seen.told.held.values())
    advice = (
        "after a restart or the loss of a node the broker tries again after 180 s, or as advanced.config says. If they stay: "
        "rabbitmq-queues rebalance quorum"
    )
    queues = ", ".join(f"{count:,} in {name}" for name, count in sorted(seen.told.held.items())[:SHOWN])
    yield Finding("held", f"{plural(total, 'message')}, not passed on when it was time: {queues}", "warn", advice)


def topics(seen: BrokerSeen) -> Iterator[Finding]:
    found = sorted(_topics(seen), key=lambda each: (-each.ready, -each.dead, each.name))
    for each in found[:SHOWN]:
        parts = [f"{each.ready:,} ready", f"{each.dead:,} dead", plural(each.consumers, "receiver")]
        if each.unacked is not None:
            parts.insert(1, f"{each.unacked:,} leased")
        yield judged(f"topic {each.name}", ", ".join(parts), "warn", NOBODY, when=each.is_alone)
    rest = found[SHOWN:]
    if rest:
        unread = sum(each.is_alone for each in rest)
        value = f"{len(rest):,}, {sum(each.ready for each in rest):,} ready, {sum(each.dead for each in rest):,} dead"
        advice = f"{unread:,} of them have ready messages that nobody receives"
        yield judged("other topics", value, "warn", advice, when=unread > 0)
    if seen.told.queues is None and len(seen.topics) > MOST_TOPICS:
        yield Finding("topics", f"{len(seen.topics):,}, of which {MOST_TOPICS:,} were looked at")


def lost(seen: BrokerSeen) -> Iterator[Finding]:
    count = _messages(seen, seen.names.lost)
    if count:
        advice = "a running worker brings them back when it does its upkeep; if they stay, their topic's queue can't be made"
        yield Finding("lost", f"{plural(count, 'message')} found no queue", "warn", advice)
    elif not seen.unused:
        yield Finding("lost", "none")


def overdue(seen: BrokerSeen) -> Iterator[Finding]:
    """Of the topic that has the most ready messages: only an operator can look at a message without taking it."""
    if seen.unused:
        return
    most = max(_topics(seen), key=lambda each: each.ready, default=None)
    if most is None or not most.ready:
        yield Finding("oldest overdue", "none: no topic has ready messages")
        return
    queue = seen.names.topic(most.name)
    value = "not known: clients can't look at a message without taking it, which counts as an attempt"
    command = f"rabbitmq-queues peek --vhost {shlex.quote(seen.address.vhost)} {queue} 1"
    advice = f"Ask: {command}; due in its header bide is in ms since 1970, like: date +%s000"
    yield Finding("oldest overdue", f"{value}. {advice}")


def _topics(seen: BrokerSeen) -> Iterator[_Topic]:
    names, queues = seen.names, seen.told.queues
    if queues is None:
        for topic in seen.topics[:MOST_TOPICS]:
            own, dead = seen.of_topics.get(names.topic(topic)), seen.of_topics.get(names.dead(topic))
            if isinstance(own, Counts):
                yield _Topic(topic, own.ready, None, dead.ready if isinstance(dead, Counts) else 0, own.consumers)
        return
    for name, queue in queues.items():
        topic = name.removeprefix(names.topic(""))
        if topic != name:
            dead_letters = int(queues.get(names.dead(topic), {}).get("messages") or 0)
            ready, unacked = (int(queue.get(field) or 0) for field in ("messages_ready", "messages_unacknowledged"))
            yield _Topic(topic, ready, unacked, dead_letters, int(queue.get("consumers") or 0))


def _messages(seen: BrokerSeen, name: str) -> int:
    """In one queue: what the management API counts is more, and some seconds old."""
    told = (seen.told.queues or {}).get(name, {}).get("messages")
    found = seen.queues.get(name)
    return max(int(told or 0), found.ready if isinstance(found, Counts) else 0)
