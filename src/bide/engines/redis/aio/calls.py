# unasync: ../sync/calls.py
"""How the scripts of a shard are run: on which line, under which number, and again when they came too late."""

from collections.abc import Sequence
from typing import Any

from bide.engines.redis.aio.lines import AsyncLine, AsyncLines
from bide.engines.redis.failures import TooOld, Unanswered, Unpinned
from bide.engines.redis.script import scripts
from bide.engines.redis.space import Space
from bide.errors import BideError, OutcomeUnknown, Unavailable

TRIES = 3  # of a script that comes too late
LOOKS = ("get", "lease_ends", "leased", "scan", "stats", "time")  # scripts that change nothing


class AsyncCalls:
    def __init__(self, number: int, space: Space, lines: AsyncLines) -> None:
        prefix = space.prefix(number)
        self._number = number
        self._keys = (f"{prefix}meta", f"{prefix}-")
        self._space = space
        self._lines = lines

    async def command(self, *args: Any) -> Any:
        """What a command answers that changes nothing."""
        line = await self._lines.take()
        try:
            return await line.command(*args)
        except Unanswered as lost:
            raise Unavailable(str(lost)) from None
        finally:
            await self._lines.give(line)

    async def ask(self, verb: str, args: Sequence[Any], now: int | None) -> Any:
        """Run a script that may be run again at will."""
        return await self._run(verb, args, now, once=False)

    async def do(self, verb: str, args: Sequence[Any], now: int | None) -> Any:
        """Run a script that must act once."""
        return await self._run(verb, args, now, once=True)

    async def _run(self, verb: str, args: Sequence[Any], now: int | None, *, once: bool) -> Any:
        line = await self._lines.take()
        try:
            return await self._timely(line, verb, args, now, once=once)
        except Unanswered as lost:
            raise (Unavailable if verb in LOOKS else OutcomeUnknown)(str(lost)) from None
        finally:
            await self._lines.give(line)

    async def once(self, verb: str, args: Sequence[Any], now: int | None, salt: bytes) -> Any:
        """Run a script that must act once; raises Unanswered, with its number, when it may have."""
        line = await self._lines.take()
        try:
            return await self._timely(line, verb, args, now, once=True, salt=salt)
        finally:
            await self._lines.give(line)

    async def in_passing(self, verb: str, args: Sequence[Any]) -> bool:
        """Run a script that is not worth waiting for; False when the server is away."""
        line = await self._lines.take()
        try:
            head = self._head(line, None, b"", args, once=False)
            await line.run(scripts()[verb], self._keys, head, patience=0.0)
        except (BideError, Unanswered, TooOld, Unpinned):
            return False
        finally:
            await self._lines.give(line)
        return True

    async def _timely(
        self, line: AsyncLine, verb: str, args: Sequence[Any], now: int | None, *, once: bool, salt: bytes = b""
    ) -> Any:
        """Run a script; again when it came too late to act, as when we have not heard from the server for long."""
        for _ in range(TRIES):
            if once:
                line.next_number()
            try:
                return self._told(await line.run(scripts()[verb], self._keys, self._head(line, now, salt, args, once=once)))
            except TooOld as late:  # nothing was done, and now we know what time it is
                self._space.hear(late.now)
            except Unpinned:
                await self._pin(line, now)
        raise Unavailable(f"{self._space.address.shown} answers too late for anything to be done. Nothing was done; try again.")

    async def _pin(self, line: AsyncLine, now: int | None) -> None:
        """Have it said how many shards there are, in shard 0 first: whoever counts them otherwise is refused from then on."""
        for number in (0, self._number):
            prefix = self._space.prefix(number)
            head = self._head(line, now, b"", (), once=False)
            self._told(await line.run(scripts()["pin"], (f"{prefix}meta", f"{prefix}-"), head))

    def _head(self, line: AsyncLine, now: int | None, salt: bytes, args: Sequence[Any], *, once: bool) -> list[Any]:
        """What every script is told first."""
        lane, number = (line.lane, line.number) if once else ("", 0)
        until = self._space.until(now, line.patience)
        return ["" if now is None else now, self._space.known, lane, number, salt, self._space.shards, until, *args]

    def _told(self, reply: Any) -> Any:
        self._space.hear(int(reply[0]))
        return reply
