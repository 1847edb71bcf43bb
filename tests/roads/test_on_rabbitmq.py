"""How queues with a TTL and a dead-letter exchange delay messages, and lose them."""

from contextlib import suppress
from pathlib import Path

import aiormq
import pytest
from aiormq.abc import AbstractConnection
from aiormq.exceptions import ChannelNotFoundEntity

from benchmarks.peers.install import NotInstalled
from benchmarks.roads.environments import python_of
from tests.roads.conftest import Start
from tests.servers.programs import lacking

pytestmark = pytest.mark.slow  # they take an environment of their own


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return python_of("ttl_dead_letter")
    except NotInstalled as reason:
        lacking(f"pika can't be installed: {reason}")


def test_in_one_queue_a_short_ttl_waits_behind_a_long_one(rabbitmq_url: str, python: Path, start: Start) -> None:
    consumer = start("ttl_dead_letter", rabbitmq_url, python=python)
    sender = start("ttl_dead_letter", rabbitmq_url, "--send", python=python)
    sender.send("long", 4)
    sender.send("short", 0.1)
    assert [consumer.handled(), consumer.handled()] == ["long", "short"]


def test_with_a_queue_for_each_delay_it_does_not(rabbitmq_url: str, python: Path, start: Start) -> None:
    consumer = start("ttl_queues", rabbitmq_url, python=python)
    sender = start("ttl_queues", rabbitmq_url, "--send", python=python)
    sender.send("long", 8)
    sender.send("short", 0.1)
    assert [consumer.handled(), consumer.handled()] == ["short", "long"]


async def test_what_expires_while_the_goal_is_missing_is_lost(rabbitmq_url: str, python: Path, start: Start) -> None:
    # Given a message that waits, and the consumers' queue is deleted and made again, as by a deployment
    sender = start("ttl_dead_letter", rabbitmq_url, "--send", python=python)
    sender.send("before", 0.001)
    async with aiormq.connect(rabbitmq_url) as connection:
        channel = await connection.channel()
        await channel.queue_delete("orders")
        sender.send("lost", 0.001)
        while (await channel.queue_declare("waiting", passive=True)).message_count:
            pass
    # When a consumer has made it again
    consumer = start("ttl_dead_letter", rabbitmq_url, python=python)
    async with aiormq.connect(rabbitmq_url) as connection:
        await _until_it_consumes(connection)
    sender.send("later", 0.001)
    # Then the confirmed message never comes
    assert consumer.handled() == "later"


async def _until_it_consumes(connection: AbstractConnection) -> None:
    while True:
        channel = await connection.channel()
        with suppress(ChannelNotFoundEntity):  # which closes the channel
            if (await channel.queue_declare("orders", passive=True)).consumer_count:
                return
