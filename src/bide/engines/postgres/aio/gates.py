# unasync: ../sync/gates.py
"""The gates of the PostgreSQL engine: each verb is one call of a function on the server."""

from collections.abc import Callable, Sequence
from typing import Any

from bide.engines.gates import Entered, Entry, Held, Left, Spend, Spent
from bide.engines.gates.aio import AsyncGates
from bide.engines.postgres import gates
from bide.engines.postgres.aio.connections import AsyncConnections
from bide.engines.postgres.layout import filled


class AsyncPostgresGates(AsyncGates):
    """A call that is repeated, as its answer was lost, does no harm: who is in gets the same token, and a place is free once.

    Only instants may be spent twice.
    """

    def __init__(self, connections: AsyncConnections, schema: str, request: Callable[[], str]) -> None:
        self._connections = connections
        self._calls = {verb: filled(call, schema) for verb, call in gates.CALLS.items()}
        self._request = request

    async def enter(self, entries: Sequence[Entry], *, now: int | None = None) -> list[Entered]:
        return gates.entered_of(await self._ask("enter", [*gates.entry_args(entries), now]))

    async def keep(self, held: Sequence[Held], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        return gates.kept_of(held, await self._ask("keep", [*gates.held_args(held), lease, now]))

    async def leave(self, held: Sequence[Held], *, now: int | None = None) -> Left:
        return gates.left_of(await self._ask("leave", [self._request(), *gates.held_args(held), *gates.TURNS, now]))

    async def spend(self, spends: Sequence[Spend], *, now: int | None = None) -> list[Spent]:
        return gates.spent_of(await self._ask("spend", [*gates.spend_args(spends), now]))

    async def _ask(self, verb: str, args: Sequence[Any]) -> list[Any]:
        return await self._connections.run(self._calls[verb], args, acts=True)
