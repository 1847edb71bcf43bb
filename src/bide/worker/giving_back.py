"""What a dead worker process held is given back at once, by whoever has its ledger."""

import logging

from bide.core.backoff import DEFAULT
from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, End, Verdict
from bide.errors import EngineError
from bide.worker.ledger import Ledger
from bide.worker.patience import Patience

_log = logging.getLogger("bide.supervisor")
TRIES = 5


async def give_back(engine: AsyncEngine, ledger: Ledger, reason: str, *, crashed: bool, counts: bool = True) -> int:
    """End the deliveries of all claims in the ledger. Each was an attempt: after its last a message is buried, with the reason.
    Unless it `counts` none was one: they are released.

    A claim is asked for again under its name, which gives what it still holds and takes nothing new. What was in a
    process that `crashed` for the second time comes back at different times: one of these messages is the cause, and the
    others had better not be beside it again.
    """
    patience = Patience("give back what a dead process held")
    for _ in range(TRIES):
        try:
            return sum([await _give_back(engine, request, reason, crashed, counts) for request in ledger.requests()])
        except EngineError as error:
            await patience.lose(error)
    _log.error("What a dead process held could not be given back: it comes back when its leases end.")
    return 0


async def _give_back(engine: AsyncEngine, request: str, reason: str, crashed: bool, counts: bool) -> int:
    claim = await engine.claim([], 1, 1_000, request=request)
    verdict: Verdict = "retry" if counts else "release"
    apart = crashed and counts
    ends = [
        End(each.topic, each.id, each.token, verdict, DEFAULT(each.attempt) if apart and each.attempt > 1 else 0, reason)
        for each in claim.messages
    ]
    answers = [
        answer for first in range(0, len(ends), MAX_BATCH) for answer in await engine.settle(ends[first : first + MAX_BATCH])
    ]
    return sum(answer != "lost" for answer in answers)
