"""One shard of three refuses changes: the others do theirs, and the error says how much was done, and why not all."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeAlias

import pytest

from bide import AsyncQueue, ConfigError, OutcomeUnknown, Outgoing, QueueFull, Unavailable, Where
from bide.engines.redis.aio.calls import AsyncCalls
from bide.engines.redis.aio.nodes import AsyncNodes
from bide.engines.redis.protocol.encoding import name_of
from bide.engines.redis.sync.calls import Calls
from bide.engines.redis.sync.nodes import Nodes
from bide.engines.redis.topology import ServerPlace, slot_of
from tests.redis.away import COLOURS, SHARDS, Either, engine_of, frozen, keys_of
from tests.redis.test_commands_away import bide
from tests.redis.test_sweeps_away import MANY, place_of, sent
from tests.servers.cluster import ClusterNode, RedisCluster

both_colours = pytest.mark.parametrize("colour", COLOURS)
FULL, NO_RIGHT, NO_REPLICAS = "full", "a right is missing", "too few replicas"
WHY = {FULL: "at its maxmemory", NO_RIGHT: "may not call HSET: nothing was changed", NO_REPLICAS: "NOREPLICAS"}
RAISED = {FULL: QueueFull, NO_RIGHT: ConfigError, NO_REPLICAS: Unavailable}
Command: TypeAlias = tuple[str | int, ...]
all_refuse_it = pytest.mark.parametrize("how", [FULL, NO_RIGHT, NO_REPLICAS])
full_ones_do_it = pytest.mark.parametrize("how", [NO_RIGHT, NO_REPLICAS])


@pytest.fixture
def url(masters: RedisCluster, masters_url: str) -> str:
    """Of a user whose rights may be taken."""
    for node in masters.nodes:
        node.ask("ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all")
    return f"{masters_url.replace('://', '://bob:pw@', 1)}&timeout=1"


@contextlib.asynccontextmanager
async def refusing(masters: RedisCluster, queue: AsyncQueue, how: str, *shards: int) -> AsyncIterator[None]:
    """The masters of these shards let others look, but take no changes, or none that need room."""
    tags = (await engine_of(queue))._namespace.tag
    nodes = [masters.node_of(slot_of(tags(shard))) for shard in shards]
    changes: dict[str, tuple[Command, Command]] = {
        FULL: (("CONFIG", "SET", "maxmemory", 1), ("CONFIG", "SET", "maxmemory", 0)),
        NO_RIGHT: (("ACL", "SETUSER", "bob", "-hset"), ("ACL", "SETUSER", "bob", "+@all")),
        NO_REPLICAS: (("CONFIG", "SET", "min-replicas-to-write", 1), ("CONFIG", "SET", "min-replicas-to-write", 0)),
    }
    begin, end = changes[how]
    for node in nodes:
        node.ask(*begin)
    try:
        yield
    finally:
        for node in nodes:
            node.ask(*end)


async def paused(queue: AsyncQueue) -> list[bool]:
    """Whether the topic is, by shard."""
    return [(await shard.stats("t", (), None, None))["t"].paused for shard in (await engine_of(queue))._shards]


@both_colours
@full_ones_do_it
async def test_a_topic_is_paused_and_resumed_in_the_other_shards(
    masters: RedisCluster, url: str, colour: str, how: str
) -> None:
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await sent(queue, dead=False)
        why = f"but not everywhere: .*{await place_of(masters, queue, 2)}.*{WHY[how]}"
        async with refusing(masters, queue, how, 2):
            with pytest.raises(OutcomeUnknown, match=f"t is paused, {why}"):
                await other.do("pause", "t")
            assert await paused(queue) == [True, True, False]
        await other.do("pause", "t")
        async with refusing(masters, queue, how, 2):
            with pytest.raises(OutcomeUnknown, match=f"t is resumed, {why}"):
                await other.do("resume", "t")
            assert await paused(queue) == [False, False, True]


@both_colours
async def test_a_topic_is_paused_also_where_the_server_is_full(masters: RedisCluster, url: str, colour: str) -> None:
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await sent(queue, dead=False)
        async with refusing(masters, queue, FULL, 2):
            await other.do("pause", "t")
            assert await paused(queue) == [True, True, True]
            await other.do("pause", "unheard.of")
            await other.do("resume", "t")
            assert await paused(queue) == [False, False, False]


@both_colours
@pytest.mark.parametrize("verb", ["pause", "resume", "requeue", "cancel_all"])
@full_ones_do_it
async def test_where_no_shard_does_it_the_refusal_is_raised_as_it_is(
    masters: RedisCluster, url: str, colour: str, verb: str, how: str
) -> None:
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await sent(queue, dead=verb != "cancel_all")
        async with refusing(masters, queue, how, *range(SHARDS)):
            with pytest.raises(RAISED[how], match=WHY[how]):
                await other.do(verb, "t")


@both_colours
@pytest.mark.parametrize("chosen", [False, True])
@all_refuse_it
async def test_dead_letters_of_the_other_shards_are_requeued(
    masters: RedisCluster, url: str, colour: str, chosen: bool, how: str
) -> None:
    where = {"where": Where(error="broken")} if chosen else {}
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await sent(queue, dead=True)
        async with refusing(masters, queue, how, 0):
            with pytest.raises(OutcomeUnknown, match=f"{await place_of(masters, queue, 0)}.*{WHY[how]}.* 8 in all"):
                await other.do("requeue", "t", **where)
            stats = await queue.stats("t")
            assert (stats.ready, stats.dead, len(stats.missing)) == (8, MANY, 0)
        left = MANY
        while left:  # it is found out soon that it takes changes again
            with contextlib.suppress(OutcomeUnknown):
                left -= await other.do("requeue", "t", **where)


@both_colours
@all_refuse_it
async def test_dead_letters_of_other_shards_are_requeued_by_their_ids(
    masters: RedisCluster, url: str, colour: str, how: str
) -> None:
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        ids = await sent(queue, dead=True)
        async with refusing(masters, queue, how, 2):
            assert await other.do("requeue", "t", ids[:2]) == 2  # which needs only another shard
            with pytest.raises(OutcomeUnknown, match="6 in all"):
                await other.do("requeue", "t", ids[2:])
            with pytest.raises(RAISED[how], match=WHY[how]):
                await other.do("requeue", "t", ids[2 * MANY :])


@both_colours
@pytest.mark.parametrize("state", ["ready", "dead"])
@full_ones_do_it
async def test_messages_of_the_other_shards_are_purged(
    masters: RedisCluster, url: str, colour: str, state: str, how: str
) -> None:
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await sent(queue, dead=state == "dead")
        async with refusing(masters, queue, how, 0):
            with pytest.raises(OutcomeUnknown, match=f"{await place_of(masters, queue, 0)}.*{WHY[how]}.* 8 in all"):
                await other.do("purge", "t", state=state)
            stats = await queue.stats("t")
            assert (stats.ready + stats.dead, len(stats.missing)) == (MANY, 0)


@both_colours
@full_ones_do_it
async def test_messages_of_the_other_shards_are_cancelled(masters: RedisCluster, url: str, colour: str, how: str) -> None:
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await sent(queue, dead=False)
        async with refusing(masters, queue, how, 0):
            with pytest.raises(OutcomeUnknown, match=f"{WHY[how]}.* 8 in all"):
                await other.do("cancel_all", "t")
            assert (await queue.stats("t")).ready == MANY


CANCELLED, REQUEUED, PURGED = "cancel_all", "requeue", "purge"


async def made_dead(queue: AsyncQueue, *shards: int, many: int = MANY) -> list[str]:
    """So many dead letters of these shards, the first shard's first."""
    ids = list[str]()
    for shard in shards:
        sends = await queue.send_many("t", [Outgoing(shard, key=key) for key in keys_of(shard, many)])
        ids += [each.id for each in sends]
        left = many
        while left:
            for delivery in await queue.receive("t", limit=left):
                await delivery.bury("broken")
                left -= 1
    return ids


