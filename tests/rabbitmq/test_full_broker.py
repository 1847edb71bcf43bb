"""A queue that is full, and a broker without memory: senders are told so, and go on when there is room; receivers go on."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bide import AsyncQueue, EngineError, QueueFull
from bide.engines.rabbitmq.ladder import QueueNames
from tests.servers.rabbitmq import RabbitServer
from tests.servers.rabbitmq_fixtures import NewRabbit
from tests.servers.rabbitmq_hosts import name_in
from tests.worker.processes import PATIENCE

NAMES = QueueNames("bide")
ROOM = 5
MANY = 500  # far more than there is room for


@pytest_asyncio.fixture
async def queue(rabbitmq_url: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(rabbitmq_url) as queue:
        yield queue


async def _drained(queue: AsyncQueue, count: int) -> list[object]:
    """The bodies of the next messages, which are acked."""
    bodies: list[object] = []
    async with asyncio.timeout(PATIENCE):
        while len(bodies) < count:
            for each in await queue.receive("mail", limit=min(10, count - len(bodies)), wait="5s"):
                bodies.append(each.body)
                await each.ack()
    return bodies


async def _sent_at_last(queue: AsyncQueue, body: object) -> None:
    """The broker tells senders a moment later that there is room again."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await queue.send("mail", body)
            except EngineError:
                await asyncio.sleep(0.05)
            else:
                return


async def test_a_topic_that_a_policy_lets_grow_no_further_refuses_and_goes_on_when_there_is_room(
    queue: AsyncQueue, rabbitmq_server: RabbitServer, rabbitmq_url: str
) -> None:
    rabbitmq_server.management.put(
        "policies",
        name_in(rabbitmq_url),
        "small",
        **{
            "pattern": f"^{NAMES.topic('mail')}$",
            "definition": {"max-length": ROOM, "overflow": "reject-publish"},
            "apply-to": "queues",
        },
    )
    sent: list[object] = []

    async def fill() -> None:
        for number in range(MANY):
            await queue.send("mail", number)
            sent.append(number)

    with pytest.raises(QueueFull, match="refused the message"):
        await fill()
    assert ROOM <= len(sent) < MANY
    assert await _drained(queue, len(sent)) == sent
    await _sent_at_last(queue, "next")
    assert await _drained(queue, 1) == ["next"]


async def test_a_broker_without_memory_refuses_and_delivers_and_goes_on_when_it_has_some(new_rabbitmq: NewRabbit) -> None:
    server = new_rabbitmq()
    async with AsyncQueue(f"{server.url}?timeout=2") as sender, AsyncQueue(f"{server.url}?timeout=2") as receiver:
        for number in range(60):
            await sender.send("mail", number)
        assert len(await _drained(receiver, 1)) == 1
        server.ctl("set_vm_memory_high_watermark", "absolute", "1MB")
        refused = 0
        async with asyncio.timeout(PATIENCE):
            while refused < 3:  # the first is taken by the broker as a reason to hear no more of this connection
                try:
                    await sender.send("mail", "refused")
                except EngineError as error:
                    refused += isinstance(error, QueueFull)
        # Receivers go on meanwhile
        held = await receiver.receive("mail", wait="30s")
        await _drained(receiver, 10)
        # A topic that has no queue yet takes nothing from those that have one
        with pytest.raises(QueueFull):
            await receiver.receive("new")
        await held[0].extend("1m")
        # And who begins now receives as well
        async with AsyncQueue(f"{server.url}?timeout=2") as late:
            assert len(await _drained(late, 2)) == 2
        await held[0].ack()
        server.ctl("set_vm_memory_high_watermark", "0.9")
        await _sent_at_last(sender, "at last")
        left: list[object] = []
        while "at last" not in left:
            left += await _drained(receiver, 1)
