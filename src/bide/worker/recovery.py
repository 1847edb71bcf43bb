"""Gives back what a dead worker process held, by its claim log: at once, and one by one from the second time on."""

from collections.abc import Sequence

from bide.core.backoff import DEFAULT
from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, End, Verdict
from bide.errors import EngineError, Unavailable
from bide.logs import Log
from bide.worker.claim_log import ClaimLog
from bide.worker.retry import Retrying

_log = Log("bide.supervisor")
TRIES = 5
APART = 1_500  # milliseconds: a neighbour that takes a second is done before the next one comes


async def give_back(engine: AsyncEngine, claim_log: ClaimLog, reason: str, *, counts: bool = True) -> int:
    """End the deliveries of all claims in the claim log. Each was an attempt: after its last a message is buried, with the
    reason. Unless it `counts` none was one: they are released.

    A claim is asked for again under its name, which gives what it still holds and takes nothing new.
    """
    patience, given = Retrying("give back what a dead process held"), 0
    for _ in range(TRIES):
        try:
            some, more = await _give_back(engine, claim_log.requests(), reason, counts)
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
    free = 0
    for index in sorted((index for index, wait in enumerate(waits) if wait), key=waits.__getitem__):
        waits[index] = max(waits[index], free)
        free = waits[index] + APART
    return waits


async def _give_back(engine: AsyncEngine, requests: Sequence[str], reason: str, counts: bool) -> tuple[int, bool]:
    """How many, and whether some may be left."""
    claims = [await engine.claim([], 1, 1_000, request=request) for request in requests]
    held = [each for claim in claims for each in claim.messages]
    verdict: Verdict = "retry" if counts else "release"
    # the last attempt is no more than a name here: what is buried does not come back, and takes nobody's turn
    waits = delays([each.attempt if counts and each.attempt < each.max_attempts else 1 for each in held])
    ends = [End(each.topic, each.id, each.token, verdict, wait, reason) for each, wait in zip(held, waits, strict=True)]
    answers = [
        answer for first in range(0, len(ends), MAX_BATCH) for answer in await engine.settle(ends[first : first + MAX_BATCH])
    ]
    return sum(answer != "lost" for answer in answers), any(claim.more for claim in claims)