@both_colours
@full_ones_do_it
@pytest.mark.parametrize("verb", [CANCELLED, REQUEUED, PURGED])
async def test_a_first_page_that_is_refused_whole_keeps_nothing_else_from_being_changed(
    masters: RedisCluster, url: str, monkeypatch: pytest.MonkeyPatch, colour: str, verb: str, how: str
) -> None:
    monkeypatch.setattr("bide.queue.aio.bulk.PAGE", 2)
    monkeypatch.setattr("bide.queue.sync.bulk.PAGE", 2)
    options = {"state": "dead"} if verb == PURGED else {}
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        if verb == CANCELLED:
            for shard in (0, 1, 2):
                await queue.send_many("t", [Outgoing(shard, key=key, delay=60 + shard) for key in keys_of(shard, MANY)])
        else:
            await made_dead(queue, 0, 1, 2)
        async with refusing(masters, queue, how, 0):
            with pytest.raises(OutcomeUnknown, match=f"^.*{await place_of(masters, queue, 0)}.*{WHY[how]}.* 8 in all") as told:
                await other.do(verb, "t", where=Where(younger="1d"), **options)
            stats = await queue.stats("t")
            assert (stats.dead if verb != CANCELLED else stats.pending) == MANY
        assert "one part of several" not in str(told.value)
        assert str(told.value).count(await place_of(masters, queue, 0)) == 1


