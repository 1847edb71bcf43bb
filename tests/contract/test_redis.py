"""The contract suite, and the model, on Redis."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from bide.engines.base import Settings
from bide.engines.redis import CAPABILITIES, source
from bide.engines.registry import Source
from bide.testing.contract import EngineContract
from tests.model.hypothesis_rules import check_engine
from tests.model.turns import BUDGET, by_turns


class TestRedis(EngineContract):
    capabilities = CAPABILITIES

    @pytest.fixture
    def make_source(self, redis_url: str) -> Callable[..., Source]:
        def make(**settings: Any) -> Source:
            return source(Settings(url=redis_url, **settings))

        return make


@pytest.mark.always
@by_turns([0])
def test_redis_does_what_the_model_does(redis_url: str, colour: str, seed: int) -> None:
    numbers = itertools.count()

    def make(*, dead_for: int, dead_max: int) -> Source:
        return source(Settings(url=redis_url, namespace=f"check-{next(numbers)}", dead_for=dead_for, dead_max=dead_max))

    check_engine(make, colour=colour, examples=50, steps=50, seed=seed, budget=BUDGET)
