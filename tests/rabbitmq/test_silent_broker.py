"""A broker that stands still, and a network that loses everything: senders and workers go on by themselves when it is over."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide import AsyncQueue, EngineError
from tests.rabbitmq.account import Account
from tests.rabbitmq.storm import Storm
from tests.servers.network import Network
from tests.servers.rabbitmq import RabbitServer
from tests.servers.rabbitmq_fixtures import NewRabbit
from tests.worker.processes import PATIENCE

LONG = os.environ.get("BIDE_LONG")
TIMES = 5 if LONG else 1
SILENCE = 20.0 if LONG else 6.0  # seconds
pytestmark = pytest.mark.timeout(1_800 if LONG else 180)


class Relayed:
    """A broker that clients reach through a relay."""

    def __init__(self, server: RabbitServer, network: Network) -> None:
        self.server = server
        self._network = network
        self._address = network.new_address()
        network.listen(self._address, server.port)
        self.url = f"amqp://guest:guest@{self._address}:{server.port}/"

    def silence(self) -> None:
        self._network.silence(self._address)


@pytest.fixture
def relayed(new_rabbitmq: NewRabbit) -> Iterator[Relayed]:
    server = new_rabbitmq(tuned=True, lines=["loopback_users = none"])
    with Network() as network:
        yield Relayed(server, network)


def judged(storm: Storm) -> Account:
    storm.settle()
    storm.end()
    found = storm.account()
    print(found)
    assert found.good, str(found)
    return found


@pytest.mark.slow
def test_workers_go_on_when_a_frozen_broker_thaws(new_rabbitmq: NewRabbit, tmp_path: Path) -> None:
    server = new_rabbitmq(tuned=True)
    with Storm(f"{server.url}?timeout=2", tmp_path) as storm:
        with storm.at_work():
            for _ in range(TIMES):
                with storm.fault("freeze") as dealt:
                    server.freeze()
                    storm.pause(SILENCE)
                    server.thaw()
                    dealt.now()
        judged(storm)


@pytest.mark.slow
def test_workers_go_on_when_the_network_has_lost_everything_for_a_while(relayed: Relayed, tmp_path: Path) -> None:
    with Storm(f"{relayed.url}?timeout=2", tmp_path) as storm:
        with storm.at_work():
            for _ in range(TIMES):
                with storm.fault("silence") as dealt:
                    relayed.silence()
                    storm.pause(SILENCE)
                    relayed.silence()  # it is over for new connections
                    dealt.now()
        judged(storm)


async def test_every_verb_ends_though_the_broker_stands_still_and_no_task_is_left(new_rabbitmq: NewRabbit) -> None:
    server = new_rabbitmq()
    async with AsyncQueue(f"{server.url}?timeout=1") as queue:
        await queue.send("mail", 1)
        [held] = await queue.receive("mail", wait="5s")
        server.freeze()
        async with asyncio.timeout(PATIENCE):
            for verb in (queue.send("mail", 2), queue.send("mail", 3, delay=1), held.ack(), queue.requeue("mail")):
                with pytest.raises(EngineError):
                    await verb
            for _ in range(2):
                try:
                    assert await queue.receive("other", wait="1s") == []
                except EngineError:
                    continue
        server.thaw()
        async with asyncio.timeout(PATIENCE):
            bodies: list[object] = []
            while "last" not in bodies:
                try:
                    await queue.send("mail", "last")
                    for each in await queue.receive("mail", limit=10, wait="1s"):
                        bodies.append(each.body)
                        await each.ack()
                except EngineError:
                    continue
    if left := asyncio.all_tasks() - {asyncio.current_task()}:
        _, hanging = await asyncio.wait(left, timeout=PATIENCE)  # those that are just ending
        assert not hanging
