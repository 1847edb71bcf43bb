# unasync: ../sync/looks.py
"""Pages and counts of topics over all shards. What servers have that don't answer is left out, and they are named."""

import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from msgspec.structs import replace

from bide.engines.base import Scanned, Stored, Window, total
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.aio.shards import AsyncShards
from bide.engines.redis.failures import OtherSpread
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.presence import HASTE
from bide.engines.redis.protocol import sends, stored
from bide.rounds import AsyncRound
from bide.types import State, Stats

P = TypeVar("P")
T = TypeVar("T")


class _Fewer(Exception):
    """A shard does not answer: look again without it."""


class AsyncLooks:
    """One look: a server that did not answer is not asked again, unless none answers."""

    def __init__(self, namespace: Namespace, shards: AsyncShards) -> None:
        self._namespace = namespace
        self._shards = shards
        self._began = time.monotonic()
        self._away = {shard for shard in shards if shard.is_out_of_sight()}
        self._patience: float | None = HASTE
        if len(self._away) == len(shards) or shards.only is not None:
            self._be_patient()

    def _be_patient(self) -> None:
        """Nobody is left who answers soon."""
        self._away.clear()
        self._patience = None

    async def scan(self, topic: str, state: State | None, limit: int, after: str | None, now: int | None) -> Scanned:
        while True:
            with contextlib.suppress(OtherSpread, _Fewer):
                spread = self._namespace.spread
                there = {shard.number: shard for shard in self._shards if shard not in self._away}
                page = stored.TopicPage(topic, state, limit, after, list(there), self._namespace.highest)
                while searches := page.searches():
                    by_search = [(there[each.shard], each) for each in searches]
                    await self._ask(by_search, lambda shard, each: shard.find(each, now, self._patience))
                    chosen = page.choose(searches)
                    by_shard = sends.by_shard(chosen, lambda each: each.shard)
                    parts = [(there[number], [chosen[i] for i in at]) for number, at in by_shard.items()]
                    told = await self._ask(parts, lambda shard, some: self._shown(shard, topic, some, now))
                    pairs = zip(by_shard.values(), told, strict=True)
                    messages = {i: each for at, shown in pairs for i, each in zip(at, shown, strict=True)}
                    page.show(messages[i] for i in range(len(chosen)))
                if self._namespace.spread is spread:  # else there are other shards, too
                    return replace(page.page(), missing=self._missing(), refused=self._refused())

    async def _shown(
        self, shard: AsyncShard, topic: str, found: Sequence[stored.FoundMessage], now: int | None
    ) -> list[Stored | None]:
        """In pieces, as no script does much."""
        told: list[Stored | None] = []
        for first in range(0, len(found), sends.PART):
            told += await shard.show(topic, found[first : first + sends.PART], now, self._patience)
        return told

    async def stats(self, topic: str | None, but: Collection[str], window: Window | None, now: int | None) -> Stats:
        told: dict[str, list[Stats]] = {}
        done = set[AsyncShard]()
        while left := [shard for shard in self._shards if shard not in done | self._away]:
            with contextlib.suppress(_Fewer):
                parts = [(shard, topic) for shard in left]
                found = await self._ask(parts, lambda shard, topic: shard.stats(topic, but, window, now, self._patience))
                done.update(left)
                for name, one in (both for each in found for both in each.items()):
                    told.setdefault(name, []).append(one)
        missing = self._missing()
        timed = window.parts if window else 0
        topics = {} if topic is not None else {name: total(each, {}, timed) for name, each in told.items()}
        topics = {name: replace(each, missing=missing) for name, each in topics.items()}
        every = [one for each in told.values() for one in each]
        return replace(total(every, topics, timed), missing=missing)

    def _leave_out(self, shard: AsyncShard) -> None:
        """Also what else its server has: shards that this look has just heard of would be waited for as long again."""
        self._away.add(shard)
        for other in self._shards if shard.is_all_silent else ():
            if other.place == shard.place and max(other.heard, other.connections.server.presence.since) < self._began:
                other.connections.server.presence.lose(shard.connections.server.presence.excuse)
                self._away.add(other)

    def _missing(self) -> list[str]:
        return sorted({shard.connections.server.place for shard in self._away})

    def _refused(self) -> list[str]:
        presences = [shard.connections.server.presence for shard in self._away]
        return sorted({f"{each.state}." for each in presences if each.excuse})

    async def _ask(self, parts: Sequence[tuple[AsyncShard, P]], call: Callable[[AsyncShard, P], Awaitable[T]]) -> list[T]:
        """Raises _Fewer, or Unavailable if none answers."""
        found: list[T] = []
        before = len(self._away)
        told = await AsyncRound(parts, lambda part: call(*part)).answers()
        for (shard, _), answer in zip(parts, told, strict=True):
            if isinstance(answer, Exception) and self._patience is not None and shard.is_kept_from(answer):
                self._leave_out(shard)
            elif isinstance(answer, Exception):
                raise answer
            else:
                found.append(answer)
        if len(self._away) > before:
            if all(shard in self._away for shard in self._shards):
                self._be_patient()
            raise _Fewer
        return found
