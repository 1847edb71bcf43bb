"""Another number of shards: nothing moves, nothing is lost, a key has one message, and everybody hears of it."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bide import BadOption, ConfigError, Queue, Unsupported
from bide.engines.base import Condition, Move, NewMessage, Ref, Seen
from bide.engines.redis import resharding
from bide.engines.redis.protocol.encoding import name_of
from bide.engines.redis.resharding import Emptying, Resharding
from bide.engines.redis.sync.shard import Shard
from bide.engines.redis.topology import FORM, Generation, ShardSpread, plain, read, slot_of
from bide.types import CancelResult, RescheduleResult
from tests.redis.keyspace import COLOURS, bench_at, shop
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer

KEYS = [f"k{n}" for n in range(12)]  # of each shard some
both_colours = pytest.mark.parametrize("colour", COLOURS)


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old shards need not wait until nobody sends again what he sent before."""
    monkeypatch.setattr(resharding, "REMEMBERED", 0)


def reshard(url: str, size: int) -> ShardSpread:
    with Resharding(shop(url)._namespace) as work:
        assert work.begin(size)
        return work.spread


def shards_of(ids: list[str]) -> set[int]:
    return {name_of(id).shard for id in ids}


@pytest.mark.parametrize(
    ("text", "spread"),
    [
        ("3", plain(3)),
        ("3;1;4", ShardSpread(0, [Generation(0, 3, ("1", "4"))])),
        ("1:3|6@3", ShardSpread(1, [Generation(0, 3), Generation(3, 6)])),
        ("12:3;1;4|2@3;0;7|1", ShardSpread(12, [Generation(0, 3, ("1", "4")), Generation(3, 2, ("0", "7")), Generation(0, 1)])),
    ],
)
def test_how_they_are_spread_is_written_and_read(text: str, spread: ShardSpread) -> None:
    assert FORM.fullmatch(text)
    assert (read(text), str(spread)) == (spread, text)


def test_new_shards_have_numbers_that_no_other_has() -> None:
    spread = plain(3).with_new(6)
    assert spread.live == list(range(9))
    spread = spread.with_new(3)
    assert spread.live == list(range(12))
    spread = spread.without_oldest().with_new(2)
    assert [list(each.numbers) for each in spread.generations] == [list(range(3, 9)), [9, 10, 11], [0, 1]]
    with pytest.raises(ValueError, match="no numbers"):
        spread.with_new(120)


@both_colours
async def test_what_was_sent_before_stays_where_it_is_and_what_comes_goes_to_new_shards(redis_url: str, colour: str) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour) as bench:
        before = [each.id for each in await bench.put_all(*[NewMessage("t", b"b", key=key) for key in KEYS])]
        assert str(reshard(url, 6)) == "1:3|6@3"
        after = [(await bench.put("t", b"a")).id for _ in range(12)]
        after += [each.id for each in await bench.put_all(*[NewMessage("t", b"a", key=f"new {key}") for key in KEYS])]
        assert (shards_of(before), shards_of(after)) == ({0, 1, 2}, set(range(3, 9)))
        assert Counter(each.id for each in await bench.stored("t")) == Counter(before + after)
        assert (await bench.engine.stats("t", now=bench.now)).ready == len(before + after)
        found = [each for _ in range(9) for each in await bench.claim("t", limit=100)]
        assert Counter(each.id for each in found) == Counter(before + after)
        assert {await bench.end(each, "done") for each in found} == {"done"}


@both_colours
async def test_a_key_has_one_message_in_old_shards_and_new_ones(redis_url: str, colour: str) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour) as bench:
        old = {key: (await bench.put("t", b"old", key=key, delay=5_000)).id for key in KEYS}
        reshard(url, 4)
        for key, id in old.items():
            kept = await bench.put("t", b"kept", key=key)
            assert (kept.id, kept.outcome) == (id, "kept")
            assert (await bench.put("t", key=key, if_exists="error")).outcome == "exists"
            replaced = await bench.put("t", b"new", key=key, if_exists="replace", delay=7_000)
            assert (replaced.id, replaced.outcome) == (id, "replaced")
            assert [each.id for each in await bench.engine.get([Ref(topic="t", key=key)], now=bench.now) if each] == [id]
        moved = await bench.engine.reschedule([Move(Ref(topic="t", key=key), 9_000) for key in KEYS[:3]], now=bench.now)
        assert moved == [RescheduleResult.MOVED] * 3
        gone = await bench.engine.cancel([Ref(topic="t", key=key) for key in [*KEYS, "none"]], now=bench.now)
        assert gone == [CancelResult.CANCELLED] * len(KEYS) + [CancelResult.GONE]
        # Then each is free, and belongs to a new shard
        new = [(await bench.put("t", key=key)).id for key in KEYS]
        assert shards_of(new) <= {3, 4, 5, 6}
        assert [(await bench.put("t", key=key)).id for key in KEYS] == new


