"""Random histories of kept results, on every engine that has them, beside a model; and faults that it must find."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from bide.engines.base import Settings
from bide.engines.memory import source as in_memory
from bide.engines.memory.result import ResultStore
from bide.engines.registry import source
from bide.engines.results import OPEN, Dependent, Kept, Result
from tests.model.results import check_results

FEW, MANY = range(6), range(6, 200)
long = pytest.mark.skipif("BIDE_LONG" not in os.environ, reason="two hundred histories: BIDE_LONG=1 runs them")


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("redis", marks=pytest.mark.server),
        pytest.param("three shards", marks=pytest.mark.server),
        pytest.param("postgres", marks=pytest.mark.server),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param in ("redis", "postgres"):
        found: str = request.getfixturevalue(f"{request.param}_url")
        return found
    if request.param == "three shards":
        return f"{request.getfixturevalue('redis_url')}?shards=3"
    return f"memory://{uuid4().hex}" if request.param == "memory" else f"sqlite:///{tmp_path}/bide.db"


def of_seeds(test: Callable[..., None]) -> Callable[..., None]:
    seeds = [*FEW, *(pytest.param(seed, marks=[pytest.mark.slow, long]) for seed in MANY)]
    return pytest.mark.parametrize("seed", seeds)(test)  # type: ignore[no-any-return]


@of_seeds
def test_results_do_what_their_model_does(url: str, seed: int) -> None:
    check_results(source(Settings(url=url)).sync, seed=seed)


class ExpectingOverwrites(ResultStore):
    def expect(self, id: str, until: int, now: int) -> None:
        self.keep(id, OPEN, until)


class NothingEnds(ResultStore):
    def find(self, id: str, now: int) -> Any:
        known = self._known.get(id)
        return None if known is None else known.result


class EarlierDeliveriesCount(ResultStore):
    def fulfil(self, new: Kept, now: int) -> None:
        self.keep(new.id, Result(done=True, value=new.value), now + new.lasts, new.token)


class OneFollower(ResultStore):
    def followers(self, id: str) -> list[str]:
        return super().followers(id)[:1]


class AnyArrivalIsEnough(ResultStore):
    def arrive(self, dependent: str, on: str | None, now: int) -> bool:
        if on is None:
            return super().arrive(dependent, on, now)
        waiting = self._waiting.get(dependent)
        return waiting is not None and waiting.until > now and on in waiting.on


class DependingStartsAnew(ResultStore):
    def depend(self, new: Dependent) -> None:
        self.forget(new.id)
        super().depend(new)


class NothingIsForgotten(ResultStore):
    def forget(self, dependent: str) -> None: ...


class TidiesTooMuch(ResultStore):
    def tidy(self, now: int, limit: int) -> bool:
        return super().tidy(now + 4_000, limit)


FAULTS = [
    ExpectingOverwrites,
    NothingEnds,
    EarlierDeliveriesCount,
    OneFollower,
    AnyArrivalIsEnough,
    DependingStartsAnew,
    NothingIsForgotten,
    TidiesTooMuch,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_model_finds_a_fault(fault: type[ResultStore]) -> None:
    def found(seed: int) -> bool:
        place = in_memory(Settings(url="memory://"))
        place._store.results = fault()
        try:
            check_results(place.sync, seed=seed)
        except AssertionError:
            return True
        return False

    assert any(found(seed) for seed in range(10))
