"""Each policy beside each other: what one promises holds whatever else the task asks for, or both are refused together."""

import re
from collections.abc import AsyncIterator
from itertools import combinations
from pathlib import Path
from typing import TypeAlias

import pytest

from bide import AsyncQueue, BadMessage, ConfigError
from tests.model.turns import LONG
from tests.policies.every import ALL, REFUSED
from tests.policies.policy import TOPIC, Policy, Stage
from tests.worker.faults import Faults

Pair: TypeAlias = tuple[type[Policy], type[Policy]]

ENGINES = ("memory", "sqlite", "redis", "postgres")
PAIRS = [pair for pair in combinations(ALL, 2) if not set(pair[0].exclusive) & set(pair[1].exclusive)]
TOGETHER = [pair for pair in PAIRS if frozenset(pair) not in REFUSED]
CASES = [
    pytest.param(engine, pair, id=f"{engine}-{pair[0].__name__}-{pair[1].__name__}", marks=pytest.mark.server)
    for i, pair in enumerate(TOGETHER)
    for engine in (ENGINES if LONG else [ENGINES[i % len(ENGINES)]])
]


@pytest.fixture
async def queue(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[AsyncQueue]:
    places = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/bide.db"}
    server = {"redis": "redis_url", "postgres": "postgres_used_url"}
    async with AsyncQueue(places.get(engine) or request.getfixturevalue(server[engine])) as made:
        yield made


@pytest.mark.parametrize(("engine", "pair"), CASES)
async def test_two_policies_hold_together(queue: AsyncQueue, engine: str, pair: Pair) -> None:
    stage = Stage(queue, await Faults.of(queue), [each() for each in pair])
    await stage.play()


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if frozenset(pair) in REFUSED], ids=lambda pair: "-".join(each.__name__ for each in pair)
)
async def test_two_policies_that_contradict_each_other_are_refused(pair: Pair) -> None:
    async with AsyncQueue("memory://") as queue:
        with pytest.raises((BadMessage, ConfigError), match=re.escape(REFUSED[frozenset(pair)])):
            await Stage(queue, await Faults.of(queue), [each() for each in pair]).play()
        assert not (await queue.stats(TOPIC)).pending
