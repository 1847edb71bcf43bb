"""Messages whose process died in their last attempt, and whose tasks have an on_dead.

The supervisor runs no user code, so the process that replaces the dead one calls on_dead and buries them. The supervisor renews
their leases until then. If all processes die, the leases end, and the engine buries the messages: no handler begins again.
"""

import asyncio
from collections.abc import Collection, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from bide.engines.aio import AsyncEngine
from bide.engines.base import Claim, Claimed, End, Hold
from bide.errors import EngineError
from bide.logs import Log
from bide.queue.attempts import record_of
from bide.worker.claim_log import nameless_file

_log = Log("bide.supervisor")
PROCESSES = 3  # that may die before they have buried a message: then the supervisor does, without on_dead
LOOKS_A_LEASE = 4


class Killed(msgspec.Struct, frozen=True, array_like=True):
    """A claim of a dead process that still holds such messages, and how the process died."""

    request: str
    reason: str


def in_last_attempt(claimed: Claimed) -> bool:
    return claimed.attempt >= claimed.max_attempts


def handed_over(killed: Sequence[Killed]) -> int:
    """An open file, which the next process inherits and reads with `taken_over`."""
    file = nameless_file()
    with open(file, "wb", closefd=False) as out:
        out.write(msgspec.json.encode(killed))
    return file


def taken_over(file: int) -> tuple[Killed, ...]:
    with open(file, "rb") as given:
        given.seek(0)
        return msgspec.json.decode(given.read(), type=tuple[Killed, ...])


class Unburied:
    """The messages that one worker process, and those before it in its place, have left to bury."""

    def __init__(self, engine: AsyncEngine, topics: Collection[str], lease_ms: int) -> None:
        """`topics`: those whose tasks have an on_dead."""
        self._engine = engine
        self._topics = topics
        self._lease_ms = lease_ms
        self._tried: dict[Killed, int] = {}  # how many processes have tried to bury each, and died

    def __iter__(self) -> Iterator[Killed]:
        return iter(list(self._tried))

    def takes(self, claimed: Claimed) -> bool:
        return claimed.topic in self._topics and in_last_attempt(claimed)

    def put(self, killed: Killed) -> None:
        self._tried.setdefault(killed, 0)

    async def keep(self) -> None:
        """Renew the leases until the messages are buried. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(self._lease_ms / 1000 / LOOKS_A_LEASE)
            for killed in self:
                try:
                    if held := (await self._held(killed)).messages:
                        holds = [Hold(each.topic, each.id, each.token) for each in held]
                        await self._engine.extend(holds, self._lease_ms, brief=True)
                except Exception as error:  # nobody foresaw it, or the engine fails for a moment
                    _log.warning(
                        "The leases of messages that are to be buried could not be renewed, which is tried again: %s",
                        error,
                        exc_info=None if isinstance(error, EngineError) else error,
                    )

    async def one_more_died(self) -> int:
        """Count a process that died while it had these messages to bury, and bury what was tried often enough."""
        for killed in self:
            self._tried[killed] += 1
        return await self._bury([killed for killed, tried in self._tried.items() if tried >= PROCESSES])

    async def bury_all(self) -> int:
        """Bury all without on_dead, because no other process is started."""
        return await self._bury(list(self._tried))

    async def _bury(self, given_up: Sequence[Killed]) -> int:
        buried = 0
        for killed in given_up:
            try:
                held = await self._held(killed)
                ends = [burial(each, killed.reason, held.now) for each in held.messages]
                buried += sum(answer != "lost" for answer in (await self._engine.settle(ends) if ends else ()))
            except Exception as error:
                _log.error(
                    "The supervisor can't bury a message whose process died: the engine does when the lease ends. %s", error
                )
            self._tried.pop(killed, None)
        if buried:
            what = "1 message is" if buried == 1 else f"{buried:,} messages are"
            _log.warning("%s buried without a call of on_dead: no process has lived to make it.", what)
        return buried

    async def _held(self, killed: Killed) -> Claim:
        found = await self._engine.claim([], 1, self._lease_ms, request=killed.request)
        held = [each for each in found.messages if self.takes(each)]
        if not held and not found.more:
            self._tried.pop(killed, None)
        return replace(found, messages=held)


def burial(claimed: Claimed, reason: str, now: int) -> End:
    trace = record_of(claimed.attempt, now, reason, here=False)
    return End(claimed.topic, claimed.id, claimed.token, "dead", 0, reason, trace=trace)
