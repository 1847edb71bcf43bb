"""One of three masters is frozen, and there is nobody to take its place: who needs only the others feels nothing."""

import asyncio
import contextlib
import itertools
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from bide import AsyncQueue, Locked, LockLost, OutcomeUnknown, Outgoing, Queue, Unavailable, Where, Worker, current
from bide.engines.base import Ref
from bide.engines.redis.presence import HASTE
from bide.queue.schedules import records
from tests.redis.away import COLOURS, SHARDS, Either, engine_of, frozen, gates_of, keys_of, shard_of
from tests.servers.cluster import RedisCluster

SLOTS = 10
GIVEN_UP = 18.0  # seconds: more than those for which a call is repeated
SOON = 3.0  # seconds: less than the 5 that a command waits for an answer, and the 15 for which it is repeated


@pytest.fixture
def url(masters_url: str) -> str:
    return masters_url


async def test_leases_in_other_shards_are_kept_although_the_heartbeat_begins_while_a_shard_is_away(
    masters: RedisCluster, url: str
) -> None:
    async with AsyncQueue(url) as queue, AsyncQueue(url) as other:
        await other.stats("t")
        for shard in range(SHARDS):
            await queue.send_many("t", [Outgoing(shard, key=key) for key in keys_of(shard, 5)])
        held: list[Any] = []
        async with contextlib.aclosing(queue.listen("t", limit=20, lease="3s")) as deliveries:
            async for delivery in deliveries:
                held.append(delivery)
                if len(held) == 5 * SHARDS:
                    break
            async with frozen(masters, queue, 2):
                until = time.monotonic() + 8
                while time.monotonic() < until:
                    assert await other.receive("t", limit=20, wait=0.5) == []
                for each in held:
                    if each.body != 2:
                        await each.ack()


async def test_locks_in_other_shards_are_kept_and_can_be_taken_while_a_shard_is_away(masters: RedisCluster, url: str) -> None:
    async with AsyncQueue(url) as queue, AsyncQueue(url) as other:
        await other.stats("t")
        names = [*gates_of(0, 2), *gates_of(1, 2)]
        async with contextlib.AsyncExitStack() as stack:
            locks = [await stack.enter_async_context(queue.lock(name, ttl="3s")) for name in names]
            stack.push_async_exit(gives_up_its_lock)
            await stack.enter_async_context(queue.lock(gates_of(2, 1)[0], ttl="3s"))
            async with frozen(masters, queue, 2):
                until = time.monotonic() + 8
                while time.monotonic() < until:
                    for name in names:
                        with pytest.raises(Locked):
                            async with other.lock(name, ttl="3s"):
                                raise AssertionError("taken")
                    await asyncio.sleep(0.2)
                began = time.monotonic()
                async with other.lock(gates_of(0, 3)[2], ttl="3s"):
                    assert time.monotonic() - began < SOON
                assert [lock.lost for lock in locks] == [False] * len(locks)


async def test_a_lock_that_can_not_be_taken_says_so_after_one_patience(masters: RedisCluster, url: str) -> None:
    async with AsyncQueue(f"{url}&timeout=2") as queue:
        await queue.stats()
        async with frozen(masters, queue, 2):
            await queue.stats()
            began = time.monotonic()
            with pytest.raises((Unavailable, OutcomeUnknown)):
                async with queue.lock(gates_of(2, 1)[0]):
                    raise AssertionError("taken")
            assert time.monotonic() - began < 9  # of twice three times the timeout


async def test_a_lock_that_is_cancelled_while_its_shard_is_away_ends_at_once(masters: RedisCluster, url: str) -> None:
    name = gates_of(2, 1)[0]
    async with AsyncQueue(url) as queue:
        await queue.stats()
        async with frozen(masters, queue, 2):
            entering = asyncio.create_task(queue.lock(name).__aenter__())
            away = asyncio.create_task(queue.send("t", 2, key=keys_of(2, 1)[0]))
            assert (await queue.stats()).missing
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering
            assert not away.done()
        await away
        async with queue.lock(name, wait="1m"):  # what it may have entered was given back, or is over with its lease
            pass


async def gives_up_its_lock(kind: Any, error: Any, trace: Any) -> bool:
    """That of the shard which is away is lost."""
    return isinstance(error, LockLost)


