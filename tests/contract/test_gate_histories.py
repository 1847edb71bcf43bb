"""Random histories of gates, on every engine that has them, beside a model of their own."""

import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from bide.engines.base import Settings
from bide.engines.registry import source
from tests.model.gates import check_gates

FEW, MANY = range(6), range(6, 200)
long = pytest.mark.skipif("BIDE_LONG" not in os.environ, reason="two hundred histories: BIDE_LONG=1 runs them")


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("redis", marks=pytest.mark.server),
        pytest.param("postgres", marks=pytest.mark.server),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param in ("redis", "postgres"):
        found: str = request.getfixturevalue(f"{request.param}_url")
        return found
    return f"memory://{uuid4().hex}" if request.param == "memory" else f"sqlite:///{tmp_path}/bide.db"


def of_seeds(test: Callable[..., None]) -> Callable[..., None]:
    seeds = [*FEW, *(pytest.param(seed, marks=[pytest.mark.slow, long]) for seed in MANY)]
    return pytest.mark.parametrize("seed", seeds)(test)  # type: ignore[no-any-return]


@of_seeds
def test_gates_do_what_their_model_does(url: str, seed: int) -> None:
    place = source(Settings(url=url))
    if not place.capabilities.gates:
        pytest.skip("this engine has no gates")
    check_gates(place.sync, seed=seed)
