"""A script that fails has done nothing: whatever argument is spoilt, whatever right is missing."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import redis

from bide.engines.base import Ref, Seen
from bide.engines.redis.script import scripts
from bide.errors import BideError
from bide.types import CancelResult
from tests.redis.crowd import SETTINGS, TOPICS, Call, Scene, calls, recorded
from tests.redis.keyspace import bench_at, bring_back, counts_are_true, drain, held
from tests.servers.programs import is_redis_6

JUNK: list[Any] = ["", "x", "-1", "1e99", "nan", b"\xff\x00\xfe\r\n" * 3]
LONG, TURNS = os.environ.get("BIDE_LONG"), 6
VERBS = sorted(scripts())
COMMANDS = sorted(set(re.findall(r"call\('([A-Z]+)'", "".join(each.text for each in scripts().values()))))


def spoilt(args: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """With BIDE_LONG each argument by all that is junk, otherwise by a part of it in turn."""
    for i in range(len(args)):
        for junk in JUNK if LONG else JUNK[i % TURNS :: TURNS]:
            if junk != args[i]:
                yield f"argument {i} is {junk!r} and not {args[i]!r}", [*args[:i], junk, *args[i + 1 :]]
        yield f"only {i} arguments", list(args[:i])
    for junk in JUNK:
        yield f"{junk!r} too many", [*args, junk]


async def still_works(scene: Scene) -> None:
    async with bench_at(scene.url, now=scene.now, **SETTINGS) as bench:
        await counts_are_true(bench, TOPICS)
        await drain(bench, TOPICS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("verb", VERBS)
async def test_an_argument_that_is_spoilt_is_taken_or_changes_nothing(
    scene: Scene, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[str] = []
    for call in await recorded(scene, verb, monkeypatch):
        bring_back(scene.client, scene.base)
        for told, args in spoilt(call.args):
            fault = await _run(scene, call, args)
            if fault:
                faults.append(f"{told}: {fault}")
    assert not faults, "\n".join(faults[:20])


async def _run(scene: Scene, call: Call, args: Sequence[Any]) -> str:
    """What is wrong afterwards; the keyspace is then as it was."""
    try:
        scene.client.eval(call.script.text, len(call.keys), *call.keys, *args)
    except redis.ResponseError as error:
        if held(scene.client) == scene.base.held:
            return ""
        bring_back(scene.client, scene.base)
        return f"it changed something, and then failed: {error}"
    if held(scene.client) == scene.base.held:
        return ""
    try:
        await still_works(scene)
    except Exception as error:
        return f"it was taken, and afterwards: {error!r}"
    finally:
        bring_back(scene.client, scene.base)
    return ""


@pytest.mark.skipif(is_redis_6(), reason="Redis 6.2 notices it in the middle of a script")
@pytest.mark.parametrize("command", COMMANDS)
async def test_a_right_that_is_missing_is_named_and_nothing_was_done(scene: Scene, command: str) -> None:
    """For each verb, by a user who may do all else. A verb that does not need the right goes on."""
    scene.client.acl_setuser("clerk", enabled=True, passwords=["+word"], keys=["*"], commands=["+@all", f"-{command.lower()}"])
    try:
        faults = {verb: await _without(scene, verb, command) for verb in VERBS if verb != "close"}  # which is silent
    finally:
        scene.client.acl_deluser("clerk")
    assert not any(faults.values()), {verb: found for verb, found in faults.items() if found}
    assert any(found is not None for found in faults.values()), "no verb of the crowd met it"


async def _without(scene: Scene, verb: str, command: str) -> list[str] | None:
    """What was wrong about how the verb was refused; None when it was not."""
    url = scene.url.replace("redis://", "redis://clerk:word@")
    refused = False
    faults: list[str] = []
    for call in calls()[verb]:
        bring_back(scene.client, scene.base)
        told, ended = "", False
        try:
            async with bench_at(url, now=scene.now, **SETTINGS) as bench:
                try:
                    await call(bench, scene.crowd)
                except BideError as error:
                    told = f"{type(error).__name__}: {error}"
                if told and held(scene.client) != scene.base.held:
                    faults.append("the keyspace was changed")
                ended = True
        except BideError as error:
            if ended:
                faults.append(f"it could not be closed: {error}")
            told = told or f"{type(error).__name__}: {error}"
        refused = refused or bool(told)
        if told and not (told.startswith("ConfigError") and command in told.upper() and "bide doctor --acl" in told):
            faults.append(told)
    return faults if refused else None


async def test_the_crowd_is_of_every_state_and_can_be_drained(scene: Scene) -> None:
    async with bench_at(scene.url, now=scene.now, **SETTINGS) as bench:
        await counts_are_true(bench, TOPICS)
        told = await bench.engine.stats(now=bench.now)
        assert min(told.scheduled, told.ready, told.leased, told.dead) >= 2
        await drain(bench, TOPICS)


async def test_a_message_that_is_named_twice_takes_no_other_with_it(scene: Scene) -> None:
    """The guard refuses that; the script does not end another message, either."""
    async with bench_at(scene.url, now=scene.now, **SETTINGS) as bench:
        one, other = [await bench.put("twice", delay=5_000) for _ in range(2)]
        refs = [Ref(id=one.id), Ref(id=one.id), Ref(id=other.id)]
        seen = [Seen(one.due), Seen(one.due), Seen(other.due)]
        cancelled, gone = CancelResult.CANCELLED, CancelResult.GONE
        unguarded: Any = vars(bench.engine)["_verbs"]
        assert await unguarded.cancel(refs, seen=seen, now=bench.now) == [cancelled, gone, cancelled]
        assert None not in await bench.engine.get(refs, now=bench.now)
        await counts_are_true(bench, [*TOPICS, "twice"])