@both_colours
async def test_who_has_opened_one_shard_is_told_that_several_do_nothing_together(redis_url: str, colour: str) -> None:
    async with bench_at(redis_url, colour) as bench:
        before = await bench.put_all(*[NewMessage("t", b"b", delay=5_000) for _ in range(2)])
        reshard(redis_url, 3)
        after = await bench.put("t", b"a", delay=5_000)
        holds, moved = Condition(before[0].id, before[0].due), Move(Ref(id=before[1].id), 9_000)
        both, seen = [Ref(id=before[0].id), Ref(id=after.id)], [Seen(before[0].due), Seen(after.due)]
        for _ in range(2):
            with pytest.raises(Unsupported, match="open it again"):
                await bench.engine.reschedule([moved, Move(Ref(id=after.id), 9_000)], condition=holds, now=bench.now)
            with pytest.raises(Unsupported, match="open it again"):
                await bench.engine.cancel(both, seen=seen, now=bench.now)
        assert {each.due for each in await bench.stored("t")} == {each.due for each in (*before, after)}
        # Then what one shard has still changes as a whole
        assert await bench.engine.reschedule([moved], condition=holds, now=bench.now) == [RescheduleResult.MOVED]
        both = [Ref(id=each.id) for each in before]
        seen = [Seen(each.due) for each in await bench.engine.get(both, now=bench.now) if each]
        assert await bench.engine.cancel(both, seen=seen, now=bench.now) == [CancelResult.CANCELLED] * 2


@both_colours
async def test_the_successor_of_a_running_message_goes_to_a_new_shard(redis_url: str, colour: str) -> None:
    url = f"{redis_url}?shards=2"
    async with bench_at(url, colour) as bench:
        running = await bench.running("t", key="k")
        reshard(url, 3)
        assert (await bench.put("t", key="k")).id == running.id
        successor = await bench.put("t", b"next", key="k", if_exists="replace")
        assert successor.outcome == "created"
        assert shards_of([successor.id]) <= {2, 3, 4}
        assert (await bench.put("t", key="k")).id == successor.id
        # When the running one comes back, it goes on without the key
        assert await bench.end(running, "retry") == "scheduled"
        assert (await bench.put("t", key="k")).id == successor.id
        assert Counter(each.key for each in await bench.stored("t")) == Counter({"k": 1, None: 1})


@both_colours
async def test_what_was_sent_before_is_not_sent_again_by_its_operation(redis_url: str, colour: str) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour) as bench:
        names = [f"operation {n}" for n in range(9)]
        before = [(await bench.put("t", operation=name)).id for name in names]
        batch = await bench.put_all(*[NewMessage("t", b"x", operation=f"of a batch {n}") for n in range(9)])
        reshard(url, 5)
        assert [(await bench.put("t", operation=name)).id for name in names] == before
        again = await bench.put_all(*[NewMessage("t", b"x", operation=f"of a batch {n}") for n in range(9)])
        assert [each.id for each in again] == [each.id for each in batch]
        assert (await bench.engine.stats("t", now=bench.now)).ready == 18


@both_colours
async def test_what_is_sent_once_in_a_period_is_not_sent_again_to_new_shards(redis_url: str, colour: str) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour) as bench:
        once = [NewMessage("t", b"x", key=key, unique_for=7_200_000) for key in KEYS]
        before = await bench.put_all(*once)
        found = [each for _ in range(9) for each in await bench.claim("t", limit=100)]
        assert {await bench.end(each, "done") for each in found} == {"done"}
        reshard(url, 5)
        again = [await bench.put("t", key=key, unique_for=1) for key in KEYS] + await bench.put_all(*once)
        assert [(each.id, each.outcome) for each in again] == [(each.id, "duplicate") for each in before] * 2
        # The old shards are given up when the period is over
        with Resharding(shop(url)._namespace) as work:
            left = work.step()
            assert left is not None
            assert left.seconds > 3_600
        bench.move(7_200_000)
        after = [await bench.put("t", key=key, unique_for=1) for key in KEYS]
        assert {each.outcome for each in after} == {"created"}
        assert shards_of([each.id for each in after]) <= set(range(3, 8))


