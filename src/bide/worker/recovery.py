"""Sees to what a worker process holds, by its claim log: keeps it while the process can't, gives it back when it is dead.

Messages whose process died in their last attempt, and whose tasks have an on_dead, are left to the process that replaces it,
since the supervisor runs no user code: that one calls on_dead and buries them. The supervisor keeps their leases until then. If
all processes die, the leases end, and the engine buries the messages: no handler begins again.
"""

import asyncio
import time
from collections.abc import Collection, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from bide.core.backoff import DEFAULT
from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, Claim, Claimed, End, Hold, Verdict
from bide.errors import EngineError, Unavailable
from bide.logs import Log
from bide.queue.deliveries import record_of
from bide.worker.claim_log import ClaimLog, nameless_file
from bide.worker.engine_trouble import EngineTrouble

_log = Log("bide.supervisor")
PROCESSES = 3  # that may die before they have buried a message: then the supervisor does, without on_dead
RENEWALS = 4
LOOKS_A_LEASE = 10
PATIENCE = 10  # leases without a sign of life
SOONEST = 0.02  # seconds between two looks
TRIES = 5
APART = 1_500  # milliseconds: a neighbour that takes a second is done before the next one comes
WITHIN = 150_000  # milliseconds in which all are back: of more than a hundred each is nearer to the one before


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
            await asyncio.sleep(self._lease_ms / 1000 / RENEWALS)
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


class LeaseKeeper:
    """Looks at the claim log of one process.

    While its heartbeat goes, the process renews what it holds. When that is late, the leases are renewed from here, for
    so many leases and no longer: then the process is taken for frozen. Looks are counted, and no time is measured, so
    that a pause of the whole machine counts for nothing.
    """

    def __init__(self, claim_log: ClaimLog, lease_ms: int) -> None:
        self._claim_log = claim_log
        self._lease_ms = lease_ms
        self._lease = lease_ms / 1000
        self._kept: dict[str, float] = {}  # claims, and when each was first seen here, or renewed from here
        self._holds: dict[str, list[Hold]] = {}  # what they hold, as far as that was asked for
        self._signs = (0.0, 0.0)
        self._silent = 0  # looks since the last sign of life, or since it holds nothing

    async def until_frozen(self, engine: AsyncEngine) -> None:
        """Renew where that is needed, until the process has been silent for too long."""
        while self._silent < PATIENCE * LOOKS_A_LEASE:
            await asyncio.sleep(max(SOONEST, self._lease / LOOKS_A_LEASE))
            late = self._late()
            if late:
                await self._try_to_renew(engine, late)

    def _late(self) -> list[str]:
        """Claims whose leases should have been renewed by now."""
        now, signs, claims = time.monotonic(), self._claim_log.signs(), self._claim_log.requests()
        self._silent = self._silent + 1 if claims and signs == self._signs else 0
        self._signs = signs
        self._kept = {claim: self._kept.get(claim, now) for claim in claims}
        self._holds = {claim: holds for claim, holds in self._holds.items() if claim in self._kept}
        _, beat = signs
        return [claim for claim, kept in self._kept.items() if now - max(kept, beat) > self._lease / 2]

    async def _try_to_renew(self, engine: AsyncEngine, claims: list[str]) -> None:
        """Whatever the engine raises: without this watch a frozen process would keep its messages for ever."""
        try:
            await self._renew(engine, claims)
        except BaseException as error:
            own = asyncio.current_task()
            if isinstance(error, KeyboardInterrupt | GeneratorExit) or (own is not None and own.cancelling()):
                raise
            _log.warning(
                "The leases of a worker process could not be renewed for it, which is tried again: %s",
                error,
                exc_info=None if isinstance(error, EngineError) else error,
            )

    async def _renew(self, engine: AsyncEngine, claims: list[str]) -> None:
        for claim in claims:
            if not self._holds.get(claim):
                found = await engine.claim([], 1, self._lease_ms, request=claim)
                self._holds[claim] = [Hold(each.topic, each.id, each.token) for each in found.messages]
        holds = [hold for claim in claims for hold in self._holds[claim]]
        for first in range(0, len(holds), MAX_BATCH):
            await engine.extend(holds[first : first + MAX_BATCH], self._lease_ms, brief=True)
        self._kept.update(dict.fromkeys(claims, time.monotonic()))


