"""The contract suite on RabbitMQ, whose messages travel by themselves: see tests/rabbitmq/patient.py and short_ladder.py."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
import pytest_asyncio

from bide.engines.aio import AsyncEngine
from bide.engines.base import Settings
from bide.engines.rabbitmq import CAPABILITIES, RabbitSource
from bide.engines.rabbitmq.aio import inbox, topology
from bide.engines.rabbitmq.aio.engine import AsyncRabbit
from bide.engines.rabbitmq.location import read
from bide.engines.registry import Source
from bide.testing.contract import EngineContract
from bide.testing.contract.bench import LEASE, MOMENT, SLEEP, Bench, bodies
from tests.rabbitmq.ledger import Ledger
from tests.rabbitmq.patient import PATIENCE, TURN, patient
from tests.rabbitmq.short_ladder import ShortLadder


class Place(RabbitSource):
    """With a short ladder. It remembers its engines, so that tests can see who sleeps."""

    def __init__(self, asked: Settings, engines: list[AsyncRabbit]) -> None:
        super().__init__(read(asked), asked, ShortLadder(asked.namespace))
        self._engines = engines

    def aio(self) -> AsyncRabbit:
        self._engines.append(engine := super().aio())
        return engine


class Dormitory(Bench):
    """A bench whose sleepers sleep: to begin with, they ask the broker, which takes as long as it does."""

    engines: Sequence[AsyncRabbit] = ()

    async def sleeper(self, *topics: str) -> "asyncio.Task[None]":
        asleep = self._count()
        async with asyncio.timeout(PATIENCE):
            sleeper = await super().sleeper(*topics)
            while True:
                if self._count() > asleep:
                    return sleeper
                await asyncio.sleep(TURN)

    def _count(self) -> int:
        return sum(len(engine._inbox._asleep) for engine in self.engines)


class TestRabbitmq(EngineContract):
    capabilities = CAPABILITIES

    def setup_method(self) -> None:
        self.engines: list[AsyncRabbit] = []

    @pytest.fixture
    def make_source(self, rabbitmq_url: str) -> Callable[..., Source]:
        """On a busy machine a broker may take long to answer: an ack that is given up comes again, and counts an attempt."""
        return lambda **settings: Place(Settings(url=f"{rabbitmq_url}?timeout=60", **settings), self.engines)

    @pytest_asyncio.fixture
    async def bench(self, engine: AsyncEngine, make_engine: Callable[..., AsyncEngine]) -> AsyncIterator[Bench]:
        bench = Dormitory(engine, make_engine)
        bench.engines = self.engines
        yield bench
        await bench.close()

    @pytest.fixture
    def wrap(self) -> Callable[[AsyncEngine, str], AsyncEngine]:
        ledgers: defaultdict[str, Ledger] = defaultdict(Ledger)
        return lambda engine, namespace: patient(engine, ledgers[namespace])

    @pytest.fixture(autouse=True)
    def without_a_probe(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each engine would take a fifth of a second to see whether this broker keeps its word."""

        async def believe(*_: object) -> None: ...

        monkeypatch.setattr(topology, "probe", believe)

    @pytest.fixture(autouse=True)
    def nobody_removes_queues(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """So a new one is made at once."""
        monkeypatch.setattr(topology, "TOLD", 0)

    @pytest.fixture(autouse=True)
    def only_messages_wake(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody wakes because five seconds are over."""
        monkeypatch.setattr(inbox, "SWEEP", SLEEP)

    async def test_a_message_that_is_due_wakes_a_sleeper(self, bench: Bench) -> None:
        """What is here and not claimed lets nobody sleep, so each message is claimed before the next one comes."""
        other = await bench.another()
        for sender in (bench, other):
            sleeper = await bench.sleeper("news", "mail")
            await sender.put("mail")
            assert await bench.woken(sleeper) == [sleeper]
            [message] = await bench.claim("mail", limit=5)
        # And also when a message comes back
        sleeper = await bench.sleeper("news", "mail")
        await bench.end(message, "release")
        assert await bench.woken(sleeper) == [sleeper]
        assert len(await bench.claim("mail", limit=5)) == 1
        sleeper = await bench.sleeper("news", "mail")
        bench.move(LEASE + 1_000)
        assert (await bench.tend()).returned == 2
        assert await bench.woken(sleeper) == [sleeper]

    async def test_dead_letters_that_are_too_old_are_dropped_and_counted(self, bench: Bench) -> None:
        """The broker drops them, by its own clock, and tells nobody."""
        brief = await bench.another(namespace="keeping", dead_for=100)
        lasting = await bench.another(namespace="keeping")
        await brief.bury("mail", b"old")
        await lasting.bury("mail", b"young")
        async with asyncio.timeout(PATIENCE):
            while True:
                if bodies(await lasting.stored("mail", "dead")) == [b"young"]:
                    break
                await asyncio.sleep(MOMENT)