@both_colours
@pytest.mark.parametrize("verb", [REQUEUED, PURGED])
@pytest.mark.parametrize("how", [NO_RIGHT, NO_REPLICAS, "frozen"])
async def test_ids_of_a_server_that_fails_are_left_and_those_behind_them_are_changed(
    masters: RedisCluster, url: str, monkeypatch: pytest.MonkeyPatch, colour: str, verb: str, how: str
) -> None:
    monkeypatch.setattr("bide.queue.aio.bulk.MAX_BATCH", 2)
    monkeypatch.setattr("bide.queue.sync.bulk.MAX_BATCH", 2)
    options = {"state": "dead"} if verb == PURGED else {}
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        ids = await made_dead(queue, 2, 0, 1)
        async with frozen(masters, queue, 2) if how == "frozen" else refusing(masters, queue, how, 2):
            with pytest.raises(OutcomeUnknown, match=f"{await place_of(masters, queue, 2)}.* 8 in all"):
                await other.do(verb, "t", ids=ids, **options)
        left = SHARDS
        while left:
            left = len((await queue.stats("t")).missing)
        assert (await queue.stats("t")).dead == MANY


@both_colours
async def test_of_two_servers_that_refuse_each_is_told_with_its_reason(masters: RedisCluster, url: str, colour: str) -> None:
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await sent(queue, dead=False)
        async with refusing(masters, queue, NO_RIGHT, 0), refusing(masters, queue, NO_REPLICAS, 2):
            with pytest.raises(OutcomeUnknown, match="4 in all") as told:
                await other.do("cancel_all", "t")
        for shard, how in ((0, NO_RIGHT), (2, NO_REPLICAS)):
            assert f"{await place_of(masters, queue, shard)} " in str(told.value)
            assert WHY[how] in str(told.value)
        assert "one part of several" not in str(told.value)


@both_colours
@pytest.mark.parametrize("how", [NO_RIGHT, NO_REPLICAS])
@pytest.mark.parametrize("verb", [CANCELLED, REQUEUED, PURGED])
async def test_a_server_that_refuses_is_told_beside_one_that_is_silent(
    masters: RedisCluster, url: str, colour: str, verb: str, how: str
) -> None:
    options = {"state": "dead"} if verb == PURGED else {}
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await sent(queue, dead=verb != CANCELLED)
        await other.do("stats")
        async with frozen(masters, queue, 0), refusing(masters, queue, how, 2):
            with pytest.raises(OutcomeUnknown, match="4 in all") as told:
                await other.do(verb, "t", where=Where(key="k*"), **options)
        for shard, why in ((0, "does not answer"), (2, WHY[how])):
            assert f"{await place_of(masters, queue, shard)} " in str(told.value)
            assert why in str(told.value)
        assert "one part of several" not in str(told.value)


@both_colours
@pytest.mark.parametrize("verb", [REQUEUED, PURGED])
async def test_of_ids_in_two_servers_that_refuse_each_is_told(
    masters: RedisCluster, url: str, monkeypatch: pytest.MonkeyPatch, colour: str, verb: str
) -> None:
    monkeypatch.setattr("bide.queue.aio.bulk.MAX_BATCH", 2 * MANY)
    monkeypatch.setattr("bide.queue.sync.bulk.MAX_BATCH", 2 * MANY)
    options = {"state": "dead"} if verb == PURGED else {}
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        ids = await made_dead(queue, 0, 2, 1)
        async with frozen(masters, queue, 0), refusing(masters, queue, NO_RIGHT, 2):
            with pytest.raises(OutcomeUnknown, match="4 in all") as told:
                await other.do(verb, "t", ids=ids, **options)
        assert f"{await place_of(masters, queue, 0)} can't be reached: Timeout" in str(told.value)
        assert WHY[NO_RIGHT] in str(told.value)


