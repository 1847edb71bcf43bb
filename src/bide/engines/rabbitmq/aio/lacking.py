"""The verbs that RabbitMQ has no way to do: a message that waits in a queue can't be found there."""

from collections.abc import Collection, Sequence
from typing import NoReturn

from bide.engines.aio import AsyncEngine
from bide.engines.base import Condition, Move, Ref, Seen, Stored, Window
from bide.errors import Unsupported
from bide.types import CancelResult, RescheduleResult, Stats


class AsyncLacking(AsyncEngine):
    """The guard refuses these before, with a sentence that names the engines that can."""

    async def cancel(
        self,
        refs: Sequence[Ref],
        *,
        seen: Sequence[Seen] | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[CancelResult]:
        _refuse()

    async def reschedule(
        self,
        moves: Sequence[Move],
        *,
        condition: Condition | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[RescheduleResult]:
        _refuse()

    async def get(self, refs: Sequence[Ref], *, brief: bool = False, now: int | None = None) -> list[Stored | None]:
        _refuse()

    async def stats(
        self, topic: str | None = None, *, but: Collection[str] = (), window: Window | None = None, now: int | None = None
    ) -> Stats:
        _refuse()

    async def pause(self, topic: str, paused: bool) -> None:
        _refuse()


def _refuse() -> NoReturn:
    raise Unsupported("RabbitMQ can't find, change or count messages that wait. Redis, PostgreSQL and SQLite can.")
