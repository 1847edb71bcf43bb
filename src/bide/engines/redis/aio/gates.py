# unasync: ../sync/gates.py
"""The gates of a Redis engine. Each lives in one shard, which its name decides.

After a reshard a gate stays in its old shard until it is empty, so the old shard is asked first. It makes no gate any more, and
tells who was last let in, and what was spent of a rate, so that its successor goes on from there.
"""

import contextlib
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, TypeAlias

from bide.engines.base import MAX_BATCH, Tended
from bide.engines.gates import Called, Entered, Entry, Held, Left, Spend, Spent
from bide.engines.gates.aio import AsyncGates
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.aio.shards import AsyncShards
from bide.engines.redis.answers import Told, in_pieces, together
from bide.engines.redis.failures import PARTS, RENEWAL, OtherSpread
from bide.engines.redis.namespace import Namespace, by_name
from bide.engines.redis.protocol import gating, sends
from bide.engines.redis.topology import ShardSpread
from bide.errors import BideError, OutcomeUnknown, Unavailable
from bide.rounds import AsyncRound

Answers: TypeAlias = Sequence[Any]
Ask: TypeAlias = Callable[[AsyncShard, Sequence[int], ShardSpread], Awaitable[Answers]]
"""Asks a shard for those of a batch that are at these places."""


class AsyncRedisGates(AsyncGates):
    def __init__(self, namespace: Namespace, opened: Callable[[], AsyncShards]) -> None:
        self._namespace = namespace
        self._opened = opened
        self._least = 0  # the latest token that old shards tell of

    def part_of(self, gate: str) -> Hashable:
        return None if self._opened().only is not None else self._namespace.shards_of_name("", gate)

    async def enter(self, entries: Sequence[Entry], *, now: int | None = None) -> list[Entered]:
        async def ask(shard: AsyncShard, some: Sequence[int], planned: ShardSpread) -> Answers:
            args = gating.enter([entries[i] for i in some], self._least)
            told, last = gating.enter_answer(await shard.calls.do("enter", args, now, planned=planned))
            self._least = max(self._least, last)
            return told

        return await self._ask([each.gate for each in entries], ask)

    async def keep(self, held: Sequence[Held], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        brief = brief and len(self._opened()) > 1
        patience = min(lease / 1000 / PARTS, RENEWAL) if brief else None

        async def ask(shard: AsyncShard, some: Sequence[int], planned: ShardSpread) -> Answers:
            if brief and shard.is_away():
                raise shard.absence()
            args = gating.keep([held[i] for i in some], lease)
            return gating.held_answer(await shard.calls.do("keep", args, now, patience=patience, planned=planned))

        try:
            return await self._ask([each.gate for each in held], ask)
        except (Unavailable, OutcomeUnknown) as error:
            raise self._opened().of_a_part(error, len(held)) if brief else error from error

    async def leave(self, held: Sequence[Held], *, now: int | None = None) -> Left:
        called: list[tuple[int, str]] = []

        async def ask(shard: AsyncShard, some: Sequence[int], planned: ShardSpread) -> Answers:
            reply = await shard.calls.do("leave", gating.leave([held[i] for i in some]), now, planned=planned)
            called.extend((some[at], waiter) for at, waiter in gating.left_called(reply))
            return gating.held_answer(reply)

        answers = await self._ask([each.gate for each in held], ask)
        in_order = sorted(called, key=lambda each: each[0])
        return Left(answers, [Called(held[at].gate, waiter) for at, waiter in in_order])

    async def spend(self, spends: Sequence[Spend], *, now: int | None = None) -> list[Spent]:
        parts = gating.pieces(spends)
        older: dict[int, bytes] = {}

        async def ask(shard: AsyncShard, some: Sequence[int], planned: ShardSpread) -> Answers:
            args = gating.spend([parts[i].spend for i in some], [older.get(i, b"") for i in some])
            told = gating.spend_answer(await shard.calls.do("spend", args, now, planned=planned))
            older.update({i: each.spent for i, each in zip(some, told, strict=True) if isinstance(each, gating.Absent)})
            return told

        told = await self._ask([each.spend.gate for each in parts], ask, lambda i: parts[i].spend.want)
        return gating.together(len(spends), parts, told)

    async def _ask(self, gates: Sequence[str], ask: Ask, size_of: Callable[[int], int] = lambda _: 0) -> list[Any]:
        """Ask those for each gate that may have it, one after the other; the others side by side."""
        chains: dict[tuple[int, ...], list[int]] = {}
        self._opened()
        for i, gate in enumerate(gates):
            chains.setdefault(self._namespace.shards_of_name("", gate), []).append(i)

        async def ask_for(some: Sequence[int]) -> list[Told]:
            return await self._ask_for(some, gates, ask, size_of)

        return together(len(gates), in_pieces(await AsyncRound(list(chains.values()), ask_for).answers()))

    async def _ask_for(self, left: Sequence[int], gates: Sequence[str], ask: Ask, size_of: Callable[[int], int]) -> list[Told]:
        """What has an answer keeps it if shards turn out to be spread otherwise, and the rest is asked again.

        Of a part that fails no other shard is asked: the gate may be there.
        """
        found: list[Told] = []
        while left:
            with contextlib.suppress(OtherSpread):
                shards, spread = self._opened(), self._namespace.spread
                assert spread is not None, "it is known once the engine is open"
                for generation in spread.generations:
                    asked = left
                    by_shard = sends.by_shard(asked, lambda i, within=generation: by_name("", gates[i], within))  # type: ignore[misc]
                    for number, at in by_shard.items():
                        failed = False
                        for some in gating.runs([asked[i] for i in at], size_of):
                            found.append(await _told(ask, shards[number], some, spread, again=failed))
                            left = [i for i in left if i not in found[-1][0]]
                            failed = isinstance(found[-1][1], Exception)
        return found


async def _told(ask: Ask, shard: AsyncShard, some: Sequence[int], planned: ShardSpread, *, again: bool) -> Told:
    """What one shard answers, but for those that it has no gate of. `again`: it has just failed to answer others."""
    if again and shard.silent:
        return some, shard.absence()
    try:
        told = await ask(shard, some, planned)
    except BideError as error:
        return some, error
    pairs = [(i, each) for i, each in zip(some, told, strict=True) if not isinstance(each, gating.Absent)]
    return [i for i, _ in pairs], [each for _, each in pairs]


async def recall(shard: AsyncShard, limit: int, now: int | None, *, patience: float | None = None) -> Tended:
    """Call the waiters of places whose lease has ended, and name those again who have not come. Of one shard."""
    return gating.recall_answer(await shard.calls.ask("recall", gating.recall(limit), now, patience=patience))


async def gates_left(shard: AsyncShard) -> int:
    """How many gates and rates a shard has, after it has taken back what is over. Who is called by that is named again."""
    reply = await recall(shard, MAX_BATCH, None)
    while reply.more and not reply.called:
        reply = await recall(shard, MAX_BATCH, None)
    return int(await shard.calls.command("ZCARD", f"{shard.prefix}agenda"))
