"""The contract suite, and the model, on PostgreSQL."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from bide.engines.base import Settings
from bide.engines.postgres import CAPABILITIES, source
from bide.engines.registry import Source
from bide.testing.contract import EngineContract
from bide.testing.contract.bench import WAKE_TIMEOUT, Bench
from tests.model.hypothesis_rules import check_engine
from tests.model.long_history import check_long_history
from tests.model.turns import BUDGET, COLOURS, LONG, by_turns


class TestPostgres(EngineContract):
    """The other colour goes through PgBouncer."""

    capabilities = CAPABILITIES
    colours = COLOURS if LONG else ("async",)

    @pytest.fixture
    def make_source(self, postgres_used_url: str) -> Callable[..., Source]:
        def make(**settings: Any) -> Source:
            return source(Settings(url=postgres_used_url, **settings))

        return make


@pytest.mark.variant("postgres")
class TestThroughPgBouncer(EngineContract):
    """Which lends a connection for a transaction, to whoever asks."""

    capabilities = CAPABILITIES
    colours = COLOURS if LONG else ("sync",)

    @pytest.fixture
    def make_source(self, pgbouncer_used_url: str) -> Callable[..., Source]:
        def make(**settings: Any) -> Source:
            return source(Settings(url=pgbouncer_used_url, **settings))

        return make

    async def test_one_message_wakes_one_sleeper(self, bench: Bench) -> None:
        """Nobody is notified, and so all wake by time."""
        sleepers = [await bench.sleeper("mail") for _ in range(3)]
        await bench.put("mail")
        await asyncio.wait(sleepers, timeout=WAKE_TIMEOUT)
        assert all(each.done() for each in sleepers)


@by_turns([0])
def test_postgres_does_what_the_model_does_through_pgbouncer(pgbouncer_url: str, colour: str, seed: int) -> None:
    numbers = itertools.count()

    def make(*, dead_for: int, dead_max: int) -> Source:
        return source(Settings(url=pgbouncer_url, namespace=f"check-{next(numbers)}", dead_for=dead_for, dead_max=dead_max))

    check_engine(make, colour=colour, examples=10, steps=50, seed=seed, budget=BUDGET)


@by_turns([0])
def test_postgres_does_what_the_model_does(postgres_url: str, colour: str, seed: int) -> None:
    numbers = itertools.count()

    def make(*, dead_for: int, dead_max: int) -> Source:
        return source(Settings(url=postgres_url, namespace=f"check-{next(numbers)}", dead_for=dead_for, dead_max=dead_max))

    check_engine(make, colour=colour, examples=50, steps=50, seed=seed, budget=BUDGET)


@pytest.mark.always
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 21))])
def test_a_long_history_in_postgres(postgres_url: str, seed: int) -> None:
    numbers = itertools.count()

    def make(**settings: Any) -> Source:
        return source(Settings(url=postgres_url, namespace=f"long-{next(numbers)}", **settings))

    check_long_history(make, seed=seed)