@both_colours
async def test_a_dead_letter_of_an_old_shard_is_requeued_without_its_key(redis_url: str, colour: str) -> None:
    url = f"{redis_url}?shards=2"
    async with bench_at(url, colour) as bench:
        dead = await bench.running("t", key="k")
        assert await bench.end(dead, "dead") == "dead"
        reshard(url, 3)
        holder = await bench.put("t", key="k")
        did = await bench.engine.requeue("t", now=bench.now)
        assert (did.count, did.keyless) == (1, 1)
        assert (await bench.put("t", key="k")).id == holder.id


@both_colours
async def test_a_reshard_drops_no_dead_letter(redis_url: str, colour: str) -> None:
    """Old shards keep the share that they had: else the next one that is buried there would leave a few only."""
    async with bench_at(redis_url, colour, dead_max=12) as bench:
        for _ in range(11):
            await bench.bury("t")
        running = await bench.running("t")
        reshard(redis_url, 3)
        await bench.put("u")  # and so hears of it
        assert await bench.end(running, "dead") == "dead"
        assert (await bench.engine.stats("t", now=bench.now)).dead == 12


@both_colours
async def test_a_paused_topic_stays_paused_and_a_resumed_one_is_resumed(redis_url: str, colour: str) -> None:
    url = f"{redis_url}?shards=2"
    async with bench_at(url, colour) as bench:
        await bench.put("t", key="k")
        await bench.engine.pause("t", True)
        reshard(url, 3)
        for n in range(6):
            await bench.put("t", key=f"k{n}")
        assert await bench.claim("t", limit=10) == []
        await bench.engine.pause("t", False)
        assert len([each for _ in range(6) for each in await bench.claim("t", limit=10)]) == 7


@both_colours
async def test_all_old_shards_are_given_up_when_they_are_empty(
    redis_url: str, colour: str, forgetful: None, redis_server: RedisServer
) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url, colour, now=0) as bench:
        for key in KEYS:
            await bench.put("t", key=key)
        reshard(url, 6)
        with Resharding(shop(redis_url)._namespace) as work:
            left = work.step()
            assert left is not None
            assert (left.shards, left.pending, left.dead) == (3, len(KEYS), 0)
            assert not work.begin(6)
        for _ in range(4):
            for each in await bench.claim("t", limit=100):
                assert await bench.end(each, "done") == "done"
        with Resharding(shop(redis_url)._namespace) as work:
            assert work.step() is None
            assert str(work.spread) == "2:6@3"
            assert work.begin(3)
        sent = [(await bench.put("t", key=key)).id for key in KEYS]
        assert shards_of(sent) == {0, 1, 2}
        with redis_server.client() as client:
            told = {client.hget(f"{{shop:{number}}}:meta", "shards") for number in range(9)}
            assert told - {None} == {b"3:6@3|3"}  # some have never had a message


