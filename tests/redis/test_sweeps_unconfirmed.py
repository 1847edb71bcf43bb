"""Requeue, purge and cancel of many while no replica confirms: all is done, all is counted, and the end says so."""

import re
from typing import Any
from unittest.mock import patch

import pytest

from bide import AsyncQueue, ConfirmTimeout, Outgoing, Where
from tests.redis.away import Either
from tests.redis.test_commands_away import bide

MANY = 700  # more than go into a script, and into a page
both_colours = pytest.mark.parametrize(("shards", "colour"), [(1, "sync"), (3, "async")])
spread = pytest.mark.parametrize("shards", [1, 3])


@pytest.fixture
def plain(redis_url: str, shards: int) -> str:
    return f"{redis_url}?timeout=1&shards={shards}"


@pytest.fixture
def url(plain: str) -> str:
    """There is no replica."""
    return f"{plain}&confirm=replicas:1"


async def sent(queue: AsyncQueue, *, dead: bool) -> list[str]:
    messages = await queue.send_many("t", [Outgoing(n, key=str(n), delay=0 if dead else "1h") for n in range(MANY)])
    if dead:
        for delivery in await queue.receive("t", limit=MANY):
            await delivery.bury("broken")
    return [each.id for each in messages]


@both_colours
@pytest.mark.parametrize(
    ("verb", "options", "ready"),
    [
        ("requeue", {}, MANY),
        ("requeue", {"ids": ...}, MANY),
        ("requeue", {"where": Where(error="broken")}, MANY),
        ("purge", {"state": "dead"}, 0),
        ("purge", {"state": "dead", "ids": ...}, 0),
        ("purge", {"state": "dead", "where": Where(error="broken")}, 0),
        ("purge", {"state": "scheduled"}, 0),
        ("purge", {"state": "scheduled", "where": Where(key="*")}, 0),
        ("cancel_all", {}, 0),
    ],
)
async def test_all_is_done_and_counted(
    url: str, plain: str, colour: str, verb: str, options: dict[str, Any], ready: int
) -> None:
    async with AsyncQueue(plain) as queue, Either(url, colour) as other:
        ids = await sent(queue, dead=verb == "requeue" or options.get("state") == "dead")
        named = {name: ids if value is ... else value for name, value in options.items()}
        with pytest.raises(ConfirmTimeout, match=f"All is done, {MANY} messages, but not all of it confirmed: .*0 of 1"):
            await other.do(verb, "t", **named)
        stats = await queue.stats("t")
    assert (stats.ready, stats.dead, stats.scheduled) == (ready, 0, 0)


@spread
@pytest.mark.parametrize(
    ("command", "done"),
    [
        (("requeue", "t", "--all"), "Requeued 700 of 700 dead letters of t.\n"),
        (("purge", "t", "--state", "dead", "--yes"), "Deleted 700 dead letters of t.\n"),
        (("cancel", "t", "--all", "--yes"), "Cancelled 700 messages of t.\n"),
    ],
)
async def test_the_command_says_so(url: str, plain: str, command: tuple[str, ...], done: str) -> None:
    async with AsyncQueue(plain) as queue:
        await sent(queue, dead=command[0] != "cancel")
        ended = await bide(url, *command)
        stats = await queue.stats("t")
    assert (ended.code, ended.out, stats.dead, stats.scheduled) == (1, done, 0, 0)
    assert re.fullmatch(
        r"bide: All is done, but not all of it confirmed: .*0 of 1.* A failover may undo it\. In that case, .*\n", ended.err
    )


@spread
async def test_what_runs_is_not_told_as_cancelled(url: str, plain: str) -> None:
    async with AsyncQueue(plain) as queue, AsyncQueue(url) as other:
        await queue.send_many("t", [Outgoing(n) for n in range(10)])
        held = await queue.receive("t", limit=4, lease="1m")
        with pytest.raises(ConfirmTimeout, match="All is done, 6 messages"):
            await other.cancel_all("t")
        assert (await queue.stats("t")).leased == len(held)


@spread
async def test_what_has_run_meanwhile_is_not_told_as_cancelled(url: str, plain: str) -> None:
    async with AsyncQueue(plain) as queue, AsyncQueue(url) as other:
        await queue.send_many("t", [Outgoing(n) for n in range(10)])
        verbs: Any = type(await other.session.engine())
        cancel = verbs.cancel

        async def while_four_run(*args: Any, **options: Any) -> Any:
            held = await queue.receive("t", limit=4)
            try:
                return await cancel(*args, **options)
            finally:
                await queue.ack_many(held)

        with patch.object(verbs, "cancel", while_four_run), pytest.raises(ConfirmTimeout, match="All is done, 6 messages"):
            await other.cancel_all("t")
        assert (await queue.stats("t")).pending == 0
