"""The contract suite on a Redis Cluster and on a master that Sentinels watch."""

from collections.abc import Callable
from typing import Any

import pytest

from bide.engines.base import Settings
from bide.engines.redis import CAPABILITIES, source
from bide.engines.registry import Source
from bide.testing.contract import EngineContract
from tests.model.turns import COLOURS, LONG

IN_ONE_SHARD = {
    # the order of messages
    "test_a_key_is_free_when_its_message_has_ended",
    "test_a_message_set_aside_can_be_called_back_to_the_front",
    "test_a_paused_topic_hands_out_nothing_and_tells_no_time",
    "test_higher_priority_comes_first",
    "test_an_operation_is_forgotten_after_ten_minutes",
    "test_release_without_a_delay_keeps_the_due_time",
    "test_requeue_leaves_what_is_not_dead_alone",
    "test_what_is_due_first_comes_first",
    # the time that one server has told, which others don't know
    "test_engine_time_never_goes_back",
    # how many dead letters are kept, and for how long it is known how many were not
    "test_dead_letters_that_are_too_many_are_dropped_and_counted",
    "test_dead_letters_that_are_too_old_are_dropped_and_counted",
}
"""What holds in each shard, and not over all of them."""


@pytest.mark.variant("redis")
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


@pytest.mark.variant("redis")
class TestRedisSentinel(EngineContract):
    capabilities = CAPABILITIES
    colours = COLOURS if LONG else ("sync",)

    @pytest.fixture
    def make_source(self, redis_sentinels_url: str) -> Callable[..., Source]:
        def make(**settings: Any) -> Source:
            return source(Settings(url=redis_sentinels_url, **settings))

        return make
