"""Somebody removes a binding, a queue or an exchange of bide's from the broker: the sender is told, or it is made again."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bide import AsyncQueue, OutcomeUnknown, Outgoing, Unavailable
from bide.engines.rabbitmq.ladder import STEPS, QueueNames
from tests.servers.rabbitmq import RabbitServer
from tests.servers.rabbitmq_hosts import name_in
from tests.worker.processes import PATIENCE, until

NAMES = QueueNames("bide")
SECOND = next(step for step in STEPS if step.ms == 1_000)
TWO_SECONDS = next(step for step in STEPS if step.ms == 2_000)
TOPIC = "mail"
BARE = "?disable_stats=true"  # what is there, not what was counted seconds ago


class Broker:
    """What an operator does to a virtual host, by the HTTP API."""

    def __init__(self, server: RabbitServer, host: str) -> None:
        self._api = server.management
        self._host = host

    def remove_queue(self, name: str) -> None:
        self._api.delete("queues", self._host, name)

    def remove_exchange(self, name: str) -> None:
        self._api.delete("exchanges", self._host, name)

    def unbind(self, exchange: str, queue: str) -> None:
        for each in self._api.get("bindings", self._host, "e", exchange, "q", queue):
            self._api.delete("bindings", self._host, "e", exchange, "q", queue, each["properties_key"])

    def wait_for(self, queue: str, count: int) -> None:
        """Until a queue holds so many messages."""

        def there() -> Any:
            return self._api.get("queues", self._host, queue).get("messages", 0) >= count

        until(there, lambda: f"{count} messages in {queue}: {self._api.get('queues', self._host, queue)}")

    def has(self, queue: str) -> bool:
        return any(each["name"] == queue for each in self._api.get("queues", self._host, query=BARE))


@pytest.fixture
def broker(rabbitmq_server: RabbitServer, rabbitmq_url: str) -> Broker:
    return Broker(rabbitmq_server, name_in(rabbitmq_url))


@pytest_asyncio.fixture
async def queue(rabbitmq_url: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(rabbitmq_url) as queue:
        await queue.send("other", "first")  # all of the ladder is made
        await queue.receive(TOPIC)  # and its queue
        yield queue


async def received(queue: AsyncQueue, count: int = 1, topic: str = TOPIC) -> list[Any]:
    """The bodies of the next messages, which are acked."""
    bodies: list[Any] = []
    give_up = time.monotonic() + PATIENCE
    while len(bodies) < count and time.monotonic() < give_up:
        for each in await queue.receive(topic, limit=count - len(bodies), wait="5s"):
            bodies.append(each.body)
            await each.ack()
    return bodies


@pytest.mark.always
async def test_what_a_removed_binding_has_misled_comes_back(queue: AsyncQueue, broker: Broker) -> None:
    broker.unbind(NAMES.topics, NAMES.topic(TOPIC))
    await queue.send(TOPIC, 1, delay=1)
    broker.wait_for(NAMES.lost, 1)
    assert await received(queue) == [1]


async def test_a_removed_queue_of_a_topic_is_told_once_and_what_was_on_its_way_comes_back(
    queue: AsyncQueue, broker: Broker
) -> None:
    broker.remove_queue(NAMES.topic(TOPIC))
    await queue.send(TOPIC, 1, delay=1)
    with pytest.raises(Unavailable, match="was not sent"):
        await queue.send(TOPIC, 2)
    broker.wait_for(NAMES.lost, 1)
    await queue.send(TOPIC, 3)
    assert sorted(await received(queue, 2)) == [1, 3]


async def test_a_removed_step_of_the_ladder_is_made_again(queue: AsyncQueue, broker: Broker) -> None:
    broker.remove_queue(NAMES.wait(SECOND))
    with pytest.raises(Unavailable, match="was not sent"):
        await queue.send(TOPIC, 0, delay=1)
    await queue.send(TOPIC, 1, delay=1)
    assert broker.has(NAMES.wait(SECOND))
    assert await received(queue) == [1]


async def test_what_meets_a_removed_step_on_its_way_comes_back(queue: AsyncQueue, broker: Broker) -> None:
    broker.remove_queue(NAMES.wait(SECOND))
    await queue.send(TOPIC, 1, delay=3)  # two seconds, and one
    broker.wait_for(NAMES.lost, 1)
    assert await received(queue) == [1]
    assert broker.has(NAMES.wait(SECOND))


async def test_a_removed_entrance_is_made_again(queue: AsyncQueue, broker: Broker) -> None:
    broker.remove_exchange(NAMES.enter)
    with pytest.raises(OutcomeUnknown, match="no exchange"):  # others on the same channel may have been sent
        await queue.send(TOPIC, 1, delay=1)
    await queue.send(TOPIC, 2, delay=1)
    assert await received(queue) == [2]


async def test_the_queue_of_lost_messages_is_made_again(queue: AsyncQueue, broker: Broker) -> None:
    broker.remove_queue(NAMES.lost)
    async with asyncio.timeout(PATIENCE):
        while not broker.has(NAMES.lost):
            assert await queue.receive(TOPIC, wait="1s") == []
    await queue.send(TOPIC, 0)  # all else that was made with it is there, too
    assert await received(queue) == [0]
    broker.unbind(NAMES.topics, NAMES.topic(TOPIC))
    await queue.send(TOPIC, 1, delay=1)
    broker.wait_for(NAMES.lost, 1)
    assert await received(queue) == [1]


async def test_other_topics_are_not_held_up_by_what_leads_nowhere(queue: AsyncQueue, broker: Broker) -> None:
    await queue.send(TOPIC)
    broker.unbind(NAMES.topics, NAMES.topic(TOPIC))
    many = 50  # more than the broker takes at once from a queue whose messages have expired
    await queue.send_many(TOPIC, [Outgoing(number, delay=1) for number in range(many)])
    await queue.send("other", "good", delay=1)
    broker.wait_for(NAMES.lost, many)
    assert "good" in await received(queue, 2, "other")
