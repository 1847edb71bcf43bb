"""The contract suite, and the model, on PostgreSQL."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from bide.engines.base import Settings
from bide.engines.postgres import CAPABILITIES, source
from bide.engines.registry import Source
from bide.testing.contract import EngineContract
from tests.model.hypothesis_rules import check_engine
from tests.model.long_history import check_long_history
from tests.model.turns import by_turns


class TestPostgres(EngineContract):
    capabilities = CAPABILITIES

    @pytest.fixture
    def make_source(self, postgres_url: str) -> Callable[..., Source]:
        def make(**settings: Any) -> Source:
            return source(Settings(url=postgres_url, **settings))

        return make


@by_turns([0])
def test_postgres_does_what_the_model_does(postgres_url: str, colour: str, seed: int) -> None:
    numbers = itertools.count()

    def make(*, dead_for: int, dead_max: int) -> Source:
        return source(Settings(url=postgres_url, namespace=f"check-{next(numbers)}", dead_for=dead_for, dead_max=dead_max))

    check_engine(make, colour=colour, examples=50, steps=50, seed=seed)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 21))])
def test_a_long_history_in_postgres(postgres_url: str, seed: int) -> None:
    numbers = itertools.count()

    def make(**settings: Any) -> Source:
        return source(Settings(url=postgres_url, namespace=f"long-{next(numbers)}", **settings))

    check_long_history(make, seed=seed)
