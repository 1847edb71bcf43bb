"""Counts what a run recorded and judges it by what bide promises. Nothing is assumed: a run that did not try is no pass."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from bide.cli.demo.record import Record


class Promise(NamedTuple):
    name: str
    kept: bool


class Tally(NamedTuple):
    seed: int
    seconds: float
    sent: int
    cancelled: int
    delivered: int  # and acked
    retried: int
    recovered: int  # of `held`, finished by another worker
    held: int  # in the hands of the worker that stopped
    back_after: float | None  # seconds past due that the last of them came back
    refused: int  # acks of that worker that came too late
    lost: int
    left: int
    early: int
    unexplained: int  # handed out again, although nobody had failed or stopped
    lateness: Sequence[int]  # of first deliveries, in ms, sorted
    promises: Sequence[Promise]

    @property
    def kept(self) -> bool:
        return all(promise.kept for promise in self.promises)


def judge(record: Record, seed: int = 0, seconds: float = 0.0) -> Tally:
    recovered = _recovered(record)
    early = sum(handing.at < max(handing.due, _promised(record, handing.id)) for handing in record.handings)
    tally = Tally(
        seed=seed,
        seconds=seconds,
        sent=len(record.promised),
        cancelled=len(record.cancelled),
        delivered=len(record.acked),
        retried=len(record.failed),
        recovered=len(recovered),
        held=len(record.held),
        back_after=max(recovered.values(), default=0) / 1000 if recovered else None,
        refused=record.stale_refused,
        lost=len(record.open),
        left=-1 if record.left is None else record.left,
        early=early,
        unexplained=_unexplained(record),
        lateness=sorted(handing.lateness for handing in record.handings if handing.attempt == 1),
        promises=(),
    )
    return tally._replace(promises=_promises(record, tally))


def _promises(record: Record, tally: Tally) -> list[Promise]:
    ends = Counter([*record.cancelled, *(each for each, _ in record.acked)])
    once = all(count == 1 for count in ends.values()) and ends.keys() == record.promised.keys()
    cancelled_stay = not any(
        handing.id in record.cancelled and place >= record.cancelled[handing.id]
        for place, handing in enumerate(record.handings)
    )
    acked = {each for each, _ in record.acked}
    return [
        Promise("every accepted message ended exactly once", bool(tally.sent) and once),
        Promise("nothing is left in the engine", tally.left == 0),
        Promise("none was handed out early", bool(record.handings) and not tally.early),
        Promise("what was cancelled was never delivered", bool(record.cancelled) and cancelled_stay),
        Promise("what failed was tried again until it was done", bool(record.failed) and acked.issuperset(record.failed)),
        Promise("what a stopped worker held came back", 0 < tally.held == tally.recovered),
        Promise("its late ack was refused", tally.refused > 0 and not record.stale_accepted),
        Promise("every repeated delivery has a reason", not tally.unexplained),
    ]


def _promised(record: Record, message_id: str) -> int:
    """The earliest time that a message may be handed out; one that nobody sent may never be."""
    if message_id not in record.promised:
        return 2**63
    return record.moved.get(message_id, record.promised[message_id])


def _recovered(record: Record) -> dict[str, int]:
    """What a stopped worker held and another one got later and finished, with how long after its due time."""
    acked = set(record.acked)
    later = record.handings[record.stopped or 0 :]
    return {
        handing.id: handing.lateness
        for held, stopped in record.held
        for handing in later
        if handing.id == held and handing.worker != stopped and (held, handing.worker) in acked
    }


def _unexplained(record: Record) -> int:
    seen = Counter(handing.id for handing in record.handings)
    reasons = Counter([*record.failed, *(each for each, _ in record.held)])
    return sum(max(0, count - 1 - reasons[each]) for each, count in seen.items())


def percentile(ordered: Sequence[int], share: float) -> int | None:
    """The smallest value that so large a share of all does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None
