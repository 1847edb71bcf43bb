"""The suite: all tests in one class, sync and async, each with an engine that is opened before and closed after it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from bide.engines.aio import AsyncEngine
from bide.engines.base import Capabilities, Claim, Ended, Scanned, Stored, Swept, Tended
from bide.engines.gates import Entered, Left, Spent
from bide.engines.gates.aio import AsyncGates
from bide.engines.gates.sync import Gates
from bide.engines.registry import Guarded, Source
from bide.engines.results import Result
from bide.engines.results.aio import AsyncResults
from bide.engines.results.sync import Results
from bide.engines.sync import Engine
from bide.testing.contract.attempts import Began, Traces
from bide.testing.contract.bench import Bench, fits
from bide.testing.contract.claim import Claiming, Order
from bide.testing.contract.gates import Gating
from bide.testing.contract.inspection import Inspecting
from bide.testing.contract.key_rules import KeyRules
from bide.testing.contract.keys import Keys, Successors
from bide.testing.contract.life import Life
from bide.testing.contract.moving import Moving
from bide.testing.contract.put import Pasts, Putting
from bide.testing.contract.repeats import Debounce, Merge, Periods
from bide.testing.contract.results import Keeping
from bide.testing.contract.settle import Leases, Settling
from bide.testing.contract.times import Clocks, Exactness, Rates
from bide.testing.contract.topics import Pausing, Sweeping
from bide.testing.contract.upkeep import Upkeep
from bide.testing.contract.waiting import Lacking, Waiting
from bide.types import CancelResult, RescheduleResult, Sent, Stats


class RecolouredGates(AsyncGates):
    """The same for gates."""

    def __init__(self, gates: Gates) -> None:
        self.gates = gates

    async def enter(self, *asked: Any, **options: Any) -> list[Entered]:
        return await asyncio.to_thread(self.gates.enter, *asked, **options)

    async def keep(self, *asked: Any, **options: Any) -> list[bool]:
        return await asyncio.to_thread(self.gates.keep, *asked, **options)

    async def leave(self, *asked: Any, **options: Any) -> Left:
        return await asyncio.to_thread(self.gates.leave, *asked, **options)

    async def spend(self, *asked: Any, **options: Any) -> list[Spent]:
        return await asyncio.to_thread(self.gates.spend, *asked, **options)


class RecolouredResults(AsyncResults):
    """The same for kept results."""

    def __init__(self, results: Results) -> None:
        self.results = results

    async def expect(self, *asked: Any, **options: Any) -> None:
        await asyncio.to_thread(self.results.expect, *asked, **options)

    async def fulfil(self, *asked: Any, **options: Any) -> list[list[str]]:
        return await asyncio.to_thread(self.results.fulfil, *asked, **options)

    async def read(self, *asked: Any, **options: Any) -> list[Result | None]:
        return await asyncio.to_thread(self.results.read, *asked, **options)

    async def follow(self, *asked: Any, **options: Any) -> list[bool | None]:
        return await asyncio.to_thread(self.results.follow, *asked, **options)

    async def arrive(self, *asked: Any, **options: Any) -> list[bool]:
        return await asyncio.to_thread(self.results.arrive, *asked, **options)


class Recoloured(AsyncEngine):
    """A sync engine as an async one, so that one suite tests both.

    Every verb runs in a thread, so verbs that are awaited together run as concurrent threads.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.capabilities: Capabilities = engine.capabilities
        self.gates: AsyncGates = RecolouredGates(engine.gates)
        self.results: AsyncResults = RecolouredResults(engine.results)

    async def open(self, *asked: Any, **options: Any) -> None:
        await asyncio.to_thread(self.engine.open, *asked, **options)
        self.capabilities = self.engine.capabilities  # an engine knows more of its place now

    async def close(self, *asked: Any, **options: Any) -> None:
        await asyncio.to_thread(self.engine.close, *asked, **options)

    async def put(self, *asked: Any, **options: Any) -> list[Sent]:
        return await asyncio.to_thread(self.engine.put, *asked, **options)

    async def claim(self, *asked: Any, **options: Any) -> Claim:
        return await asyncio.to_thread(self.engine.claim, *asked, **options)

    async def settle(self, *asked: Any, **options: Any) -> list[Ended]:
        return await asyncio.to_thread(self.engine.settle, *asked, **options)

    async def extend(self, *asked: Any, **options: Any) -> list[bool]:
        return await asyncio.to_thread(self.engine.extend, *asked, **options)

    async def cancel(self, *asked: Any, **options: Any) -> list[CancelResult]:
        return await asyncio.to_thread(self.engine.cancel, *asked, **options)

    async def reschedule(self, *asked: Any, **options: Any) -> list[RescheduleResult]:
        return await asyncio.to_thread(self.engine.reschedule, *asked, **options)

    async def tend(self, *asked: Any, **options: Any) -> Tended:
        return await asyncio.to_thread(self.engine.tend, *asked, **options)

    async def wait(self, *asked: Any, **options: Any) -> None:
        await asyncio.to_thread(self.engine.wait, *asked, **options)

    async def get(self, *asked: Any, **options: Any) -> list[Stored | None]:
        return await asyncio.to_thread(self.engine.get, *asked, **options)

    async def scan(self, *asked: Any, **options: Any) -> Scanned:
        return await asyncio.to_thread(self.engine.scan, *asked, **options)

    async def stats(self, *asked: Any, **options: Any) -> Stats:
        return await asyncio.to_thread(self.engine.stats, *asked, **options)

    async def requeue(self, *asked: Any, **options: Any) -> Swept:
        return await asyncio.to_thread(self.engine.requeue, *asked, **options)

    async def purge(self, *asked: Any, **options: Any) -> Swept:
        return await asyncio.to_thread(self.engine.purge, *asked, **options)

    async def pause(self, *asked: Any, **options: Any) -> None:
        await asyncio.to_thread(self.engine.pause, *asked, **options)