@pytest.mark.parametrize("shard", range(SHARDS))
async def test_a_program_starts_while_a_shard_is_away(masters: RedisCluster, url: str, shard: int) -> None:
    async with AsyncQueue(url) as queue:
        for each in range(SHARDS):
            await queue.send_many("t", [Outgoing(each, key=key) for key in keys_of(each, 3)])
        async with frozen(masters, queue, shard):
            began = time.monotonic()
            bodies = await asyncio.to_thread(begin, url, shard)
            seconds = time.monotonic() - began
    assert sorted(bodies) == sorted([each for each in range(SHARDS) if each != shard] * 3 + [9])
    assert seconds < 2 * SOON


async def test_a_program_starts_while_the_first_shard_is_away_and_the_others_were_never_used(
    masters: RedisCluster, url: str
) -> None:
    async with AsyncQueue(url) as queue:
        await queue.stats()
        async with frozen(masters, queue, 0):
            began = time.monotonic()
            async with AsyncQueue(url) as new:
                for _ in range(2 * SHARDS):
                    await new.send("t", 1)
                for shard in (1, 2):
                    await new.send("t", 1, key=keys_of(shard, 1)[0])
            assert time.monotonic() - began < 3 * SOON


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_program_starts_while_the_first_shard_is_away_and_the_others_were_for_a_moment(
    masters: RedisCluster, url: str, colour: str
) -> None:
    """To a program that is held up itself all servers seem so."""
    async with AsyncQueue(url) as queue:
        await queue.stats()
        async with frozen(masters, queue, 0):
            async with frozen(masters, queue, 1), frozen(masters, queue, 2):
                new = Either(url, colour)
                sent = new.begin("send", "t", 1, key=keys_of(1, 1)[0])
                await asyncio.sleep(2.5 * HASTE)  # longer than any of them is waited for
                assert not sent.done()
            await sent
            await new.do("close")


def begin(url: str, shard: int) -> list[Any]:
    """What a new program finds."""
    with Queue(url) as queue:
        queue.send("t", 9, key=keys_of((shard + 1) % SHARDS, 4)[3])
        found: list[Any] = []
        while some := queue.receive("t", limit=20):
            found += [each.body for each in some]
            queue.ack_many(some)
        with queue.lock(gates_of((shard + 1) % SHARDS, 1)[0]):
            return found


async def test_sends_with_a_key_of_another_shard_wait_for_none_that_is_away(masters: RedisCluster, url: str) -> None:
    async with AsyncQueue(url) as queue:
        await queue.send("t", 0)
        slow: list[float] = []

        async def timed(call: Any) -> None:
            began = time.monotonic()
            await call
            slow.append(time.monotonic() - began)

        async with frozen(masters, queue, 2), asyncio.TaskGroup() as group:
            away = [asyncio.create_task(queue.send("t", 2, key=key)) for key in keys_of(2, 5)]
            for first, second in zip(keys_of(0, 60), keys_of(1, 60), strict=True):
                for key in (first, second):
                    group.create_task(timed(queue.send("t", 1, key=key, delay=100)))
                await asyncio.sleep(0.02)
            for key in keys_of(0, 20):
                group.create_task(timed(queue.cancel(topic="t", key=key)))
                group.create_task(timed(queue.reschedule(topic="t", key=key, delay=50)))
                await asyncio.sleep(0.02)
            for _ in range(40):
                group.create_task(timed(queue.send("t", 3)))
                await asyncio.sleep(0.02)
            assert not any(task.done() for task in away)
        assert max(slow[-40:]) < SOON or sum(each > SOON for each in slow[-40:]) <= 3  # what was on its way to it
        assert max(slow[:160]) < 1
        await asyncio.gather(*away)


async def test_a_send_goes_to_the_shard_that_answered_last_when_none_seems_to(masters: RedisCluster, url: str) -> None:
    """As when this process gets no time for a moment."""
    async with AsyncQueue(url) as queue:
        await queue.stats()
        shards = (await engine_of(queue))._shards
        async with frozen(masters, queue, 2):
            began = time.monotonic()
            assert (await queue.stats()).missing
            for _ in range(2 * SHARDS):
                for shard in shards:
                    shard.connections.server.presence.lose()
                await queue.send("t", 1)
                for shard in shards:
                    shard.connections.server.presence.lose()
                await queue.send_many("t", [1, 2])
            assert time.monotonic() - began < 2 * SOON


