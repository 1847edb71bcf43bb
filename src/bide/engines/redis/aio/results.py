# unasync: ../sync/results.py
"""The kept results of a Redis engine. All that belongs to a message is in its shard, which its id names.

So a reshard moves nothing: an old shard keeps the results of its messages, and is not given up before their time is over. The
server removes what is over.
"""

from collections.abc import Callable, Sequence
from typing import Any

from bide.engines.redis.aio.batches import AsyncShardBatches
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.protocol import gating, results
from bide.engines.redis.protocol.encoding import name_of
from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept, Result, apart
from bide.engines.results.aio import AsyncResults


class AsyncRedisResults(AsyncResults):
    """Each script may run again: it does no harm."""

    def __init__(self, divided: Callable[[], AsyncShardBatches]) -> None:
        self._divided = divided

    async def expect(
        self, expected: Sequence[Expected | Dependent], *, connection: object | None = None, now: int | None = None
    ) -> None:
        async def ask(shard: AsyncShard, some: Sequence[Expected | Dependent]) -> list[Any]:
            of_results, dependents = apart(some)
            if of_results:
                await shard.calls.ask("expect_results", results.expect(of_results), now)
            for part in gating.runs(dependents, lambda each: len(each.on)):
                await shard.calls.ask("depend", results.depend(part), now)
            return [None] * len(some)

        await self._divided().by_shard(expected, lambda each: name_of(each.id).shard, ask)

    async def fulfil(self, kept: Sequence[Kept], *, now: int | None = None) -> list[list[str]]:
        async def ask(shard: AsyncShard, some: Sequence[Kept]) -> list[Any]:
            found: list[list[str]] = []
            for part in gating.runs(some, results.size_of):
                told = results.followers(await shard.calls.ask("fulfil_results", results.fulfil(part), now))
                for each, followers in zip(part, told, strict=True):
                    while followers.begins:
                        _, page = await shard.calls.ask("followers", (each.id, followers.begins), now)
                        followers.hear(page)
                    found.append(followers.names())
            return found

        return await self._divided().by_shard(kept, lambda each: name_of(each.id).shard, ask)

    async def read(self, ids: Sequence[str], *, now: int | None = None) -> list[Result | None]:
        async def ask(shard: AsyncShard, some: Sequence[str]) -> list[Any]:
            found: list[Result | None] = []
            while len(found) < len(some):
                found += results.results(await shard.calls.ask("read_results", some[len(found) :], now))
            return found

        return await self._divided().by_shard(ids, lambda id: name_of(id).shard, ask)

    async def follow(
        self, follows: Sequence[Follow], *, connection: object | None = None, now: int | None = None
    ) -> list[bool | None]:
        async def ask(shard: AsyncShard, some: Sequence[Follow]) -> list[Any]:
            return results.followed(await shard.calls.ask("follow", results.follow(some), now))

        return await self._divided().by_shard(follows, lambda each: name_of(each.on).shard, ask)

    async def arrive(self, arrivals: Sequence[Arrival], *, now: int | None = None) -> list[bool]:
        async def ask(shard: AsyncShard, some: Sequence[Arrival]) -> list[Any]:
            return results.ready(await shard.calls.ask("arrive", results.arrive(some), now))

        return await self._divided().by_shard(arrivals, lambda each: name_of(each.dependent).shard, ask)
