"""The model on a Redis Cluster and on a master that Sentinels watch."""

import itertools
from collections.abc import Callable

import pytest

from bide.engines.base import Settings
from bide.engines.redis import source
from bide.engines.registry import Source
from tests.model.hypothesis_rules import check_engine
from tests.model.long_history import check_long_history
from tests.model.turns import BUDGET, LONG, by_turns

pytestmark = pytest.mark.timeout(1_800 if LONG else 120)
EXAMPLES = 60 if LONG else 8


def anew(url: str) -> Callable[..., Source]:
    numbers = itertools.count()

    def make(*, dead_for: int, dead_max: int) -> Source:
        return source(Settings(url=url, namespace=f"check-{next(numbers)}", dead_for=dead_for, dead_max=dead_max))

    return make


@by_turns([0])
def test_what_sentinels_watch_does_what_the_model_does(redis_sentinels_url: str, colour: str, seed: int) -> None:
    check_engine(anew(redis_sentinels_url), colour=colour, examples=EXAMPLES, steps=40, seed=seed, budget=BUDGET)


@by_turns([0], first=1)
def test_a_cluster_does_what_the_model_does(redis_cluster_url: str, colour: str, seed: int) -> None:
    check_engine(anew(f"{redis_cluster_url}?shards=1"), colour=colour, examples=EXAMPLES, steps=40, seed=seed, budget=BUDGET)


@by_turns([0])
@pytest.mark.usefixtures("alike", "forward")
def test_three_masters_do_what_the_model_does(redis_cluster_url: str, colour: str, seed: int) -> None:
    check_engine(anew(redis_cluster_url), colour=colour, examples=EXAMPLES, steps=40, seed=seed, budget=BUDGET)


@pytest.mark.parametrize("seed", range(500, 511) if LONG else [500])
@pytest.mark.usefixtures("alike", "forward")
def test_a_long_history_of_three_masters(redis_cluster_url: str, seed: int) -> None:
    check_long_history(anew(redis_cluster_url), seed=seed, steps=2_500 if LONG else 500)