LIMITS: dict[str, dict[str, Any]] = {
    "lock": {"lock": "l:{n}"},
    "error": {"lock": "l:{n}", "on_conflict": "error"},
    "rate": {"rate": "100/s", "per": "{n}"},
    "concurrency": {"concurrency": 5, "per": "{n}"},
    "keep": {"keep": "1m"},
}


class Calls:
    """Of a handler, by its messages."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.attempts: set[int] = set()
        self._changed = asyncio.Event()

    def note(self, n: int) -> None:
        delivery = current()
        assert delivery is not None
        self.attempts.add(delivery.attempt)
        self.counts[n] += 1
        self._changed.set()

    async def wait_for(self, many: Iterable[int], seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while not self.counts.keys() >= set(many):
                self._changed.clear()
                await self._changed.wait()


async def send_all(handle: Any, messages: Iterable[tuple[str, int]]) -> list[Any]:
    return [await handle.options(key=key).send(n) for key, n in messages]


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("lock", 0), ("error", 0), ("rate", 0), ("concurrency", 0), pytest.param("error", GIVEN_UP, marks=pytest.mark.slow)],
)
async def test_a_message_whose_gate_is_in_a_shard_that_is_away_keeps_no_slot(
    masters: RedisCluster, url: str, limit: str, seconds: float
) -> None:
    """There are more of them than slots; each is called in the end, once, in its first attempt. It leaves its lock."""
    calls = Calls()
    async with AsyncQueue(url) as queue:

        @queue.task("t", **LIMITS[limit])
        async def handle(n: int) -> None:
            calls.note(n)

        engine = await engine_of(queue)

        def is_ill(n: int) -> bool:
            limits = handle.definition.limits
            assert limits is not None
            return any(2 in engine.gates.part_of(each.gate) for each in limits.steps({"n": n}))

        healthy = itertools.cycle([*keys_of(0, 200), *keys_of(1, 200)])
        well = zip(healthy, itertools.filterfalse(is_ill, itertools.count()), strict=False)
        ill = list(itertools.islice(zip(healthy, filter(is_ill, itertools.count()), strict=False), 4 * SLOTS))
        async with Worker(queue, concurrency=SLOTS):
            await send_all(handle, begun := list(itertools.islice(well, 5)))
            await calls.wait_for([n for _, n in begun], SOON)
            async with frozen(masters, queue, 2):
                await send_all(handle, ill)
                for _ in range(4):
                    await send_all(handle, own := list(itertools.islice(well, 2 * SLOTS)))
                    await calls.wait_for([n for _, n in own], 2 * SOON)
                await asyncio.sleep(seconds)
                assert not calls.counts.keys() & {n for _, n in ill}
            await calls.wait_for([n for _, n in ill], 40)
            for _, n in ill:
                async with queue.lock(f"l:{n}", wait=SOON):
                    pass
    assert set(calls.counts.values()) == {1}
    assert calls.attempts == {1}


async def test_a_message_whose_result_is_for_a_shard_that_is_away_keeps_no_slot(masters: RedisCluster, url: str) -> None:
    """All slots have one. The results are kept in the end, and no handler runs again."""
    calls, away = Calls(), asyncio.Event()
    async with AsyncQueue(url) as queue:

        @queue.task("t", keep="1m")
        async def handle(n: int) -> int:
            calls.note(n)
            if n < SLOTS:
                await away.wait()
            return n

        async with Worker(queue, concurrency=SLOTS):
            sent = await send_all(handle, zip(keys_of(2, SLOTS), range(SLOTS), strict=True))
            await calls.wait_for(range(SLOTS), SOON)
            async with frozen(masters, queue, 2):
                away.set()
                own = list(zip(keys_of(0, 2 * SLOTS), range(SLOTS, 3 * SLOTS), strict=True))
                await send_all(handle, own)
                await calls.wait_for([n for _, n in own], 2 * SOON)
            assert [await queue.result(each, timeout=20) for each in sent] == list(range(SLOTS))
    assert set(calls.counts.values()) == {1}


@pytest.mark.always
@pytest.mark.parametrize("limit", LIMITS)
async def test_a_worker_goes_on_with_what_needs_only_other_shards(masters: RedisCluster, url: str, limit: str) -> None:
    done: dict[int, float] = {}
    changed = asyncio.Event()
    async with AsyncQueue(url) as queue:

        @queue.task("t", **LIMITS[limit])
        async def handle(n: int) -> int:
            done[n] = time.monotonic()
            changed.set()
            return n

        engine = await engine_of(queue)

        def needs(n: int) -> set[int]:
            """The shards of its gates."""
            limits = handle.definition.limits
            gates = limits.steps({"n": n}) if limits is not None else []
            return {shard for each in gates for shard in engine.gates.part_of(each.gate)}

        keys = zip(map("k{}".format, itertools.count()), itertools.count(), strict=True)
        well = ((key, n) for key, n in keys if shard_of("t", key) != 2 and 2 not in needs(n))
        ill = ((key, n) for key, n in keys if shard_of("t", key) == 2 or 2 in needs(n))
        barred = ((key, n) for key, n in keys if shard_of("t", key) != 2 and 2 in needs(n))
        sent: dict[int, float] = {}

        async def handled(many: Iterable[int], seconds: float) -> None:
            async with asyncio.timeout(seconds):
                while not done.keys() >= set(many):
                    changed.clear()
                    await changed.wait()

        async def send(key: str, n: int) -> None:
            sent[n] = time.monotonic()
            await handle.options(key=key).send(n)

        async with Worker(queue, concurrency=20), asyncio.TaskGroup() as group:
            for _ in range(20):
                await send(*next(well))
            away = [asyncio.ensure_future(send(*next(ill))) for _ in range(20)]
            async with frozen(masters, queue, 2):
                own: list[int] = []
                for key, n in itertools.islice(well, 100):
                    own.append(n)
                    group.create_task(send(key, n))
                    if limit != "keep":
                        group.create_task(send(*next(barred)))
                    await asyncio.sleep(0.03)
                await handled(own, SOON)
                late = sorted(done[n] - sent[n] for n in own)
                assert late[-1] < SOON, late[-5:]
                assert late[90] < 1, late[-12:]  # what waits for the silent shard takes five seconds
            await asyncio.gather(*away)
            await handled(sent, 30)


@pytest.mark.always
async def test_counts_and_pages_name_the_server_that_is_missing(masters: RedisCluster, url: str) -> None:
    async with AsyncQueue(url) as queue:
        for shard in range(SHARDS):
            await queue.send_many("t", [Outgoing(shard, key=key) for key in keys_of(shard, 5)])
        whole, all_of_it = await queue.stats(), await queue.messages("t")
        assert (whole.ready, whole.missing, len(all_of_it), all_of_it.missing) == (15, [], 15, ())
        async with frozen(masters, queue, 2):
            began = time.monotonic()
            stats, one, page = await queue.stats(), await queue.stats("t"), await queue.messages("t")
            first = await queue.messages("t", limit=4)
            rest = await queue.messages("t", limit=100, after=first.after)
            with pytest.raises(OutcomeUnknown, match="may have some of the messages"):
                await queue.requeue("t", where=Where(key="k*"))
            seconds = time.monotonic() - began
            [server] = stats.missing
            assert server in url
            assert (stats.ready, one.ready, stats.topics["t"].ready) == (10, 10, 10)
            assert (one.missing, stats.topics["t"].missing, page.missing) == ([server], [server], (server,))
            assert sorted(each.body for each in page) == [0] * 5 + [1] * 5
            assert {each.id for each in [*first, *rest]} == {each.id for each in page}
            told = await asyncio.to_thread(lambda: [bide(url, "stats"), bide(url, "list", "t", "--json")])
        assert seconds < SOON
        assert [each.returncode for each in told] == [0, 0]
        assert all(f"no answer from {server}" in each.stderr for each in told)
        assert len(told[1].stdout.splitlines()) == 10


def bide(url: str, *args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "bide", *args, "--url", url], capture_output=True, text=True, check=False)


async def test_schedules_go_on_whose_next_instant_is_in_another_shard(masters: RedisCluster, url: str) -> None:
    ticks: list[tuple[float, int]] = []
    ticked = asyncio.Event()
    async with AsyncQueue(url) as queue:
        for number in range(12):

            def tick(number: int = number) -> None:
                ticks.append((time.monotonic(), number))
                ticked.set()

            queue.every("1s", name=f"s{number}", topic=f"s.{number}")(tick)
        away = {number for number in range(12) if shard_of(f"s.{number}", f"every s{number}") == 2}

        async def all_tick(since: float, numbers: set[int]) -> None:
            async with asyncio.timeout(60):
                while not {number for at, number in ticks if at > since} >= numbers:
                    ticked.clear()
                    await ticked.wait()

        async with Worker(queue, concurrency=20):
            await all_tick(0, set(range(12)))
            async with frozen(masters, queue, 2):
                began = time.monotonic()
                await all_tick(began, set(range(12)) - away)
                for _ in range(3):
                    await all_tick(time.monotonic(), set(range(12)) - away)
                assert time.monotonic() - began < 20
            await all_tick(time.monotonic(), set(range(12)))
    assert 0 < len(away) < 12


def shards_of_schedule(name: str) -> set[int]:
    """Where its next instant is, and what is said of it."""
    concerned = [*records.refs(name), Ref(topic=name, key=records.key_of(name))]
    return {shard_of(ref.topic or "", ref.key or "") for ref in concerned}


async def test_schedules_begin_that_need_only_other_shards(masters: RedisCluster, url: str) -> None:
    """Those of a worker that starts while a shard is away."""
    names = [f"s{number}" for number in range(60)]
    well = {name for name in names if 2 not in shards_of_schedule(name)}
    ticked: set[str] = set()
    changed = asyncio.Event()
    async with AsyncQueue(url) as queue:
        for name in names:

            def tick(name: str = name) -> None:
                ticked.add(name)
                changed.set()

            queue.every("1s", name=name, topic=name)(tick)

        async def all_tick(wanted: set[str]) -> None:
            while not ticked >= wanted:
                changed.clear()
                await changed.wait()

        await queue.stats()
        async with frozen(masters, queue, 2):
            away = asyncio.create_task(queue.send("t", 2, key=keys_of(2, 1)[0]))
            async with Worker(queue, concurrency=20):
                await all_tick(well)
                assert not away.done()
                masters.thaw(next(each for each in masters.nodes if each.frozen))
                await away
                await all_tick(set(names))
    assert 0 < len(well) < len(names)


@pytest.mark.parametrize("limit", ["lock", "keep", None])
async def test_a_worker_stops_soon_when_only_a_shard_that_is_away_is_to_answer(
    masters: RedisCluster, url: str, limit: str | None
) -> None:
    """Its grace is for handlers, and they have ended."""
    begun, away = asyncio.Semaphore(0), asyncio.Event()
    async with AsyncQueue(url) as queue:

        @queue.task("t", **LIMITS.get(limit or "", {}))
        async def handle(n: int) -> None:
            begun.release()
            await away.wait()

        for n, key in enumerate(keys_of(2, 2 * SLOTS)):
            await handle.options(key=key).send(n)
        async with Worker(queue, concurrency=SLOTS) as worker:
            for _ in range(SLOTS):
                await begun.acquire()
            async with frozen(masters, queue, 2):
                away.set()
                began = time.monotonic()
                await worker.stop()
                assert time.monotonic() - began < 2 * SOON


@pytest.mark.parametrize("limit", ["lock", "keep"])
async def test_a_worker_stops_with_its_grace_while_a_shard_is_away(masters: RedisCluster, url: str, limit: str) -> None:
    """A handler that does not end has all of it."""
    begun = asyncio.Semaphore(0)
    async with AsyncQueue(url) as queue:

        @queue.task("t", **LIMITS[limit])
        async def handle(n: int) -> None:
            begun.release()
            if n % 2:
                await asyncio.Event().wait()

        async with Worker(queue, concurrency=SLOTS, grace=5) as worker:
            async with frozen(masters, queue, 2):
                sends = [asyncio.ensure_future(handle.options(key=key).send(n)) for n, key in enumerate(keys_of(0, SLOTS))]
                await begun.acquire()
                began = time.monotonic()
                await worker.stop()
                assert time.monotonic() - began < 5 + SOON
            await asyncio.gather(*sends)


async def test_a_queue_closes_in_time_while_sends_wait_for_a_shard_that_is_away(masters: RedisCluster, url: str) -> None:
    queue = AsyncQueue(url)
    await queue.stats()
    async with frozen(masters, queue, 2):
        sends = [asyncio.create_task(queue.send("t", 1, key=key)) for key in [*keys_of(2, 5), *keys_of(0, 5)]]
        await asyncio.wait(sends[5:])
        began = time.monotonic()
        await queue.close()
        assert time.monotonic() - began < 2 * SOON
    told = await asyncio.gather(*sends, return_exceptions=True)
    assert {type(each) for each in told[:5]} == {OutcomeUnknown}
    assert not any(isinstance(each, Exception) for each in told[5:])
