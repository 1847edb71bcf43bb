# Generated from ../aio/gates.py by tools/unasync.py; change that file instead.
"""The gates of a Redis engine. Each lives in one shard, which its name decides.

After a reshard a gate stays in its old shard until it is empty, so the old shard is asked first. It makes no gate any more, and
tells who was last let in, and what was spent of a rate, so that its successor goes on from there.
"""

import contextlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

from bide.engines.base import MAX_BATCH, Tended
from bide.engines.gates import Called, Entered, Entry, Held, Left, Spend, Spent
from bide.engines.gates.sync import Gates
from bide.engines.redis.answers import Told, in_pieces, together
from bide.engines.redis.failures import PARTS, RENEWAL, OtherSpread
from bide.engines.redis.namespace import Namespace, by_name
from bide.engines.redis.protocol import gating, sends
from bide.engines.redis.sync.shard import Shard
from bide.engines.redis.sync.shards import Shards
from bide.engines.redis.topology import ShardSpread
from bide.errors import BideError, OutcomeUnknown, Unavailable
from bide.rounds import Round

Answers: TypeAlias = Sequence[Any]
Ask: TypeAlias = Callable[[Shard, Sequence[int], ShardSpread], Answers]
"""Asks a shard for those of a batch that are at these places."""


class RedisGates(Gates):
    def __init__(self, namespace: Namespace, opened: Callable[[], Shards]) -> None:
        self._namespace = namespace
        self._opened = opened
        self._least = 0  # the latest token that old shards tell of

    def part_of(self, gate: str) -> Hashable:
        return None if self._opened().only is not None else self._namespace.shards_of_name("", gate)

    def enter(self, entries: Sequence[Entry], *, now: int | None = None) -> list[Entered]:
        def ask(shard: Shard, some: Sequence[int], planned: ShardSpread) -> Answers:
            args = gating.enter([entries[i] for i in some], self._least)
            told, last = gating.enter_answer(shard.calls.do("enter", args, now, planned=planned))
            self._least = max(self._least, last)
            return told

        return self._ask([each.gate for each in entries], ask)

    def keep(self, held: Sequence[Held], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        brief = brief and len(self._opened()) > 1
        patience = min(lease / 1000 / PARTS, RENEWAL) if brief else None

        def ask(shard: Shard, some: Sequence[int], planned: ShardSpread) -> Answers:
            if brief and shard.is_away():
                raise shard.absence()
            args = gating.keep([held[i] for i in some], lease)
            return gating.held_answer(shard.calls.do("keep", args, now, patience=patience, planned=planned))

        try:
            return self._ask([each.gate for each in held], ask)
        except (Unavailable, OutcomeUnknown) as error:
            raise self._opened().of_a_part(error, len(held)) if brief else error from error

    def leave(self, held: Sequence[Held], *, now: int | None = None) -> Left:
        called: list[tuple[int, str]] = []

        def ask(shard: Shard, some: Sequence[int], planned: ShardSpread) -> Answers:
            reply = shard.calls.do("leave", gating.leave([held[i] for i in some]), now, planned=planned)
            called.extend((some[at], waiter) for at, waiter in gating.left_called(reply))
            return gating.held_answer(reply)

        answers = self._ask([each.gate for each in held], ask)
        in_order = sorted(called, key=lambda each: each[0])
        return Left(answers, [Called(held[at].gate, waiter) for at, waiter in in_order])

    def spend(self, spends: Sequence[Spend], *, now: int | None = None) -> list[Spent]:
        parts = gating.pieces(spends)
        older: dict[int, bytes] = {}

        def ask(shard: Shard, some: Sequence[int], planned: ShardSpread) -> Answers:
            args = gating.spend([parts[i].spend for i in some], [older.get(i, b"") for i in some])
            told = gating.spend_answer(shard.calls.do("spend", args, now, planned=planned))
            older.update({i: each.spent for i, each in zip(some, told, strict=True) if isinstance(each, gating.Absent)})
            return told

        told = self._ask([each.spend.gate for each in parts], ask, lambda i: parts[i].spend.want)
        return gating.together(len(spends), parts, told)

    def _ask(self, gates: Sequence[str], ask: Ask, size_of: Callable[[int], int] = lambda _: 0) -> list[Any]:
        """Ask those for each gate that may have it, one after the other; the others side by side."""
        chains: dict[tuple[int, ...], list[int]] = {}
        self._opened()
        for i, gate in enumerate(gates):
            chains.setdefault(self._namespace.shards_of_name("", gate), []).append(i)

        def ask_for(some: Sequence[int]) -> list[Told]:
            return self._ask_for(some, gates, ask, size_of)

        return together(len(gates), in_pieces(Round(list(chains.values()), ask_for).answers()))

    def _ask_for(self, left: Sequence[int], gates: Sequence[str], ask: Ask, size_of: Callable[[int], int]) -> list[Told]:
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
                            found.append(_told(ask, shards[number], some, spread, again=failed))
                            left = [i for i in left if i not in found[-1][0]]
                            failed = isinstance(found[-1][1], Exception)
        return found


def _told(ask: Ask, shard: Shard, some: Sequence[int], planned: ShardSpread, *, again: bool) -> Told:
    """What one shard answers, but for those that it has no gate of. `again`: it has just failed to answer others."""
    if again and shard.silent:
        return some, shard.absence()
    try:
        told = ask(shard, some, planned)
    except BideError as error:
        return some, error
    pairs = [(i, each) for i, each in zip(some, told, strict=True) if not isinstance(each, gating.Absent)]
    return [i for i, _ in pairs], [each for _, each in pairs]


def recall(shard: Shard, limit: int, now: int | None, *, patience: float | None = None) -> Tended:
    """Call the waiters of places whose lease has ended, and name those again who have not come. Of one shard."""
    return gating.recall_answer(shard.calls.ask("recall", gating.recall(limit), now, patience=patience))


def gates_left(shard: Shard) -> int:
    """How many gates and rates a shard has, after it has taken back what is over. Who is called by that is named again."""
    reply = recall(shard, MAX_BATCH, None)
    while reply.more and not reply.called:
        reply = recall(shard, MAX_BATCH, None)
    return int(shard.calls.command("ZCARD", f"{shard.prefix}agenda"))