@both_colours
@pytest.mark.parametrize("verb", ["cancel_many", REQUEUED, PURGED])
async def test_ids_in_two_servers_that_fail_and_in_no_other_name_both(
    masters: RedisCluster, url: str, colour: str, verb: str
) -> None:
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        ids = await sent(queue, dead=verb != "cancel_many")
        some = [*ids[:MANY], *ids[2 * MANY :]]
        asked: tuple[Any, ...] = (some,) if verb == "cancel_many" else ("t", some) if verb == REQUEUED else ("t",)
        options: dict[str, Any] = {"state": "dead", "ids": some} if verb == PURGED else {}
        await other.do("stats")
        async with frozen(masters, queue, 0), refusing(masters, queue, NO_RIGHT, 2):
            with pytest.raises((OutcomeUnknown, Unavailable)) as told:
                await other.do(verb, *asked, **options)
        for shard in (0, 2):
            assert str(told.value).count(f"{await place_of(masters, queue, shard)} ") == 1
        assert WHY[NO_RIGHT] in str(told.value)


@both_colours
@pytest.mark.parametrize("verb", [REQUEUED, PURGED])
async def test_an_id_of_no_shard_beside_ids_of_a_server_that_fails_keeps_nothing_else_from_being_changed(
    masters: RedisCluster, url: str, monkeypatch: pytest.MonkeyPatch, colour: str, verb: str
) -> None:
    monkeypatch.setattr("bide.queue.aio.bulk.MAX_BATCH", MANY + 1)
    monkeypatch.setattr("bide.queue.sync.bulk.MAX_BATCH", MANY + 1)
    options = {"state": "dead"} if verb == PURGED else {}
    async with AsyncQueue(f"{url}&shards=7".replace("namespace=", "namespace=larger")) as larger:
        sends = await larger.send_many("t", [Outgoing(1, key=f"k{i}") for i in range(99)])
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        ids = [next(each.id for each in sends if name_of(each.id).shard >= SHARDS), *await made_dead(queue, 2, 0, 1)]
        async with refusing(masters, queue, NO_RIGHT, 2):
            with pytest.raises(OutcomeUnknown, match=f"{WHY[NO_RIGHT]}.* 8 in all"):
                await other.do(verb, "t", ids=ids, **options)
        assert (await queue.stats("t")).dead == MANY


@both_colours
@pytest.mark.parametrize("verb", [CANCELLED, REQUEUED, PURGED])
async def test_what_the_others_did_and_did_not_confirm_is_told_too(
    masters: RedisCluster, url: str, colour: str, verb: str
) -> None:
    options = {"state": "dead"} if verb == PURGED else {}
    async with AsyncQueue(url) as queue, Either(f"{url}&confirm=replicas:1", colour) as other:
        await sent(queue, dead=verb != CANCELLED)
        async with refusing(masters, queue, NO_RIGHT, 2):
            with pytest.raises(OutcomeUnknown, match=f"{WHY[NO_RIGHT]}.* 8 in all.* but not all of it confirmed: "):
                await other.do(verb, "t", **options)


@both_colours
async def test_what_was_not_tried_of_a_large_batch_is_told(masters: RedisCluster, url: str, colour: str) -> None:
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        ids = [each.id for each in await queue.send_many("t", [Outgoing(1, key=f"k{i}") for i in range(2_500)])]
        async with refusing(masters, queue, NO_RIGHT, 2):
            with pytest.raises(
                OutcomeUnknown, match=r"others of the batch were done\. The last 1,500 of 2,500 were not tried\.$"
            ):
                await other.do("cancel_many", ids)
            with pytest.raises(
                OutcomeUnknown, match=r"others of the batch were done\. The last 1,500 of 2,500 were not tried\.$"
            ):
                await other.do("send_many", "u", [Outgoing(1, key=f"k{i}") for i in range(2_500)])


REFUSED = "8 messages had moved or ended before, or lie with a server that failed."


