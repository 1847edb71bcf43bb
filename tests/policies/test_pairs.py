"""Each policy beside each other: what one promises holds whatever else the task asks for."""

from collections.abc import AsyncIterator
from itertools import combinations
from pathlib import Path

import pytest

from bide import AsyncQueue
from tests.model.turns import LONG
from tests.policies.policies import ALL
from tests.policies.policy import Policy, Stage
from tests.worker.faults import Faults

ENGINES = ("memory", "sqlite", "redis", "postgres")
PAIRS = [(a, b) for a, b in combinations(ALL, 2) if not a.exclusive or a.exclusive != b.exclusive]
CASES = [
    pytest.param(engine, pair, id=f"{engine}-{pair[0].__name__}-{pair[1].__name__}", marks=pytest.mark.server)
    for i, pair in enumerate(PAIRS)
    for engine in (ENGINES if LONG else [ENGINES[i % len(ENGINES)]])
]


@pytest.fixture
async def queue(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[AsyncQueue]:
    places = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/bide.db"}
    async with AsyncQueue(places.get(engine) or request.getfixturevalue(f"{engine}_url")) as made:
        yield made


@pytest.mark.parametrize(("engine", "pair"), CASES)
async def test_two_policies_hold_together(queue: AsyncQueue, engine: str, pair: tuple[type[Policy], type[Policy]]) -> None:
    stage = Stage(queue, await Faults.of(queue), [each() for each in pair])
    await stage.play()