async def test_who_comes_to_a_shard_first_tells_it_when_the_reshard_was_broken_off(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{redis_url}?shards=3"
    async with bench_at(url) as bench, bench_at(url) as late:
        old = [(await bench.put("t", key=key)).id for key in KEYS]
        with monkeypatch.context() as patch, Resharding(shop(url)._namespace) as work:
            patch.setattr(work, "_tell_all", lambda shards: work._shards.anchor.calls.pin())
            work.begin(4)
        # One has heard of it on shard 0, the other has not, and meets the keys' old shards
        await bench.put("t", key=next(key for key, id in zip(KEYS, old, strict=True) if shards_of([id]) == {0}))
        assert shards_of([(await bench.put("t")).id for _ in range(8)]) == {3, 4, 5, 6}
        assert [(await late.put("t", key=key)).id for key in KEYS] == old
        assert [(await bench.put("t", key=key)).id for key in KEYS] == old
        assert shards_of([(await late.put("t")).id for _ in range(8)]) == {3, 4, 5, 6}


def test_what_is_too_much_is_refused(redis_url: str) -> None:
    with Queue(f"{redis_url}?shards=64", namespace="shop") as queue:
        queue.send("t", 1)
        with Resharding(shop(redis_url)._namespace) as work:
            assert work.size == 64
            assert not work.begin(64)
            assert work.step() is None
            assert work.begin(63)
            with pytest.raises(BadOption, match="2 more shards would be too many: 127 in use"):
                work.begin(2)
            assert work.begin(1)
        queue.stats("t")
        assert shards_of([queue.send("t", n).id for n in range(3)]) == {127}
        assert len(queue.receive("t", limit=10)) == 4


def test_of_two_that_begin_at_once_one_is_told_that_it_did_nothing(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue(f"{redis_url}?shards=3", namespace="shop") as queue:
        queue.send("t", 1)
    with Resharding(shop(redis_url)._namespace) as work:
        monkeypatch.setattr(work, "_pause_alike", lambda new: reshard(redis_url, 4))
        with pytest.raises(ConfigError, match="Somebody else has just begun"):
            work.begin(6)
        monkeypatch.undo()
        assert work.step() is not None
        assert work.size == 4


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("others_do", ["step", "begin"])
def test_of_two_that_wait_at_once_one_gives_up_the_old_shards_and_both_go_on(
    redis_url: str, others_do: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those after them have messages."""
    with Queue(f"{redis_url}?shards=3", namespace="shop") as queue:
        old = queue.send("t", 1, delay=60)
        reshard(redis_url, 2)
        queue.cancel(old.id)
    with Queue(redis_url, namespace="shop") as queue, Resharding(shop(redis_url)._namespace) as work:
        sent = queue.send("t", 2, delay=60)
        assert work.begin(4)
        look = work._look

        def beaten(shards: list[Shard]) -> Emptying:
            left = look(shards)
            monkeypatch.setattr(work, "_look", look)
            with Resharding(shop(redis_url)._namespace) as other:
                assert other.begin(1) if others_do == "begin" else other.step()
            return left

        monkeypatch.setattr(work, "_look", beaten)
        assert work.step() is not None
        numbers = [list(each.numbers) for each in work.spread.generations]
        assert [3, 4] in numbers
        assert len(numbers) == (3 if others_do == "begin" else 2)
        assert queue.cancel(sent.id) == CancelResult.CANCELLED


class Traffic:
    """Senders and receivers, in threads, who know of nothing."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.over = threading.Event()
        self.sent: Counter[str] = Counter()
        self.got: Counter[str] = Counter()
        self.failed: list[BaseException] = []

    def send(self, queue: Queue) -> None:
        name, n = threading.current_thread().name, 0
        while not self.over.is_set():
            n += 1
            body = f"{name} {n}"
            queue.send("t", body, key=body if n % 2 else None)
            queue.send_many("t", [f"{body} a", f"{body} b"])
            self.sent.update([body, f"{body} a", f"{body} b"])

    def receive(self, queue: Queue) -> None:
        while not self.over.is_set():
            for each in queue.receive("t", limit=20, wait=0.2):
                each.ack()
                self.got[each.body] += 1

    @contextmanager
    def flowing(self) -> Iterator[None]:
        jobs = (self.send, self.send, self.receive, self.receive)
        threads = [threading.Thread(target=self._work, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join()

    def _work(self, job: Callable[[Queue], None]) -> None:
        try:
            with Queue(self.url, namespace="shop") as queue:
                job(queue)
        except BaseException as error:
            self.failed.append(error)


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("servers", ["redis_url", "redis_cluster_url"])
def test_nothing_is_lost_or_sent_twice_while_messages_come_and_go(servers: str, request: pytest.FixtureRequest) -> None:
    """3 to 6 to 3 shards."""
    redis_url = request.getfixturevalue(servers)
    traffic = Traffic(f"{redis_url}?shards=3")
    with Queue(traffic.url, namespace="shop") as queue:
        queue.send("t", "first")
    with traffic.flowing(), Resharding(shop(redis_url)._namespace) as work:
        for size in (6, 3):
            work.begin(size)
            while work.step() is not None:
                pass
    assert not traffic.failed
    with Queue(redis_url, namespace="shop") as queue:
        while found := queue.receive("t", limit=500):
            traffic.got.update(each.body for each in found)
            queue.ack_many(found)
    assert traffic.got == traffic.sent + Counter(["first"])


@pytest.mark.usefixtures("forgetful")
def test_the_shards_of_a_cluster_are_spread_evenly_each_time(redis_cluster_url: str, redis_cluster: RedisCluster) -> None:
    with Queue(redis_cluster_url, namespace="shop") as queue:
        queue.send("t", 1, key="k")
        with Resharding(shop(redis_cluster_url)._namespace) as work:
            work.begin(6)
            tags = [work.spread.current.tag("shop", number) for number in work.spread.current.numbers]
        nodes = Counter(redis_cluster.node_of(slot_of(tag)).port for tag in tags)
        assert sorted(nodes.values()) == [2, 2, 2]
        assert queue.send("t", 2, key="k").outcome == "kept"
        queue.send_many("t", list(range(12)))
        assert queue.stats("t").ready == 13