@pytest.mark.parametrize(
    ("command", "done"),
    [
        (("requeue", "t*", "--all"), f"Requeued 16 of 24 dead letters of t*. {REFUSED}\n"),
        (("purge", "t*", "--state", "dead", "--yes"), "Deleted 16 dead letters of t*.\n"),
        (("cancel", "t*", "--all", "--yes"), f"Cancelled 16 messages of t*. {REFUSED}\n"),
    ],
)
async def test_a_command_goes_on_with_the_other_servers_and_topics(
    masters: RedisCluster, url: str, command: tuple[str, ...], done: str
) -> None:
    async with AsyncQueue(url) as queue:
        for topic in ("t", "t2"):
            await sent(queue, dead=command[0] != "cancel", topic=topic)
        async with refusing(masters, queue, NO_RIGHT, 2):
            ended = await bide(url, *command)
    assert ended.code == 1
    assert WHY[NO_RIGHT] in ended.err
    assert ended.err.endswith("All else is done: run the command again later for the rest.\n")
    assert ended.out == done


async def test_the_log_says_why_a_server_takes_no_changes_and_when_it_does_again(
    masters: RedisCluster, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "bide")
    async with AsyncQueue(url) as queue:
        await sent(queue, dead=False)
        place = await place_of(masters, queue, 2)
        keys = iter(keys_of(2, 999)[MANY:])
        async with refusing(masters, queue, NO_REPLICAS, 2):
            while "takes no changes now: NOREPLICAS" not in caplog.text:
                with pytest.raises(Unavailable, match="NOREPLICAS"):
                    await queue.send("t", key=next(keys))
                assert not (await queue.stats("t")).missing
            with pytest.raises(OutcomeUnknown, match=f"not everywhere: {place} answers, but takes no changes now: NOREPLICAS"):
                await queue.pause("t")
        while "takes changes again" not in caplog.text:
            await asyncio.gather(*(queue.send("t") for _ in range(9)))
    assert "answered" not in caplog.text


@both_colours
@pytest.mark.parametrize("verb", ["requeue", "purge"])
async def test_what_one_server_did_of_a_page_before_it_refused_is_told(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, colour: str, verb: str
) -> None:
    async with Either(redis_url, colour) as other:
        await other.do("send_many", "t", range(700))
        dead = await other.do("receive", "t", limit=700)
        for delivery in dead:
            end = delivery.bury("broken")
            if colour == "async":
                await end
        calls, script, asked = (AsyncCalls if colour == "async" else Calls), f"{verb}_dead" if verb == "purge" else verb, []
        do = calls.do

        def refuse_the_second(self: Any, name: str, *args: Any, **options: Any) -> Any:
            asked.extend([name] * (name == script))
            if len(asked) == 2:
                asked.append("refused")
                raise QueueFull("it took nothing")
            return do(self, name, *args, **options)

        monkeypatch.setattr(calls, "do", refuse_the_second)
        how = {"state": "dead"} if verb == "purge" else {}
        with pytest.raises(OutcomeUnknown, match=r"it took nothing All else is done, 250 in all"):
            await other.do(verb, "t", ids=[each.id for each in dead], **how)
        assert (await other.do("stats", "t")).dead == 450


@both_colours
async def test_a_pause_tells_one_thing_of_a_server_that_may_have_done_a_part_and_refused_another(
    masters: RedisCluster, url: str, colour: str
) -> None:
    url = f"{url}&shards=6"
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await other.do("stats")
        place, namespace = await place_of(masters, queue, 0), (await engine_of(queue))._namespace
        there = [shard for shard in range(6) if await place_of(masters, queue, shard) == place]
        assert len(there) > 1
        cut(await node_of(masters, queue, 0))
        for shard in there[1:]:
            key = next(key for key in map("k{}".format, range(999)) if namespace.shards_of_name("u", key) == (shard,))
            await other.do("send", "u", 1, key=key)  # which finds that out, and connects again
        async with refusing(masters, queue, NO_REPLICAS, 0):
            why = f"{place} did not answer in time: NOREPLICAS .* may or may not have happened. When that is mended"
            with pytest.raises(OutcomeUnknown, match=f"^t is paused, but not everywhere: {why}") as told:
                await other.do("pause", "t")
        assert str(told.value).count(place) == 1


@contextlib.asynccontextmanager
async def locked_out(masters: RedisCluster, *nodes: ClusterNode) -> AsyncIterator[None]:
    """These nodes have another password, and have closed all connections."""
    for node in nodes:
        node.ask("ACL", "SETUSER", "bob", "resetpass", ">another")
        cut(node)
    try:
        yield
    finally:
        for node in nodes:
            node.ask("ACL", "SETUSER", "bob", "resetpass", ">pw")


