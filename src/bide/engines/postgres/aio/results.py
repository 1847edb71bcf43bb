# unasync: ../sync/results.py
"""The kept results of the PostgreSQL engine: each verb is one call of a function on the server."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bide.engines.postgres import results
from bide.engines.postgres.aio.connections import AsyncConnections
from bide.engines.postgres.layout import filled
from bide.engines.postgres.statements import Rows
from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept, Result, apart
from bide.engines.results.aio import AsyncResults


class AsyncPostgresResults(AsyncResults):
    """A call that is repeated, as its answer was lost, does no harm."""

    def __init__(
        self,
        connections: AsyncConnections,
        schema: str,
        join: Callable[[object, str, Sequence[Any]], Awaitable[Rows]],
    ) -> None:
        """`join`: runs a statement in the caller's transaction."""
        self._connections = connections
        self._calls = {verb: filled(call, schema) for verb, call in results.CALLS.items()}
        self._join = join

    async def expect(
        self, expected: Sequence[Expected | Dependent], *, connection: object | None = None, now: int | None = None
    ) -> None:
        of_results, dependents = apart(expected)
        if of_results:
            await self._ask("expect", [*results.expect_args(of_results), connection is not None, now], connection)
        if dependents:
            await self._ask("depend", [*results.depend_args(dependents), connection is not None], connection)

    async def fulfil(self, kept: Sequence[Kept], *, now: int | None = None) -> list[list[str]]:
        large = sum(len(each.value or b"") for each in kept)
        args = [*results.fulfil_args(kept), now]
        return results.followers_of(len(kept), await self._connections.run(self._calls["fulfil"], args, acts=True, large=large))

    async def read(self, ids: Sequence[str], *, now: int | None = None) -> list[Result | None]:
        return results.results_of(len(ids), await self._connections.run(self._calls["read"], [list(ids), now]))

    async def follow(
        self, follows: Sequence[Follow], *, connection: object | None = None, now: int | None = None
    ) -> list[bool | None]:
        args = [[each.on for each in follows], connection is not None, now]
        return results.followed_of(follows, await self._ask("follow", args, connection))

    async def arrive(self, arrivals: Sequence[Arrival], *, now: int | None = None) -> list[bool]:
        return results.ready_of(len(arrivals), await self._ask("arrive", [*results.arrive_args(arrivals), now]))

    async def _ask(self, verb: str, args: Sequence[Any], connection: object | None = None) -> Rows:
        if connection is not None:
            return await self._join(connection, self._calls[verb], args)
        return await self._connections.run(self._calls[verb], args, acts=True)
