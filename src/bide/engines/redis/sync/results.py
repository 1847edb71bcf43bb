# Generated from ../aio/results.py by tools/unasync.py; change that file instead.
"""The kept results of a Redis engine. All that belongs to a message is in its shard, which its id names.

So a reshard moves nothing: an old shard keeps the results of its messages, and is not given up before their time is over. The
server removes what is over.
"""

from collections.abc import Callable, Sequence
from typing import Any

from bide.engines.redis.protocol import gating, results
from bide.engines.redis.protocol.encoding import name_of
from bide.engines.redis.sync.batches import ShardBatches
from bide.engines.redis.sync.shard import Shard
from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept, Result, apart
from bide.engines.results.sync import Results


class RedisResults(Results):
    """Each script may run again: it does no harm."""

    def __init__(self, divided: Callable[[], ShardBatches]) -> None:
        self._divided = divided

    def expect(
        self, expected: Sequence[Expected | Dependent], *, connection: object | None = None, now: int | None = None
    ) -> None:
        def ask(shard: Shard, some: Sequence[Expected | Dependent]) -> list[Any]:
            of_results, dependents = apart(some)
            if of_results:
                shard.calls.ask("expect_results", results.expect(of_results), now)
            for part in gating.runs(dependents, lambda each: len(each.on)):
                shard.calls.ask("depend", results.depend(part), now)
            return [None] * len(some)

        self._divided().by_shard(expected, lambda each: name_of(each.id).shard, ask)

    def fulfil(self, kept: Sequence[Kept], *, now: int | None = None) -> list[list[str]]:
        def ask(shard: Shard, some: Sequence[Kept]) -> list[Any]:
            found: list[list[str]] = []
            for part in gating.runs(some, results.size_of):
                told = results.followers(shard.calls.ask("fulfil_results", results.fulfil(part), now))
                for each, followers in zip(part, told, strict=True):
                    while followers.begins:
                        _, page = shard.calls.ask("followers", (each.id, followers.begins), now)
                        followers.hear(page)
                    found.append(followers.names())
            return found

        return self._divided().by_shard(kept, lambda each: name_of(each.id).shard, ask)

    def read(self, ids: Sequence[str], *, now: int | None = None) -> list[Result | None]:
        def ask(shard: Shard, some: Sequence[str]) -> list[Any]:
            found: list[Result | None] = []
            while len(found) < len(some):
                found += results.results(shard.calls.ask("read_results", some[len(found) :], now))
            return found

        return self._divided().by_shard(ids, lambda id: name_of(id).shard, ask)

    def follow(
        self, follows: Sequence[Follow], *, connection: object | None = None, now: int | None = None
    ) -> list[bool | None]:
        def ask(shard: Shard, some: Sequence[Follow]) -> list[Any]:
            return results.followed(shard.calls.ask("follow", results.follow(some), now))

        return self._divided().by_shard(follows, lambda each: name_of(each.on).shard, ask)

    def arrive(self, arrivals: Sequence[Arrival], *, now: int | None = None) -> list[bool]:
        def ask(shard: Shard, some: Sequence[Arrival]) -> list[Any]:
            return results.ready(shard.calls.ask("arrive", results.arrive(some), now))

        return self._divided().by_shard(arrivals, lambda each: name_of(each.dependent).shard, ask)