def cut(node: ClusterNode) -> None:
    node.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


async def node_of(masters: RedisCluster, queue: AsyncQueue, shard: int) -> ClusterNode:
    return masters.node_of(slot_of((await engine_of(queue))._namespace.tag(shard)))


def ask_first(monkeypatch: pytest.MonkeyPatch, node: ClusterNode) -> None:
    """Whoever wants to know where the shards are begins with this node."""
    for kind in (AsyncNodes, Nodes):

        def in_turn(self: Any, places: Sequence[ServerPlace], in_turn: Any = kind._in_turn) -> list[ServerPlace]:
            return sorted(in_turn(self, places), key=lambda place: place.port != node.port)

        monkeypatch.setattr(kind, "_in_turn", in_turn)


@both_colours
@pytest.mark.parametrize("shard", range(SHARDS))
async def test_a_program_starts_while_one_server_refuses_its_password(
    masters: RedisCluster, url: str, monkeypatch: pytest.MonkeyPatch, colour: str, shard: int
) -> None:
    async with AsyncQueue(url) as queue:
        await sent(queue, dead=True)
        node, place = await node_of(masters, queue, shard), await place_of(masters, queue, shard)
        ask_first(monkeypatch, node)
        async with locked_out(masters, node), Either(url, colour) as other:
            for _ in range(2 * SHARDS):
                await other.do("send", "u", 1)
            assert len(await other.do("receive", "u", limit=9)) == 2 * SHARDS
            stats = await other.do("stats", "t")
            assert (stats.dead, stats.missing) == ((SHARDS - 1) * MANY, [place])
            with pytest.raises(ConfigError, match=rf"^{place} refused the user or the password \(.*\)\. Correct them") as told:
                await other.do("send", "t", 1, key=keys_of(shard, 1)[0])
            assert "pw" not in str(told.value)
            with pytest.raises(OutcomeUnknown, match=f"^{place} answers, but can't do it now: .* 8 in all") as left:
                await other.do("requeue", "t")
            assert "does not answer" not in str(left.value)


@both_colours
async def test_a_program_of_which_a_node_refuses_the_password_goes_on_with_the_others(
    masters: RedisCluster, url: str, monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    async with AsyncQueue(url) as queue, Either(url, colour) as other:
        await sent(queue, dead=True)
        await other.do("stats")
        node, place, healthy = await node_of(masters, queue, 1), await place_of(masters, queue, 1), keys_of(0, 9, "u")
        ask_first(monkeypatch, node)
        async with locked_out(masters, node):
            for key in healthy:
                cut(await node_of(masters, queue, 0))
                await other.do("send", "u", 1, key=key)
            with pytest.raises(OutcomeUnknown, match=f"{place} answers, but can't do it now: .* 8 in all") as left:
                await other.do("requeue", "t")
            assert "does not answer" not in str(left.value)


@both_colours
@pytest.mark.parametrize("many", [1, 3])
async def test_a_program_does_not_start_if_all_servers_that_answer_refuse_its_password(
    masters: RedisCluster, url: str, colour: str, many: int
) -> None:
    async with AsyncQueue(url) as queue, contextlib.AsyncExitStack() as stack:
        await queue.stats()
        for shard in range(many, SHARDS):
            await stack.enter_async_context(frozen(masters, queue, shard))
        refusing = [await node_of(masters, queue, shard) for shard in range(many)]
        await stack.enter_async_context(locked_out(masters, *refusing))
        async with Either(url, colour) as other:
            with pytest.raises(ConfigError, match=r"^127\.0\.0\.1:\d+ refused the user or the password"):
                await other.do("send", "t", 1)


@pytest.mark.always
@pytest.mark.parametrize("shard", [1, 2])
@full_ones_do_it
async def test_a_reshard_of_which_a_server_takes_no_word_has_begun(
    masters: RedisCluster, url: str, shard: int, how: str
) -> None:
    async with AsyncQueue(url) as queue:
        await sent(queue, dead=False)
        async with refusing(masters, queue, how, shard):
            began = await bide(url, "reshard", "6", "--no-wait")
        assert (began.code, began.out) == (1, "")
        assert "New messages go to 6 shards, but not all servers have been told." in began.err
        assert WHY[how] in began.err
        again = await bide(url, "reshard", "6", "--no-wait")
        assert (again.code, again.out.splitlines()[0]) == (0, "New messages go to 6 shards.")
