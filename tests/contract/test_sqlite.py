"""The contract suite, and the model, on SQLite."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bide.clock import ManualClock
from bide.engines.base import Settings
from bide.engines.registry import Source
from bide.engines.sqlite import CAPABILITIES, source
from bide.testing.contract import EngineContract
from tests.model.hypothesis_rules import check_engine
from tests.model.turns import BUDGET, by_turns


class TestSqlite(EngineContract):
    capabilities = CAPABILITIES

    @pytest.fixture
    def make_source(self, tmp_path: Path) -> Callable[..., Source]:
        url = f"sqlite:///{tmp_path}/bide.db"

        def make(**settings: Any) -> Source:
            return source(Settings(url=url, **settings))

        return make


@pytest.mark.always
@by_turns([0], first=1)
def test_sqlite_does_what_the_model_does(tmp_path: Path, colour: str, seed: int) -> None:
    numbers = itertools.count()

    def make(*, dead_for: int, dead_max: int) -> Source:
        url = f"sqlite:///{tmp_path}/{next(numbers)}.db"
        return source(Settings(url=url, dead_for=dead_for, dead_max=dead_max, clock=ManualClock()))

    check_engine(make, colour=colour, examples=50, steps=50, seed=seed, budget=BUDGET)
