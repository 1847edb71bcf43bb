"""The commands that change or send many while a shard does not answer: the others do it, and the command says what is left."""

import asyncio
import json
import re
import subprocess
from pathlib import Path

import pytest

from bide import AsyncQueue
from tests.cli.running import BIDE, Ended, plain_environment
from tests.redis.away import frozen, keys_of
from tests.redis.test_sweeps_away import MANY, place_of, sent
from tests.servers.cluster import RedisCluster

LINES = 2_500


async def bide(url: str, *arguments: str, stdin: str = "") -> Ended:
    def run() -> Ended:
        ended = subprocess.run(
            [*BIDE, *arguments, "--url", url], input=stdin, capture_output=True, check=False, text=True, env=plain_environment()
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return await asyncio.to_thread(run)


@pytest.mark.always
@pytest.mark.parametrize(
    ("command", "done"),
    [
        (("requeue", "t*", "--all"), "Requeued 16 of 16 dead letters of t*.\n"),
        (("requeue", "t*", "--all", "--error", "broken"), "Requeued 16 of 16 dead letters of t*.\n"),
        (("purge", "t*", "--state", "dead", "--yes"), "Deleted 16 dead letters of t*.\n"),
        (("purge", "t*", "--state", "ready", "--yes"), "Deleted 16 ready messages of t*.\n"),
        (("cancel", "t*", "--all", "--yes"), "Cancelled 16 messages of t*.\n"),
    ],
)
async def test_it_goes_on_with_the_other_servers_and_topics(
    masters: RedisCluster, masters_url: str, command: tuple[str, ...], done: str
) -> None:
    dead = "dead" in command or command[0] == "requeue"
    async with AsyncQueue(f"{masters_url}&timeout=1") as queue:
        for topic in ("t", "t2"):
            await sent(queue, dead=dead, topic=topic)
        async with frozen(masters, queue, 2):
            ended = await bide(f"{masters_url}&timeout=1", *command)
        place = await place_of(masters, queue, 2)
    assert (ended.code, ended.out) == (1, done)
    assert ended.err == (
        f"bide: {place} does not answer and may have some of the messages. All else is done: run the command again later "
        "for the rest.\n"
    )


async def test_ids_of_a_server_that_is_away(masters: RedisCluster, masters_url: str) -> None:
    async with AsyncQueue(f"{masters_url}&timeout=1") as queue:
        ids = await sent(queue, dead=True)
        async with frozen(masters, queue, 2):
            ended = await bide(f"{masters_url}&timeout=1", "requeue", "t", *ids)
    assert ended.code == 1
    assert ended.out == (
        f"Requeued {2 * MANY} of {3 * MANY} dead letters of t. "
        f"{MANY} messages had moved or ended before, or lie with a server that failed.\n"
    )
    assert "run the command again later for the rest" in ended.err


@pytest.mark.parametrize("verb", ["requeue", "purge"])
async def test_a_dry_run_with_ids_of_a_server_that_is_away(masters: RedisCluster, masters_url: str, verb: str) -> None:
    async with AsyncQueue(f"{masters_url}&timeout=1") as queue:
        ids = await sent(queue, dead=True)
        async with frozen(masters, queue, 2):
            ended = await bide(f"{masters_url}&timeout=1", verb, "t", *ids, "--dry-run")
            away = await bide(f"{masters_url}&timeout=1", verb, "t", *ids[2 * MANY :], "--dry-run")
            there = await bide(f"{masters_url}&timeout=1", verb, "t", ids[0], "--dry-run")
        place = await place_of(masters, queue, 2)
    assert ended.code == away.code == 1
    assert f"\n{verb} would change {2 * MANY} dead letters of t. Nothing was changed.\n" in ended.out
    assert away.out == "t has no dead letters.\n"
    assert ended.err == away.err == f"bide: no answer from {place}: what they have is missing here.\n"
    assert (there.code, there.err) == (0, "")


async def test_lines_that_may_not_have_been_sent_are_named(masters: RedisCluster, masters_url: str) -> None:
    url, command = f"{masters_url}&timeout=1", ("send", "t", "-", "--operation", "mine")
    lines = "".join(f"{number}\n" for number in range(1, LINES + 1))
    async with AsyncQueue(url) as queue:
        await queue.send("other", 1, key=keys_of(0, 1, "other")[0])
        async with frozen(masters, queue, 2):
            ended = await bide(url, *command, stdin=lines)
            stored = (await queue.stats("t")).ready
        assert ended.code == 1
        assert ended.out == f"Sent {stored:,} messages to t.\n"
        assert f"\n{LINES - stored} lines may not have been sent. Run the same command again within ten minutes" in ended.err
        assert lines_named(ended.err) == LINES - stored
    again = await bide(url, *command, stdin=lines)
    assert (again.code, again.out) == (0, "Sent 2,500 messages to t.\n")
    async with AsyncQueue(url) as fresh:  # which knows of no server that is away
        assert (await fresh.stats("t")).ready == LINES


async def test_records_that_may_not_have_been_sent_are_named(masters: RedisCluster, masters_url: str) -> None:
    url, command = f"{masters_url}&timeout=1", ("send", "--from", "-")
    record = {"topic": "t", "state": "ready", "due_ms": 1, "attempt": 0, "max_attempts": 3}
    lines = "".join(json.dumps({"id": f"i{number}", **record, "body": number}) + "\n" for number in range(LINES))
    async with AsyncQueue(url) as queue:
        await queue.send("other", 1, key=keys_of(0, 1, "other")[0])
        async with frozen(masters, queue, 2):
            ended = await bide(url, *command, stdin=lines)
            stored = (await queue.stats("t")).ready
    assert 0 < stored < LINES
    assert (ended.code, ended.out) == (1, f"Sent {stored:,} messages to 1 topic.\n")
    assert f"\n{LINES - stored} lines may not have been sent. Run the same command again within ten minutes" in ended.err
    assert ended.err.endswith(" FILE | bide send --from - OPTIONS\n")
    assert lines_named(ended.err) == LINES - stored
    again = await bide(url, *command, stdin=lines)
    assert (again.code, again.out) == (0, "Sent 2,500 messages to 1 topic.\n")
    async with AsyncQueue(url) as fresh:
        assert (await fresh.stats("t")).ready == LINES


async def test_lines_that_are_not_confirmed_are_named_and_the_others_are_sent(masters: RedisCluster, masters_url: str) -> None:
    url = f"{masters_url}&timeout=0.5"
    async with AsyncQueue(url) as queue:
        ended = await bide(f"{url}&confirm=replicas:1", "send", "t", "-", stdin="1\n" * LINES)
        assert (await queue.stats("t")).ready == LINES
    assert (ended.code, ended.out) == (1, "Sent 0 messages to t.\n")
    assert "\n2,500 lines may not have been sent. To send the rest, of which some may be sent twice, run this, " in ended.err
    assert ended.err.endswith(": sed -n '1,2500p' FILE | bide send t - OPTIONS\n")


def lines_named(error: str) -> int:
    """How many lines the command would print that is advised."""
    if in_file := re.search(r"FNR in lines' (\S+) FILE", error):
        file = Path(in_file[1])
        numbers = file.read_text().split()
        file.unlink()
        return len(numbers)
    [ranges] = re.findall(r"sed -n '(.*)' FILE", error)
    pairs = [each.removesuffix("p").split(",") for each in ranges.split(";")]
    return sum(int(pair[-1]) - int(pair[0]) + 1 for pair in pairs)