async def give_back(
    engine: AsyncEngine, claim_log: ClaimLog, reason: str, *, counts: bool = True, unburied: Unburied | None = None
) -> int:
    """End the deliveries of all claims in the claim log. Each was an attempt: after its last a message is buried, with the
    reason, but for what is put into `unburied`, which a living process buries. Unless it `counts` none was one: they are
    released. So is what came ahead of the handlers, of a claim of which none has begun.

    A claim is asked for again under its name, which gives what it still holds and takes nothing new.
    """
    patience, given = EngineTrouble("give back what a dead process held"), 0
    for _ in range(TRIES):
        try:
            begun = set(claim_log.requests()).difference(claim_log.waiting()) if counts else set()
            some, more = await _give_back(engine, claim_log.requests(), reason, unburied, begun)
            given += some
            if not more:
                return given
            raise Unavailable("A part of what a dead process held can't be reached.")
        except Exception as error:
            if not isinstance(error, EngineError):  # nobody foresaw it: all other processes are kept all the same
                _log.exception("The engine broke down over what a dead process held")
            await patience.lose(error)
    _log.error("What a dead process held could not be given back: it comes back when its leases end.")
    return given


def delays(attempts: Sequence[int]) -> list[int]:
    """When each comes back, in milliseconds, by the number of the attempt that was lost.

    The first is back at once. From the second on one of them may well be the cause of it, and nobody knows which: so
    they come back after their backoff, each by itself, in the order that its jitter makes.
    """
    waits = [DEFAULT(attempt) if attempt > 1 else 0 for attempt in attempts]
    free, apart = 0, min(APART, WITHIN // max(1, sum(map(bool, waits))))
    for index in sorted((index for index, wait in enumerate(waits) if wait), key=waits.__getitem__):
        waits[index] = max(waits[index], free)
        free = waits[index] + apart
    return waits


async def _give_back(
    engine: AsyncEngine, requests: Sequence[str], reason: str, unburied: Unburied | None, begun: Collection[str]
) -> tuple[int, bool]:
    """How many, and whether some may be left. `begun`: the claims whose deliveries were attempts."""
    claims = [await engine.claim([], 1, 1_000, request=request) for request in requests]
    held: list[Claimed] = []
    verdicts: list[Verdict] = []
    for request, claim in zip(requests, claims, strict=True):
        for each in claim.messages:
            if request in begun and unburied is not None and unburied.takes(each):
                unburied.put(Killed(request, reason))
            else:
                held.append(each)
                verdicts.append("retry" if request in begun else "release")
    now = max((claim.now for claim in claims), default=0)
    # the last attempt is no more than a name here: what is buried does not come back, and takes nobody's turn
    again = [verdict == "retry" and each.attempt < each.max_attempts for each, verdict in zip(held, verdicts, strict=True)]
    waits = delays([each.attempt if comes else 1 for each, comes in zip(held, again, strict=True)])
    ends = [_end(each, verdict, wait, reason, now) for each, verdict, wait in zip(held, verdicts, waits, strict=True)]
    answers = [
        answer for first in range(0, len(ends), MAX_BATCH) for answer in await engine.settle(ends[first : first + MAX_BATCH])
    ]
    return sum(answer != "lost" for answer in answers), any(claim.more for claim in claims)


def _end(claimed: Claimed, verdict: Verdict, wait: int, reason: str, now: int) -> End:
    hold = claimed.topic, claimed.id, claimed.token
    if verdict == "release":
        return End(*hold, verdict, wait)
    record = record_of(claimed.attempt, now, reason, here=False)
    return End(*hold, verdict, wait, reason, began=claimed.began or now, trace=record)
