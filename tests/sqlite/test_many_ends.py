"""Claims, ends and longer leases of many, which take a statement for each hundred: each is answered for itself."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide.engines.base import End, Hold, NewMessage, Ref
from bide.engines.sqlite.transaction import AT_ONCE, FEW

SIZES = [1, FEW - 1, FEW, AT_ONCE, AT_ONCE + 1, AT_ONCE + FEW, 3 * AT_ONCE - 1]


async def claimed(engine: Any, many: int) -> Any:
    await engine.put([NewMessage("t", b"%d" % number) for number in range(many)])
    claim = await engine.claim(["t"], many, 60_000)
    assert [message.body for message in claim.messages] == [b"%d" % number for number in range(many)]
    return claim.messages


@pytest.mark.parametrize("many", SIZES)
async def test_each_end_is_answered_for_itself(engine: Any, many: int) -> None:
    ends, wanted = [], []
    for number, each in enumerate(await claimed(engine, many)):
        other = f"{int(each.id[:12], 16):012x}{int(each.id[12:], 16) ^ 1:04x}"
        asked = [
            (End("t", each.id, f"{int(each.token) - 1:016d}", "done"), "lost"),
            (End("t", other, each.token, "done"), "lost"),
            (End("elsewhere", each.id, each.token, "done"), "lost"),
            (End("t", "no id", each.token, "done"), "lost"),
            [
                (End("t", each.id, each.token, "done"), "done"),
                (End("t", each.id, each.token, "retry", 5_000), "scheduled"),
                (End("t", each.id, each.token, "dead"), "dead"),
            ][number % 3],
            (End("t", each.id, each.token, "done"), "lost"),
        ]
        ends += [end for end, _ in asked]
        wanted += [answer for _, answer in asked]
    assert await engine.settle(ends) == wanted
    stats = await engine.stats("t")
    assert [stats.leased, stats.scheduled, stats.dead] == [0, len(range(1, many, 3)), len(range(2, many, 3))]


@pytest.mark.parametrize("many", SIZES)
async def test_each_lease_is_made_longer_for_itself(engine: Any, many: int) -> None:
    messages = await claimed(engine, many)
    stale = set(range(0, many, 4))
    tokens = [f"{int(each.token) - (number in stale):016d}" for number, each in enumerate(messages)]
    holds = [Hold("t", each.id, token) for each, token in zip(messages, tokens, strict=True)]
    before = [each.lease_until for each in await engine.get([Ref(each.id) for each in messages])]
    assert await engine.extend(holds, 3_600_000) == [number not in stale for number in range(many)]
    after = [each.lease_until for each in await engine.get([Ref(each.id) for each in messages])]
    assert [old == new for old, new in zip(before, after, strict=True)] == [number in stale for number in range(many)]


async def test_what_was_ended_together_is_gone_with_its_large_bodies(engine: Any, path: Path) -> None:
    await engine.put([NewMessage("t", b"x" * (2_000 if number % 2 else 10)) for number in range(AT_ONCE + FEW)])
    claim = await engine.claim(["t"], AT_ONCE + FEW, 60_000)
    assert [len(message.body) for message in claim.messages] == [2_000 if number % 2 else 10 for number in range(AT_ONCE + FEW)]
    assert set(await engine.settle([End("t", each.id, each.token, "done") for each in claim.messages])) == {"done"}
    with closing(sqlite3.connect(path)) as own:
        assert own.execute("select (select count(*) from message), (select count(*) from large)").fetchall() == [(0, 0)]
