"""The clocks of a Cluster's nodes differ by seconds: each schedule goes by the clock of the node that has it."""

from collections import defaultdict
from contextlib import ExitStack

import pytest

from bide import Queue, Worker, current
from bide.clock import epoch_ms
from bide.engines.redis.protocol.encoding import name_of
from tests.servers.cluster import RedisCluster
from tests.servers.programs import needs_program
from tests.servers.stepped import stepped_clock
from tests.worker.conftest import once as until

SKEWS = (0.0, 4.0, -4.0)  # seconds
SCHEDULES = [f"tick{number}" for number in range(9)]
CALLS = 4


@pytest.mark.always
async def test_each_schedule_goes_on() -> None:
    needs_program("redis-server")
    with ExitStack() as stack:
        clocks = [stack.enter_context(stepped_clock()) for _ in SKEWS]
        cluster = stack.enter_context(RedisCluster(replicas=0, under=[clock.under for clock in clocks]))
        for clock, skew in zip(clocks, SKEWS, strict=True):
            clock.step(skew)
        queue = stack.enter_context(Queue(cluster.url))
        planned: dict[str, list[int]] = defaultdict(list)
        nodes = set[int]()
        for name in SCHEDULES:

            @queue.every("1s", topic=name, name=name)
            async def tick() -> None:
                delivery = current()
                assert delivery is not None
                assert delivery.planned_at is not None
                planned[delivery.topic].append(epoch_ms(delivery.planned_at))
                nodes.add(name_of(delivery.id).shard)

        async with Worker(queue, grace=0):
            await until(lambda: all(len(planned[name]) >= CALLS for name in SCHEDULES))
    assert len(nodes) == len(SKEWS)
    for name in SCHEDULES:
        assert len(set(planned[name])) == len(planned[name]), "an instant came again"
