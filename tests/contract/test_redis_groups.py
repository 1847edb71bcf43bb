"""The contract suite, and the model, on a Redis Cluster and on a master that Sentinels watch."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from bide.engines.base import Settings
from bide.engines.redis import CAPABILITIES, source
from bide.engines.registry import Source
from bide.testing.contract import EngineContract
from tests.model.hypothesis_rules import check_engine
from tests.model.turns import COLOURS, LONG

IN_ONE_SHARD = {
    # the order of messages
    "test_a_key_is_free_when_its_message_has_ended",
    "test_a_paused_topic_hands_out_nothing_and_tells_no_time",
    "test_higher_priority_comes_first",
    "test_an_operation_is_forgotten_after_ten_minutes",
    "test_requeue_leaves_what_is_not_dead_alone",
    "test_what_is_due_first_comes_first",
    # the time that one server has told, which others don't know
    "test_engine_time_never_goes_back",
    # how many dead letters are kept, and for how long it is known how many were not
    "test_dead_letters_that_are_too_many_are_dropped_and_counted",
    "test_dead_letters_that_are_too_old_are_dropped_and_counted",
}
"""What holds in each shard, and not over all of them."""


class TestRedisCluster(EngineContract):
    """Over three masters, and three shards."""

    capabilities = CAPABILITIES
    colours = COLOURS if LONG else ("async",)

    @pytest.fixture
    def make_source(self, redis_cluster_url: str, request: pytest.FixtureRequest) -> Callable[..., Source]:
        url = redis_cluster_url + ("?shards=1" if request.node.originalname in IN_ONE_SHARD else "")

        def make(**settings: Any) -> Source:
            return source(Settings(url=url, **settings))

        return make


class TestRedisSentinel(EngineContract):
    capabilities = CAPABILITIES
    colours = COLOURS if LONG else ("sync",)

    @pytest.fixture
    def make_source(self, redis_sentinels_url: str) -> Callable[..., Source]:
        def make(**settings: Any) -> Source:
            return source(Settings(url=redis_sentinels_url, **settings))

        return make


@pytest.fixture(params=["redis_cluster_url", "redis_sentinels_url"])
def group_url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("colour", ["async", "sync"])
def test_several_servers_do_what_the_model_does(group_url: str, colour: str) -> None:
    """In one shard: the model has one order and one clock."""
    numbers = itertools.count()

    def make(*, dead_for: int, dead_max: int) -> Source:
        return source(
            Settings(url=f"{group_url}?shards=1", namespace=f"check-{next(numbers)}", dead_for=dead_for, dead_max=dead_max)
        )

    check_engine(make, colour=colour, examples=30 if LONG else 8, steps=40, seed=0)
