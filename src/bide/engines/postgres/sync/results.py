# Generated from ../aio/results.py by tools/unasync.py; change that file instead.
"""The kept results of the PostgreSQL engine: each verb is one call of a function on the server."""

from collections.abc import Callable, Sequence
from typing import Any

from bide.engines.postgres import results
from bide.engines.postgres.layout import filled
from bide.engines.postgres.statements import Rows
from bide.engines.postgres.sync.connections import Connections
from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept, Result, apart
from bide.engines.results.sync import Results


class PostgresResults(Results):
    """A call that is repeated, as its answer was lost, does no harm."""

    def __init__(
        self,
        connections: Connections,
        schema: str,
        join: Callable[[object, str, Sequence[Any]], Rows],
    ) -> None:
        """`join`: runs a statement in the caller's transaction."""
        self._connections = connections
        self._calls = {verb: filled(call, schema) for verb, call in results.CALLS.items()}
        self._join = join

    def expect(
        self, expected: Sequence[Expected | Dependent], *, connection: object | None = None, now: int | None = None
    ) -> None:
        of_results, dependents = apart(expected)
        if of_results:
            self._ask("expect", [*results.expect_args(of_results), connection is not None, now], connection)
        if dependents:
            self._ask("depend", [*results.depend_args(dependents), connection is not None], connection)

    def fulfil(self, kept: Sequence[Kept], *, now: int | None = None) -> list[list[str]]:
        large = sum(len(each.value or b"") for each in kept)
        args = [*results.fulfil_args(kept), now]
        return results.followers_of(len(kept), self._connections.run(self._calls["fulfil"], args, acts=True, large=large))

    def read(self, ids: Sequence[str], *, now: int | None = None) -> list[Result | None]:
        return results.results_of(len(ids), self._connections.run(self._calls["read"], [list(ids), now]))

    def follow(
        self, follows: Sequence[Follow], *, connection: object | None = None, now: int | None = None
    ) -> list[bool | None]:
        args = [[each.on for each in follows], connection is not None, now]
        return results.followed_of(follows, self._ask("follow", args, connection))

    def arrive(self, arrivals: Sequence[Arrival], *, now: int | None = None) -> list[bool]:
        return results.ready_of(len(arrivals), self._ask("arrive", [*results.arrive_args(arrivals), now]))

    def _ask(self, verb: str, args: Sequence[Any], connection: object | None = None) -> Rows:
        if connection is not None:
            return self._join(connection, self._calls[verb], args)
        return self._connections.run(self._calls[verb], args, acts=True)
