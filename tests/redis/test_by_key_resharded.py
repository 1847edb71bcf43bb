"""By their keys while old shards empty themselves, and a new one refuses or is silent: what the old ones did is told."""

import asyncio

import pytest

from bide import AsyncQueue, OutcomeUnknown, Outgoing
from bide.engines.redis.namespace import by_name
from bide.engines.redis.protocol import sends
from bide.types import CancelResult, RescheduleResult
from tests.redis.away import engine_of, frozen
from tests.redis.test_part_refuses import NO_REPLICAS, NO_RIGHT, refusing, url
from tests.redis.test_sweeps_away import begin_reshard, place_of
from tests.servers.cluster import RedisCluster

__all__ = ["url"]
SENT = [f"k{i}" for i in range(300)]
VICTIM = 2


async def keys_by_way(masters: RedisCluster, queue: AsyncQueue) -> tuple[list[str], list[str]]:
    """Keys that an old shard has messages of, and others: the new shard of all these is with the server that fails."""
    old, new = (await engine_of(queue))._namespace.generations
    at = {number: await place_of(masters, queue, number) for each in (old, new) for number in each.numbers}
    ways = dict[tuple[int, int], list[str]]()
    for key in [*SENT, *(f"none{i}" for i in range(300))]:
        first, then = by_name("t", key, old), by_name("t", key, new)
        if at[first] != at[VICTIM] == at[then]:
            ways.setdefault((first, then), []).append(key)
    keys = max(ways.values(), key=len)
    return [key for key in keys if key in SENT][:4], [key for key in keys if key not in SENT][:2]


@pytest.mark.parametrize("part", [250, 2])
@pytest.mark.parametrize("verb", ["cancel", "reschedule"])
@pytest.mark.parametrize("how", [NO_RIGHT, NO_REPLICAS, "frozen"])
async def test_what_an_old_shard_did_is_told_if_the_new_one_fails(
    masters: RedisCluster, url: str, monkeypatch: pytest.MonkeyPatch, how: str, verb: str, part: int
) -> None:
    monkeypatch.setattr(sends, "PART", part)
    async with AsyncQueue(url) as queue:
        await queue.send_many("t", [Outgoing(1, key=key, delay=1_000) for key in SENT])
        await asyncio.to_thread(begin_reshard, url, 4)
        await queue.send("t", key="new")
        there, none = await keys_by_way(masters, queue)
        options = {"delay": 5} if verb == "reschedule" else {}
        done = CancelResult.CANCELLED if verb == "cancel" else RescheduleResult.MOVED
        async with frozen(masters, queue, VICTIM) if how == "frozen" else refusing(masters, queue, how, VICTIM):
            calls = [getattr(queue, verb)(topic="t", key=key, **options) for key in [*none[:1], *there, *none[1:]]]
            first, *others, last = await asyncio.gather(*calls, return_exceptions=True)  # in one call of the engine
            assert others == [done] * len(there)
            for each in (first, last):
                assert isinstance(each, OutcomeUnknown)
                assert await place_of(masters, queue, VICTIM) in str(each)
