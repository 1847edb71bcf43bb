"""A change of many messages while one of several replicas is away, or a master too: which server did not confirm is told."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import patch

import pytest

from bide import AsyncQueue, ConfirmTimeout, OutcomeUnknown, Outgoing
from bide.engines.redis.aio import connections as aio_connections
from bide.engines.redis.confirm import BRIEFLY
from bide.engines.redis.protocol import sends
from bide.engines.redis.sync import connections as sync_connections
from bide.engines.redis.topology import slot_of
from bide.queue.bulk import PAGE
from tests.redis.away import COLOURS, SHARDS, Either, engine_of, frozen
from tests.redis.test_commands_away import bide
from tests.redis.test_sweeps_away import MANY, back, place_of, sent
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer

ALL = SHARDS * MANY
MORE = 1_100  # messages: several pages
SOON = "timeout=0.5"
CONFIRM = "confirm=replicas:1"
both_colours = pytest.mark.parametrize("colour", COLOURS)
names = iter(map("unconfirmed{}".format, range(1_000)))

CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "requeue": ("requeue", {}),
    "requeue of ids": ("requeue", {"ids": True}),
    "purge": ("purge", {"state": "dead"}),
    "cancel": ("cancel_all", {}),
}


@contextlib.asynccontextmanager
async def replica_away(group: RedisCluster, queue: AsyncQueue, shard: int) -> AsyncIterator[None]:
    replica = group.replica_of(group.node_of(slot_of((await engine_of(queue))._namespace.tag(shard))))
    group.freeze(replica)
    try:
        yield
    finally:
        group.thaw(replica)


def asked(change: dict[str, Any], ids: list[str]) -> dict[str, Any]:
    return {**change, "ids": ids} if "ids" in change else change


@both_colours
@pytest.mark.parametrize("name", CHANGES)
async def test_all_is_done_and_the_server_that_did_not_confirm_is_named(group: RedisCluster, colour: str, name: str) -> None:
    url = f"{group.url}?namespace={next(names)}&{SOON}"
    verb, change = CHANGES[name]
    requeued = ALL if verb == "requeue" else 0
    async with AsyncQueue(url) as queue:
        ids = await sent(queue, dead=verb != "cancel_all")
        async with replica_away(group, queue, 2), Either(f"{url}&{CONFIRM}", colour) as other:
            with pytest.raises(ConfirmTimeout) as short:
                await other.do(verb, "t", **asked(change, ids))
        stats = await queue.stats("t")
        place = await place_of(group, queue, 2)
    assert str(short.value) == (
        f"All is done, {ALL} messages, but not all of it confirmed: {place} has done it, but did not confirm it: 0 of 1 "
        "replica had it in time. A failover may undo it. In that case, do the same again."
    )
    assert (stats.ready, stats.dead) == (requeued, 0)


@both_colours
async def test_a_server_that_does_not_answer_is_told_apart(masters: RedisCluster, masters_url: str, colour: str) -> None:
    url = f"{masters_url}&{SOON}"
    async with AsyncQueue(url) as queue, Either(f"{url}&{CONFIRM}", colour) as other:
        await sent(queue, dead=True)
        async with frozen(masters, queue, 2):
            with pytest.raises(OutcomeUnknown) as lost:
                await other.do("requeue", "t")
        away, first = await place_of(masters, queue, 2), await place_of(masters, queue, 0)
        await back(other)
    assert str(lost.value).startswith(f"{away} does not answer and may have some of the messages.")
    assert f"8 in all: try again later for the rest. It is done, but not all of it confirmed: {first} has done" in str(
        lost.value
    )
    assert not isinstance(lost.value, ConfirmTimeout)


@both_colours
async def test_only_the_first_page_is_waited_for_long(redis_server: RedisServer, redis_url: str, colour: str) -> None:
    url, waits = f"{redis_url}?{SOON}", list[str]()

    def noted(connection: Any) -> Any:
        confirm = connection._confirm

        def note(self: Any, driver: Any, confirmation: Any, *more: Any, **how: Any) -> Any:
            waits.append(confirmation.wait[-1])
            return confirm(self, driver, confirmation, *more, **how)

        return patch.object(connection, "_confirm", note)

    async with AsyncQueue(url) as queue:
        await dead_letters(queue, "t")
        await queue.send_many("c", [Outgoing(1, delay="1h")] * MORE)
        for verb, topic, page in (("requeue", "t", sends.PART), ("cancel_all", "c", PAGE)):
            waits.clear()
            async with Either(f"{url}&{CONFIRM}", colour) as other:
                both = noted(aio_connections.AsyncConnection), noted(sync_connections.Connection)
                with both[0], both[1], pytest.raises(ConfirmTimeout, match=f"All is done, {MORE:,} messages"):
                    await other.do(verb, topic)
            assert waits[0] == "200"  # 0.4 of the timeout
            assert waits.count(BRIEFLY) == (MORE - 1) // page


async def dead_letters(queue: AsyncQueue, topic: str) -> None:
    await queue.send_many(topic, range(MORE))
    while found := await queue.receive(topic, limit=1_000):
        await asyncio.gather(*(each.bury("broken") for each in found))


async def test_a_command_names_the_server(group: RedisCluster) -> None:
    url = f"{group.url}?namespace={next(names)}&{SOON}"
    async with AsyncQueue(url) as queue:
        await sent(queue, dead=True)
        async with replica_away(group, queue, 2):
            ended = await bide(f"{url}&{CONFIRM}", "requeue", "t", "--all")
        place = await place_of(group, queue, 2)
    assert (ended.code, ended.out) == (1, f"Requeued {ALL} of {ALL} dead letters of t.\n")
    assert ended.err == (
        f"bide: All is done, but not all of it confirmed: {place} has done it, but did not confirm it: 0 of 1 "
        "replica had it in time. A failover may undo it. In that case, do the same again.\n"
    )


@pytest.mark.always
async def test_the_json_of_what_is_not_confirmed(group: RedisCluster) -> None:
    url = f"{group.url}?namespace={next(names)}&{SOON}"
    async with AsyncQueue(url) as queue:
        ids = await sent(queue, dead=True)
        async with replica_away(group, queue, 2):
            ended = await bide(f"{url}&{CONFIRM}", "requeue", "t", *ids, "--json")
        place = await place_of(group, queue, 2)
    told = json.loads(ended.out)
    assert ended.code == 1
    assert (told["requeued"], told["gone"], told["missing"]) == (ALL, 0, [])
    assert told["unconfirmed"].startswith(f"{place} has done it, but did not confirm it: ")
