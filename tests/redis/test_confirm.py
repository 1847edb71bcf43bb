"""`confirm=`: a change counts as accepted when the disk or the replicas have it, and is told when they don't."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from bide import (
    AsyncQueue,
    BadOption,
    BadUrl,
    BideError,
    ConfigError,
    ConfirmTimeout,
    OutcomeUnknown,
    Outgoing,
    Queue,
    Unavailable,
    Worker,
)
from bide.engines.base import NewMessage, Ref
from bide.engines.gates import Entry, Held
from bide.engines.redis.aio import connections as aio_connections
from bide.engines.redis.aio.calls import UNCONFIRMED
from bide.engines.redis.confirm import BRIEFLY
from bide.engines.redis.script import scripts
from bide.engines.redis.sync import connections as sync_connections
from bide.engines.results import Kept
from tests.redis.crowd import CALLS, calls, gather_crowd
from tests.redis.keyspace import COLOURS, bench_at
from tests.redis.test_failing_shard import SHARDS, key_of
from tests.servers.fixtures import NewRedis
from tests.servers.redis import RedisServer

LONG = "timeout=10"  # a confirmation has four seconds
LATEST = "4000"  # ms
SHORT = "300"  # ms that one has of a replica that is frozen
both_colours = pytest.mark.parametrize("colour", COLOURS)
WITHOUT = UNCONFIRMED
"""Scripts that change nothing which must last, and those of receivers, who were promised nothing."""


@pytest.fixture
def pair(new_redis: NewRedis) -> tuple[RedisServer, RedisServer]:
    """A master, and its only replica."""
    master = new_redis(repl_diskless_sync_delay=0)
    replica = new_redis(replicaof=f"127.0.0.1 {master.port}")
    wait_for_link(replica)
    return master, replica


def wait_for_link(replica: RedisServer) -> None:
    with replica.client() as client:
        while client.info("replication")["master_link_status"] != "up":
            client.ping()


def url_of(server: RedisServer, confirm: str) -> str:
    return f"{server.url}?{LONG}&confirm={confirm}"


@contextmanager
def frozen(replica: RedisServer) -> Iterator[None]:
    """Nobody waits long for what it does not confirm. Before and afterwards there is time."""
    replica.freeze()
    with short(aio_connections.AsyncConnection), short(sync_connections.Connection):
        yield
    replica.thaw()


def short(connection: Any) -> Any:
    confirm = connection._confirm

    def confirm_soon(self: Any, driver: Any, asked: Any, *more: Any, **how: Any) -> Any:
        return confirm(self, driver, asked._replace(wait=(*asked.wait[:-1], SHORT)), *more, **how)

    return patch.object(connection, "_confirm", confirm_soon)


@both_colours
async def test_what_a_replica_has_is_accepted(pair: tuple[RedisServer, RedisServer], colour: str) -> None:
    master, replica = pair
    async with bench_at(url_of(master, "replicas:1"), colour) as bench:
        sent = await bench.put("t", b"x", key="k")
        with replica.client() as client:  # it is there when the call returns
            assert [key for key in client.keys("*") if key.endswith(b":topics")]
        [held] = await bench.claim("t")
        assert held.id == sent.id
        assert await bench.end(held, "done") == "done"
        with replica.client() as client:
            assert not [key for key in client.keys("*") if b":1:" in key]


async def test_every_change_waits_for_its_confirmation(pair: tuple[RedisServer, RedisServer]) -> None:
    master, _ = pair
    for name in set(calls()) - {"close", "spread"}:  # which no verb asks for
        async with bench_at(url_of(master, "replicas:1")) as bench:
            crowd = await gather_crowd(bench)
            with master.client() as client:
                client.config_resetstat()
            for call in calls()[name]:
                await call(bench, crowd)
            assert ("wait" in master.commandstats()) == (name not in WITHOUT), name
        with master.client() as client:
            client.flushall()


@both_colours
async def test_what_no_replica_has_is_told_and_done_once(pair: tuple[RedisServer, RedisServer], colour: str) -> None:
    master, replica = pair
    async with bench_at(url_of(master, "replicas:1"), colour) as bench:
        await bench.put("t", b"first")
        with frozen(replica):
            with pytest.raises(ConfirmTimeout, match="0 of 1 replica had") as short:
                await bench.engine.put([NewMessage("t", b"second"), NewMessage("t", b"third", key="k")], now=bench.now)
            operations = short.value.operations
            assert len(operations) == 2
        # Sending again with these does it no second time, and waits again
        again = [
            NewMessage("t", b"second", operation=operations[0]),
            NewMessage("t", b"third", key="k", operation=operations[1]),
        ]
        first = await bench.engine.put(again, now=bench.now)
        second = await bench.engine.put(again, now=bench.now)
        assert [each.id for each in first] == [each.id for each in second]
        assert [each.body for each in await bench.stored("t")] == [b"first", b"second", b"third"]


@both_colours
async def test_a_repeated_operation_is_confirmed_although_it_changes_nothing(
    pair: tuple[RedisServer, RedisServer], colour: str
) -> None:
    master, replica = pair
    async with bench_at(url_of(master, "replicas:1"), colour) as bench:
        await bench.put("t", b"x", key="k")
        sent = await bench.put("t", b"y", operation="once")
        with frozen(replica):
            for new in (NewMessage("t", b"y", operation="once"), NewMessage("t", b"z", key="k")):
                with pytest.raises(ConfirmTimeout):
                    await bench.engine.put([new], now=bench.now)
        assert (await bench.engine.put([NewMessage("t", b"y", operation="once")], now=bench.now))[0].id == sent.id


@both_colours
async def test_who_receives_does_not_wait_for_a_replica_that_is_away(
    pair: tuple[RedisServer, RedisServer], colour: str
) -> None:
    """A failover that loses a claim, a renewal or a place explains one repeated delivery, or a holder with a higher token."""
    master, replica = pair
    async with bench_at(url_of(master, "replicas:1"), colour) as bench:
        sent = await bench.put("t", b"x")
        with frozen(replica):
            [held] = await bench.claim("t")
            assert held.id == sent.id
            assert await bench.extend(held, 60_000)
            await bench.engine.tend(now=bench.now)
            gates = bench.engine.gates
            [entered] = await gates.enter([Entry("g", "a", 60_000)], now=bench.now)
            assert await gates.keep([Held("g", "a", entered.token)], 60_000, now=bench.now) == [True]
            assert (await gates.leave([Held("g", "a", entered.token)], now=bench.now)).answers == [True]
            await bench.engine.results.fulfil([Kept(sent.id, 60_000, b"7")], now=bench.now)
            with pytest.raises(ConfirmTimeout, match="0 of 1 replica had"):
                await bench.end(held, "done")
        assert await bench.get(id=sent.id) is None


@both_colours
async def test_after_one_that_was_short_ends_wait_briefly_until_writes_are_confirmed_again(
    pair: tuple[RedisServer, RedisServer], colour: str
) -> None:
    """What comes after an end in a worker does not wait behind it. A send has as much time as ever."""
    master, replica = pair
    asked: list[str] = []

    def noted(connection: Any) -> Any:
        confirm = connection._confirm

        def confirm_and_note(self: Any, driver: Any, confirmation: Any, *more: Any, **how: Any) -> Any:
            asked.append(confirmation.wait[-1])
            return confirm(self, driver, confirmation, *more, **how)

        return patch.object(connection, "_confirm", confirm_and_note)

    async with bench_at(url_of(master, "replicas:1"), colour) as bench:
        for _ in range(3):
            await bench.put("t", b"x")
        held = await bench.claim("t", limit=3)
        with frozen(replica), noted(aio_connections.AsyncConnection), noted(sync_connections.Connection):
            for each in held[:2]:
                with pytest.raises(ConfirmTimeout, match="0 of 1 replica had"):
                    await bench.end(each, "done")
            assert asked[0] == LATEST
            assert asked.count(BRIEFLY) == 1
            before = len(asked)
            with pytest.raises(ConfirmTimeout):
                await bench.put("t", b"x")
            assert BRIEFLY not in asked[before:]
        with noted(aio_connections.AsyncConnection), noted(sync_connections.Connection):
            async with asyncio.timeout(60):
                while BRIEFLY in asked:
                    asked.clear()
                    with contextlib.suppress(ConfirmTimeout):
                        await bench.end(held[2], "done")


async def test_a_full_server_confirms_what_drains_it(new_redis: NewRedis) -> None:
    master = new_redis(repl_diskless_sync_delay=0)
    replica = new_redis(replicaof=f"127.0.0.1 {master.port}")
    wait_for_link(replica)
    async with bench_at(url_of(master, "replicas:1")) as bench:
        await bench.put_all(*[NewMessage("t", b"x" * 1_000)] * 100)
        with master.client() as client:
            client.config_set("maxmemory", 1)
        found = await bench.claim("t", limit=100)
        assert len(found) == 100
        assert {await bench.end(each, "done") for each in found} == {"done"}


@both_colours
async def test_a_send_that_is_repeated_and_not_confirmed_again_keeps_its_operation(
    pair: tuple[RedisServer, RedisServer], colour: str
) -> None:
    """Under another one it would be done twice, if a failover undoes the second try and not the first."""
    master, replica = pair
    async with bench_at(url_of(master, "replicas:1"), colour) as bench:
        await bench.put("t", b"first")
        with frozen(replica):
            with pytest.raises(ConfirmTimeout) as short:
                await bench.engine.put([NewMessage("t", b"x")], now=bench.now)
            again = [NewMessage("t", b"x", operation=name) for name in short.value.operations]
            with pytest.raises(ConfirmTimeout) as shorter:
                await bench.engine.put(again, now=bench.now)
            assert shorter.value.operations == short.value.operations


async def test_senders_of_one_call_are_told_their_own_operations(pair: tuple[RedisServer, RedisServer]) -> None:

    master, replica = pair
    async with AsyncQueue(f"{master.url}?{LONG}", confirm="replicas:1") as queue:
        await queue.send("t", 0)
        with frozen(replica):
            told = await asyncio.gather(*(queue.send("t", n) for n in range(5)), return_exceptions=True)
            operations = [each.operation for each in told if isinstance(each, ConfirmTimeout)]
            assert len(set(operations)) == len(operations) == 5
        await asyncio.gather(*(queue.send("t", n, operation=name) for n, name in enumerate(operations)))
        assert (await queue.stats("t")).ready == 6


def _asked_of_disk(server: RedisServer, change: Callable[[], object]) -> int:
    """How often a change asks whether it is on the disk. The first of all asks again, since nothing was touched before it."""
    before = server.commandstats()["waitaof"]["calls"]
    change()
    return int(server.commandstats()["waitaof"]["calls"]) - int(before)


def test_the_disk_is_asked_or_synced_always_or_the_server_refused(new_redis: NewRedis) -> None:
    with pytest.raises(ConfigError, match="writes no AOF"):
        Queue(f"{new_redis().url}?confirm=aof").send("t", 1)
    with Queue(url_of(new_redis(appendonly="yes", appendfsync="always"), "aof")) as queue:
        queue.send("t", 1)
    everysec = new_redis(appendonly="yes", appendfsync="everysec")
    with everysec.client() as client:
        version = tuple(map(int, client.info("server")["redis_version"].split(".")[:2]))
    if version < (7, 2):
        with pytest.raises(ConfigError, match=r"older than Redis 7\.2"):
            Queue(url_of(everysec, "aof")).send("t", 1)
    else:
        with Queue(url_of(everysec, "aof")) as queue:
            queue.send("t", 1)
            assert _asked_of_disk(everysec, lambda: queue.send("t", 2)) == 1


def test_a_hosted_server_that_does_not_tell_how_it_syncs_is_asked_each_time_or_refused(new_redis: NewRedis) -> None:
    server = new_redis(appendonly="yes", appendfsync="always", rename_command='CONFIG ""')
    with server.client() as client:
        version = tuple(map(int, client.info("server")["redis_version"].split(".")[:2]))
    if version < (7, 2):
        with pytest.raises(ConfigError, match=r"older than Redis 7\.2"):
            Queue(url_of(server, "aof")).send("t", 1)
    else:
        with Queue(url_of(server, "aof")) as queue:
            queue.send("t", 1)
            assert _asked_of_disk(server, lambda: queue.send("t", 2)) == 1


@both_colours
@pytest.mark.parametrize("changed", [{"appendfsync": "everysec"}, {"appendonly": "no"}])
async def test_a_server_that_stops_syncing_each_write_is_noticed(
    new_redis: NewRedis, changed: dict[str, str], colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (aio_connections, sync_connections):
        monkeypatch.setattr(each, "SURE", 0)
    server = new_redis(appendonly="yes", appendfsync="always")
    async with bench_at(url_of(server, "aof"), colour) as bench:
        await bench.put("t", b"x")
        with server.client() as client:
            for name, value in changed.items():
                client.config_set(name, value)
            asks = tuple(map(int, client.info("server")["redis_version"].split(".")[:2])) >= (7, 2)
        if asks and "appendfsync" in changed:
            await bench.put("t", b"y")
            before = server.commandstats()["waitaof"]["calls"]
            await bench.put("t", b"z")
            assert server.commandstats()["waitaof"]["calls"] == before + 1
        else:
            with pytest.raises(ConfirmTimeout) as error:
                await bench.put("t", b"y")
            assert len(error.value.operations) == 1


async def test_what_was_done_and_can_not_be_confirmed_is_not_told_as_refused(pair: tuple[RedisServer, RedisServer]) -> None:
    master, _ = pair
    async with bench_at(url_of(master, "replicas:1")) as bench:
        sent = await bench.put("t", b"x")
        with master.client() as client:
            client.unlink("{shop:0}:touched")
            client.config_set("maxmemory", 1)
            with pytest.raises(OutcomeUnknown):
                await bench.cancel(id=sent.id)
            client.config_set("maxmemory", 0)
        assert await bench.stored("t") == []


async def test_a_part_of_a_batch_that_is_not_confirmed_keeps_no_other_part_from_being_sent(redis_url: str) -> None:
    async with AsyncQueue(f"{redis_url}?shards={SHARDS}") as queue:
        await queue.topics()
        engine: Any = await queue.session.engine()
        shard = engine._engine._shards[1]
        put = shard.put

        async def be_short(*asked: Any) -> Any:
            done = await put(*asked)
            raise ConfirmTimeout("0 of 1 replica had it in time", operations=[""] * len(done), done=done)

        shard.put = be_short
        with pytest.raises(ConfirmTimeout) as short:
            await queue.send_many("t", [Outgoing(n, key=f"k{n}") for n in range(20)])
        operations, answers = short.value.operations, short.value.answers
        assert [operation == "" for operation in operations] == [answer is not None for answer in answers]
        shard.put = put
        for n, operation in enumerate(operations):
            if operation:
                await queue.send("t", n, key=f"k{n}", operation=operation)
        assert (await queue.stats("t")).pending == 20
        shard.put = be_short

        async def refuse(*asked: Any) -> Any:
            raise Unavailable("it is away")

        engine._engine._shards[2].put = refuse
        with pytest.raises(OutcomeUnknown) as unknown:
            await queue.send_many("t", [Outgoing(shard, key=key_of(shard)) for shard in (1, 2)])
        assert not isinstance(unknown.value, ConfirmTimeout)


async def test_a_batch_of_which_a_part_was_not_done_is_not_told_as_done(redis_url: str) -> None:
    async with AsyncQueue(f"{redis_url}?shards=2") as queue:
        sent = await queue.send_many("t", [Outgoing(n, key=f"k{n}", delay=60) for n in range(20)])
        engine: Any = await queue.session.engine()

        def fail_with(error: BideError) -> Callable[..., Any]:
            async def fail(*asked: Any) -> Any:
                raise error

            return fail

        engine._engine._shards[0].cancel = fail_with(ConfirmTimeout("0 of 1 replica had it in time"))
        engine._engine._shards[1].cancel = fail_with(Unavailable("it is away"))
        with pytest.raises(OutcomeUnknown) as unknown:
            await engine.cancel([Ref(id=each.id) for each in sent])
        assert not isinstance(unknown.value, ConfirmTimeout)
        told = await asyncio.gather(*map(queue.cancel, sent), return_exceptions=True)  # each is told of its own part
        assert {type(each) for each in told} == {ConfirmTimeout, Unavailable}
        engine._engine._shards[1].cancel = engine._engine._shards[0].cancel
        told = await asyncio.gather(*map(queue.cancel, sent), return_exceptions=True)
        assert {type(each) for each in told} == {ConfirmTimeout}


async def test_a_batch_of_which_only_a_part_was_not_confirmed_is_told_as_done(redis_url: str) -> None:
    async with AsyncQueue(f"{redis_url}?shards={SHARDS}") as queue:
        await queue.send_many("t", [Outgoing(n, key=key_of(n)) for n in range(2)])
        held = await queue.receive("t", limit=2)
        engine: Any = await queue.session.engine()
        shard = engine._engine._shards[0]
        settle = shard.settle

        async def be_short(*asked: Any) -> Any:
            await settle(*asked)
            raise ConfirmTimeout("0 of 1 replica had it in time")

        shard.settle = be_short
        with pytest.raises(ConfirmTimeout, match="All 2 were done, but 1 of them not confirmed") as short:
            await queue.ack_many(held)
        assert sorted(map(str, short.value.answers)) == ["None", "True"]
        assert (await queue.stats("t")).pending == 0


def test_batches_of_several_thousand_are_done_as_a_whole(pair: tuple[RedisServer, RedisServer]) -> None:
    master, replica = pair
    with Queue(url_of(master, "replicas:1")) as queue:
        sent = queue.send_many("cancelled", [Outgoing(n, delay=600) for n in range(2_500)])
        queue.send_many("acked", range(2_500))
        held = [each for _ in range(3) for each in queue.receive("acked", limit=1_000, lease="1h")]
        with frozen(replica):
            for call in (
                lambda: queue.send_many("sent", range(2_500)),
                lambda: queue.cancel_many(sent),
                lambda: queue.ack_many(held),
            ):
                with pytest.raises(ConfirmTimeout, match=r"All 2,500 were done, but 2,500 of them not confirmed: .*0 of 1"):
                    call()
            for n in range(2_500):
                queue.later("later", n)
            flushed = queue.flush("20s")
        assert (flushed.waiting, flushed.sent, flushed.lost) == (0, 2_500, 0)
        assert (queue.stats("sent").ready, queue.stats("later").ready) == (2_500, 2_500)
        assert (queue.stats("cancelled").pending, queue.stats("acked").pending) == (0, 0)


def test_where_it_is_said(redis_url: str) -> None:
    assert "replicas" in Queue("redis://", confirm="replicas:2").capabilities.accepted
    assert Queue("redis://?confirm=aof").capabilities.accepted.count("AOF") == 1
    refused: list[tuple[type[BideError], Callable[[], Any]]] = [
        (BadOption, lambda: Queue("redis://", confirm="always")),
        (BadOption, lambda: Queue("redis://", confirm="replicas:0")),
        (BadUrl, lambda: Queue("redis://?confirm=two")),
        (ConfigError, lambda: Queue("redis://?confirm=aof", confirm="replicas:1")),
        (ConfigError, lambda: Queue("redis://?wake=poll&confirm=replicas:1")),
        (ConfigError, lambda: Queue("memory://", confirm="aof")),
        (ConfigError, lambda: Queue("sqlite:///x.db", confirm="replicas:1")),
    ]
    for kind, ask in refused:
        with pytest.raises(kind, match="confirm"):
            ask()
    assert issubclass(ConfirmTimeout, OutcomeUnknown)


def test_each_script_is_known_to_wait_or_not() -> None:
    assert set(CALLS) == set(scripts())
    assert set(CALLS) > WITHOUT


async def test_a_worker_goes_on_with_fresh_work_while_no_replica_confirms(
    pair: tuple[RedisServer, RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    master, replica = pair
    done, all_done = set[int](), asyncio.Event()
    async with AsyncQueue(url_of(master, "replicas:1")) as queue:

        @queue.task("t")
        async def handle(n: int) -> None:
            assert n not in done, "an end that was not confirmed is told once"
            done.add(n)
            if len(done) == 40:
                all_done.set()

        await queue.send_many("t", [Outgoing({"n": n}) for n in range(40)])
        with frozen(replica):
            async with Worker(queue, concurrency=4) as worker:
                await asyncio.wait_for(all_done.wait(), 60)
                for _ in range(3_000):
                    if (health := worker.health()).done == 40:
                        break
                    await asyncio.sleep(0.01)
                assert health.unconfirmed == health.done == 40
        assert (await queue.stats("t")).ready == 0
    assert "were not confirmed" in caplog.text
