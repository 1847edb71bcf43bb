# Generated from ../aio/sends.py by tools/unasync.py; change that file instead.
"""New messages: which shards they go to, and which are asked before whether they know of them."""

import contextlib
from collections.abc import Callable, Sequence
from random import randrange
from typing import Any, TypeVar

from msgspec.structs import replace

from bide.core.times import check_delay
from bide.engines.base import NewMessage
from bide.engines.redis.answers import Told, in_pieces, sent_together
from bide.engines.redis.failures import BRIEF, OtherSpread
from bide.engines.redis.namespace import Namespace, by_name
from bide.engines.redis.presence import HASTE
from bide.engines.redis.protocol import sends
from bide.engines.redis.sync.shard import Shard
from bide.engines.redis.sync.shards import Shards
from bide.engines.redis.topology import Generation, ShardSpread
from bide.errors import BideError, ConfigError, ConfirmTimeout, Unavailable
from bide.ids import lane
from bide.rounds import Round
from bide.types import Sent

T = TypeVar("T")
BYTES = 1_000_000  # a second, that are sent to a slow server
TURNS = 8  # names a shard that are tried for one that leads to a shard which answers


class ShardSends:
    """Each send is planned by how messages are spread, as far as is known. If that changes meanwhile, it is planned anew."""

    def __init__(self, namespace: Namespace, shards: Shards) -> None:
        self._namespace = namespace
        self._shards = shards
        self._turn = randrange(2**16)
        self._passed_over: Shard | None = None  # as it did not answer lately

    def put(self, messages: Sequence[NewMessage], now: int | None, *, brief: bool = False) -> list[Sent]:
        while True:
            spread, only = self._namespace.spread, self._shards.only
            try:
                if only is not None and spread is not None and len(messages) == 1:  # the short way, that most sends take
                    return only.put(messages, spread, now)
                return self._put(messages, spread or self._spread(), now, brief)
            except OtherSpread:
                continue  # messages go to other shards now

    def _put(self, messages: Sequence[NewMessage], spread: ShardSpread, now: int | None, brief: bool) -> list[Sent]:
        shards, (*old, current) = self._shards, spread.generations
        parts = self._parts(messages, current)
        if not parts:
            return []
        if self._passed_over is not None:
            passed_over, self._passed_over = self._passed_over, None
            passed_over.is_away()  # whoever only sends finds out here that it is back
        if len(parts) > 1 or brief or (old and any(map(_has_name, messages))):
            return self._put_apart(messages, now, brief)
        [(number, _)] = parts
        shard = shards[number]
        if any(map(_has_name, messages)):
            return shard.put(messages, spread, now)
        while any(not shards[other].silent for other in current.numbers if other != shard.number):
            try:
                return shard.put(messages, spread, now, patience=BRIEF)
            except (Unavailable, ConfigError):  # it has done nothing, so another one may do it
                if not shard.silent:
                    raise
                shard = shards[self._any_shard(current)]
        return shard.put(messages, spread, now)

    def _put_apart(self, messages: Sequence[NewMessage], now: int | None, brief: bool) -> list[Sent]:
        """Send in several parts, side by side. Each message has an operation, so all can be sent again if one part fails.

        While some shards empty themselves, they are asked first what they know of a message with a name.
        """
        shards, (*old, current) = self._shards, self._spread().generations
        name = lane()
        named = [new if new.operation else self._named(new, f"{name}#{i}") for i, new in enumerate(messages)]
        clock = max(shard.clock.known for shard in shards)
        for new in named:  # before the first part is taken
            check_delay(new.delay, new.at, max(clock, now or 0))
        known = [_has_name(new) for new in messages]
        chains: dict[tuple[int, ...], list[int]] = {}
        for i, new in enumerate(named):
            chains.setdefault(self._chain(new, (*old, current) if known[i] else (current,)), []).append(i)

        def put(some: Sequence[int]) -> list[Told]:
            return self._put_left(named, some, known, now, brief)

        told = list(in_pieces(Round(list(chains.values()), put).answers()))
        return sent_together(len(named), told, [new.operation or "" for new in named])

    def shards_of(self, new: NewMessage) -> tuple[int, ...]:
        """The shards that may know of a message, in the order in which they are asked; none if any may take it."""
        return self._chain(new, self._spread().generations) if _has_name(new) else ()

    def _chain(self, new: NewMessage, generations: Sequence[Generation]) -> tuple[int, ...]:
        return tuple(self._namespace.shard_of(new, 0, each) for each in generations)

    def _put_left(
        self, messages: Sequence[NewMessage], left: Sequence[int], known: Sequence[bool], now: int | None, brief: bool
    ) -> list[Told]:
        """Those of one chain of shards. What is left when messages turn out to be spread otherwise is planned anew."""
        found: list[Told] = []
        while left:
            with contextlib.suppress(OtherSpread):
                spread = self._spread()
                for generation in spread.generations:
                    current = generation is spread.current
                    asked = [i for i in left if current or known[i]]
                    failed: dict[int, Exception] = {}
                    for number, at in self._parts([messages[i] for i in asked], generation):
                        some, shard = [asked[k] for k in at], self._shards[number]
                        if number in failed:  # what comes later with a key may not overtake what could not be sent
                            found.append((some, failed[number]))
                        else:
                            found.append(self._told(shard, messages, some, spread, current, now, brief))
                        error = found[-1][1]
                        if isinstance(error, Exception) and (shard.silent or not isinstance(error, ConfirmTimeout)):
                            failed[number] = shard.absence() if isinstance(error, ConfirmTimeout) else error
                        left = [i for i in left if i not in found[-1][0]]
        return found

    def _told(
        self,
        shard: Shard,
        messages: Sequence[NewMessage],
        some: Sequence[int],
        spread: ShardSpread,
        current: bool,
        now: int | None,
        brief: bool,
    ) -> Told:
        """What one shard answers, but for those that it knows nothing of."""
        try:
            how: dict[str, Any] = {}
            if brief:
                how = {"patience": HASTE + sum(len(messages[i].body) for i in some) / BYTES, "insist": False}
                shard.is_away()  # whoever only sends finds out here that it is slow
            told = (shard.put if current else shard.put_known)([messages[i] for i in some], spread, now, **how)
        except ConfirmTimeout as short:
            if not short.done:
                return some, short
            known = [k for k, sent in enumerate(short.done) if sent is not None]
            own = [short.operations[k] for k in known]
            part = ConfirmTimeout(str(short), operations=own, done=[short.done[k] for k in known])
            return [some[k] for k in known], part if known else []
        except BideError as error:
            return some, error
        pairs = [(i, sent) for i, sent in zip(some, told, strict=True) if sent is not None]
        return [i for i, _ in pairs], [sent for _, sent in pairs]

    def _named(self, new: NewMessage, name: str) -> NewMessage:
        """With an operation, which leads a message without a key to a shard that answers."""
        if new.key is None:
            current = self._spread().current
            names = (name, *(f"{name}.{turn}" for turn in range(current.size * TURNS)))
            name = self._likeliest(names, lambda each: by_name(new.topic, each, current))
        return replace(new, operation=name)

    def _parts(self, messages: Sequence[NewMessage], generation: Generation) -> list[tuple[int, list[int]]]:
        any_shard = self._any_shard(generation)
        return sends.put_parts(messages, lambda new: self._namespace.shard_of(new, any_shard, generation))

    def _any_shard(self, generation: Generation) -> int:
        """For what may be on any: the next one by turns, of those that answer."""
        self._turn += 1
        numbers = [generation.numbers[(self._turn + turn) % generation.size] for turn in range(generation.size)]
        chosen = self._likeliest(numbers, lambda number: number)
        if chosen != numbers[0]:
            self._passed_over = self._shards[numbers[0]]
        return chosen

    def _likeliest(self, choice: Sequence[T], number_of: Callable[[T], int]) -> T:
        """The first whose shard answers; if none seems to, as when this process gets no time, that which answered last."""
        for each in choice:
            if not self._shards[number_of(each)].silent:
                return each
        return max(choice, key=lambda each: self._shards[number_of(each)].heard)

    def _spread(self) -> ShardSpread:
        spread = self._namespace.spread
        assert spread is not None, "shards that are open know it"
        return spread


def _has_name(new: NewMessage) -> bool:
    """Whether a shard may know of it already."""
    return new.key is not None or new.operation is not None