@pytest.mark.asyncio
class EngineContract(
    Life,
    Putting,
    Keys,
    KeyRules,
    Successors,
    Debounce,
    Merge,
    Periods,
    Pasts,
    Claiming,
    Order,
    Began,
    Traces,
    Settling,
    Leases,
    Moving,
    Upkeep,
    Waiting,
    Inspecting,
    Clocks,
    Exactness,
    Sweeping,
    Pausing,
    Gating,
    Rates,
    Keeping,
    Lacking,
):
    """What every engine must do. A subclass sets `capabilities` and overrides `make_source`: see `bide.testing.contract`."""

    capabilities: ClassVar[Capabilities]
    colours: ClassVar[tuple[str, ...]] = ("async", "sync")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in dir(cls):
            if name.startswith("test_") and not fits(getattr(cls, name), cls.capabilities):
                setattr(cls, name, None)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "colour" in metafunc.fixturenames:
            metafunc.parametrize("colour", [each for each in self.colours if each in self.capabilities.colours])

    @pytest.fixture
    def make_source(self) -> Callable[..., Source]:
        """Makes sources with the settings it is given. All lead to the same messages, none at first."""
        raise NotImplementedError("Override the fixture make_source: the docstring of bide.testing.contract shows how.")

    @pytest.fixture
    def wrap(self) -> Callable[[AsyncEngine, str], AsyncEngine]:
        """What the tests call in place of an engine of this namespace: most often, that engine. See `bide.testing.contract`."""
        return lambda engine, namespace: engine

    @pytest.fixture
    def make_engine(
        self, make_source: Callable[..., Source], wrap: Callable[[AsyncEngine, str], AsyncEngine], colour: str
    ) -> Callable[..., AsyncEngine]:
        """Makes engines of these sources: async ones, or sync ones that run in threads."""

        def make(**settings: Any) -> AsyncEngine:
            source = Guarded(make_source(**settings))
            assert source.capabilities == self.capabilities
            return wrap(source.aio() if colour == "async" else Recoloured(source.sync()), source.namespace)

        return make

    @pytest_asyncio.fixture
    async def engine(self, make_engine: Callable[..., AsyncEngine]) -> AsyncIterator[AsyncEngine]:
        """The engine under test, open."""
        engine = make_engine()
        await engine.open()
        yield engine
        await engine.close()

    @pytest_asyncio.fixture
    async def bench(self, engine: AsyncEngine, make_engine: Callable[..., AsyncEngine]) -> AsyncIterator[Bench]:
        bench = Bench(engine, make_engine)
        yield bench
        await bench.close()
