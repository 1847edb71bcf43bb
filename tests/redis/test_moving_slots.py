"""Slots of a Cluster that move between its masters: nothing is lost, and whoever calls waits, without an error."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, Locked, OutcomeUnknown, Outgoing, Queue
from bide.engines.redis import failures
from bide.engines.redis.protocol.encoding import name_of
from bide.engines.redis.topology import read, slot_of
from tests.redis.away import COLOURS, SHARDS, Either, engine_of, gates_of, keys_of
from tests.redis.failing_over import Crowd, judge
from tests.servers.cluster import ClusterNode, RedisCluster
from tests.servers.fixtures import NewCluster
from tests.worker.conftest import once

LONG = os.environ.get("BIDE_LONG")
pytestmark = pytest.mark.timeout(1_800 if LONG else 120)
NAMESPACE = "bide"
PATIENCE = 60.0
LEASE = 3  # seconds
REFUSALS = ("errorstat_TRYAGAIN", "errorstat_ASK")


def slots_of(cluster: RedisCluster) -> list[int]:
    """Those of the queue's shards, in their order."""
    anchor = cluster.node_of(slot_of(f"{NAMESPACE}:0"))
    spread = anchor.ask("HGET", f"{{{NAMESPACE}:0}}:meta", "shards")
    known = read(spread.decode())
    return [slot_of(each.tag(NAMESPACE, number)) for each in known.generations for number in each.numbers]


def next_master(cluster: RedisCluster, slot: int) -> ClusterNode:
    masters = cluster.masters()
    return masters[(masters.index(cluster.node_of(slot)) + 1) % len(masters)]


@pytest.mark.always
def test_slots_that_move_under_load_lose_nothing_and_raise_nothing(new_cluster: NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster()
    crowd = Crowd(cluster.url, tmp_path, loses=False)
    with crowd.at_work():
        slots = slots_of(cluster)
        assert len(slots) == len(cluster.masters())
        for turn in range(5 if LONG else 1):
            for number, slot in enumerate(slots):
                held = turn == number  # once for each shard
                with crowd.fault("migrate, held" if held else "migrate") as dealt:
                    with cluster.migrate(slot, next_master(cluster, slot), keys_at_once=3) as migration:
                        migration.until("moved")  # half of it is here, and half there
                        if held:
                            crowd.stage.stop.wait(25 if LONG else 2)
                    dealt.now()
    outcome = judge(crowd)
    assert not outcome.raised
    assert outcome.lost == 0


def test_calls_wait_for_a_shard_that_moves(redis_cluster: RedisCluster, redis_cluster_url: str) -> None:
    """Also those that begin when it is known to take nothing. Only counts are told without it."""
    with Queue(redis_cluster_url) as queue:
        for n in range(30):
            queue.send("t", n)
        found = queue.receive("t", limit=30, lease=60)
        first, acked, extended, retried, *_ = [each for each in found if name_of(each.id).shard == 0]
        waiting = next(each for each in iter(lambda: queue.send("t", delay="1h"), None) if name_of(each.id).shard == 0)
        slot = slots_of(redis_cluster)[0]
        owner = redis_cluster.node_of(slot)
        calls: Sequence[Callable[[], object]] = [
            acked.ack,
            lambda: extended.extend("2m"),
            lambda: retried.retry("1h"),
            lambda: queue.get(waiting.id),
            lambda: queue.reschedule(waiting.id, delay="2h"),
        ]
        try:
            with ThreadPoolExecutor(1 + len(calls)) as threads:
                with redis_cluster.migrate(slot, next_master(redis_cluster, slot), keys_at_once=1) as migration:
                    migration.until("moved")
                    begun: list[Future[object]] = [threads.submit(first.ack)]
                    wait_for_refusals(owner, 3)
                    begun += map(threads.submit, calls)
                    wait_for_refusals(owner, 6 * len(begun))
                    assert queue.stats("t").missing
                    assert not any(each.done() for each in begun)
                for each in begun:
                    each.result(PATIENCE)
        finally:
            redis_cluster.migrate(slot, owner).finish()


def wait_for_refusals(node: ClusterNode, more: int) -> None:
    """Until it has refused so many more commands, as it does not have all keys of a slot any more."""
    enough, give_up = refusals(node) + more, time.monotonic() + PATIENCE
    while refusals(node) < enough:
        assert time.monotonic() < give_up, "nobody asks for the slot"
        time.sleep(0.01)


def refusals(node: ClusterNode) -> int:
    return sum(each["count"] for name, each in node.info("errorstats").items() if name in REFUSALS)


@contextlib.asynccontextmanager
async def half_moved(masters: RedisCluster, queue: AsyncQueue, shard: int) -> AsyncIterator[None]:
    """One key of the shard's slot lies at the next master, and all others where they were."""
    slot = slot_of((await engine_of(queue))._namespace.tag(shard))
    owner = masters.node_of(slot)
    try:
        with masters.migrate(slot, next_master(masters, slot), keys_at_once=1) as migration:
            migration.until("moved")
            yield
    finally:
        masters.migrate(slot, owner).finish()


@contextlib.asynccontextmanager
async def listened(other: Either, many: int) -> AsyncIterator[list[Any]]:
    """So many deliveries that a listener holds."""
    found = other.queue.listen("t", limit=many, lease=LEASE)
    if isinstance(other.queue, AsyncQueue):
        async with contextlib.aclosing(found):
            yield [await anext(found) for _ in range(many)]
    else:
        with contextlib.closing(found):
            yield await asyncio.to_thread(lambda: [next(found) for _ in range(many)])


async def lease_ends(queue: AsyncQueue, ids: Sequence[str]) -> dict[str, int]:
    """Of messages that are leased, in ms."""
    found = [await queue.get(id) for id in ids]
    ends = [each.lease_until for each in found if each is not None and each.lease_until is not None]
    return dict(zip(ids, ends, strict=True))


@pytest.mark.parametrize("colour", COLOURS)
async def test_leases_in_other_shards_are_renewed_while_a_slot_is_half_moved(
    masters: RedisCluster, masters_url: str, colour: str
) -> None:
    async with AsyncQueue(masters_url) as queue, Either(masters_url, colour) as other:
        await queue.send_many("t", [Outgoing(shard, key=key) for shard in range(SHARDS) for key in keys_of(shard, 3)])
        async with listened(other, 3 * SHARDS) as held:
            kept = [each.id for each in held if each.body != 1]
            ends = now = await lease_ends(queue, kept)
            async with half_moved(masters, queue, 1):
                while any(now[id] <= end + 1000 * LEASE for id, end in ends.items()):
                    assert await queue.receive("t", limit=9) == []
                    now = await lease_ends(queue, kept)


async def free_at(queue: AsyncQueue, lock: str) -> float:
    """When a lock is free unless its holder renews it, by time.monotonic()."""
    with pytest.raises(Locked) as told:
        await queue.lock(lock).__aenter__()
    return time.monotonic() + (told.value.remaining or 0.0)


@pytest.mark.always
@pytest.mark.parametrize("colour", COLOURS)
async def test_locks_in_other_shards_are_renewed_while_a_slot_is_half_moved(
    masters: RedisCluster, masters_url: str, colour: str
) -> None:
    async with AsyncQueue(masters_url) as queue, Either(masters_url, colour) as other:
        names = [gates_of(shard, 1)[0] for shard in (1, 0, 2)]
        locks = [other.queue.lock(name, ttl=LEASE) for name in names]
        for lock in locks:
            await (lock.__aenter__() if colour == "async" else asyncio.to_thread(lock.__enter__))
        ends = {name: await free_at(queue, name) for name in names[1:]}
        async with half_moved(masters, queue, 1):
            while any([await free_at(queue, name) <= end + LEASE for name, end in ends.items()]):
                pass
            assert [lock.lost for lock in locks[1:]] == [False, False]
            for lock in locks[1:]:
                await (lock.__aexit__(*[None] * 3) if colour == "async" else asyncio.to_thread(lock.__exit__, *[None] * 3))


class Noted(float):
    """Seconds for which somebody waits, from when."""

    def __init__(self, _: float) -> None:
        self.waited: list[float] = []

    def __radd__(self, began: float) -> float:
        self.waited.append(began)
        return began + float(self)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(
    ("verb", "how"),
    [
        ("stats", {}),
        ("messages", {}),
        ("requeue", {}),
        ("requeue", {"ids": ...}),
        ("purge", {"state": "dead"}),
        ("purge", {"state": "dead", "ids": ...}),
        ("cancel_all", {}),
    ],
)
async def test_what_other_shards_can_do_does_not_wait_until_a_slot_has_moved(
    masters: RedisCluster, masters_url: str, monkeypatch: pytest.MonkeyPatch, colour: str, verb: str, how: dict[str, Any]
) -> None:
    """A call that needs the shard does."""
    migration = Noted(1.0)
    monkeypatch.setattr(failures, "MIGRATION", migration)
    async with AsyncQueue(masters_url) as queue, Either(masters_url, colour) as other:
        some = [Outgoing(shard, key=key) for shard in range(SHARDS) for key in keys_of(shard, 3)]
        ids = [each.id for each in await queue.send_many("t", some)]
        if verb != "cancel_all":
            for delivery in await queue.receive("t", limit=len(some)):
                await delivery.bury("broken")
        await other.do("stats")
        async with half_moved(masters, queue, 1):
            with contextlib.nullcontext() if verb in ("stats", "messages") else pytest.raises(OutcomeUnknown, match="6 in all"):
                told = await other.do(verb, "t", **(how | ({"ids": ids} if "ids" in how else {})))
                assert len(told.missing) == 1
            assert not migration.waited
            needs_it = other.begin("get", ids[3])
            await once(lambda: bool(migration.waited))
        assert (await needs_it).id == ids[3]
