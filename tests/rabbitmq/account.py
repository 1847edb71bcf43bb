"""What has become of each message of a run on RabbitMQ, by the histories of those who sent and handled it.

The checker of `bide.prove` knows no broker that delivers again what it had delivered to a connection that was lost, nor one
that repeats a step of the ladder after a crash. So repeats are explained here, by the faults that befell the broker.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from bide.engines.rabbitmq import CAPABILITIES
from bide.prove import Report, check, read
from bide.prove.facts import NEVER, Act, DeliveryFacts, Facts, MessageFacts
from bide.prove.load import load
from bide.prove.report import Violation

JUDGED = ("never early", "nothing unexpected", "isolation", "handled")
"""What the checker judges here. It can't know of tokens that are given again when a step of the ladder is repeated."""
BEFORE_ITS_TIME = "ms before its time"  # by the due time that the message itself tells
CAN = replace(CAPABILITIES, fencing=False)
MS = 1_000_000
SECOND = 1_000 * MS


class Wait(NamedTuple):
    """How late messages came that were due around a fault."""

    kind: str
    down: float  # seconds from the fault until the broker ran again, or could be reached
    late: int  # messages that came more than a second after that
    worst: float  # seconds after that, of the last one


class Account(NamedTuple):
    confirmed: int
    lost: Sequence[str]  # confirmed, and never handed out
    unended: Sequence[str]  # handed out, and never acked, as far as anybody knows
    repeats: Mapping[str, int]  # by cause
    unexplained: Sequence[str]
    waits: Sequence[Wait]
    raised: Mapping[tuple[str, str], int]  # errors that came to a caller: by their names, and what he did
    again: frozenset[str]  # there may have been two of it, by a fault
    report: Report

    @property
    def broken(self) -> Mapping[str, Sequence[Violation]]:
        """What the checker says, but for a due time that is older than a retry: it does not know that there may be two."""
        found = {
            name: [each for each in found if not (each.id in self.again and BEFORE_ITS_TIME not in each.what)]
            if name == "never early"
            else found
            for name, found in self.report.violations.items()
            if name in JUDGED
        }
        return {name: left for name, left in found.items() if left}

    @property
    def good(self) -> bool:
        return not (self.lost or self.unended or self.unexplained or self.broken) and self.confirmed > 0

    def __str__(self) -> str:
        counts = self.report.counts
        lines = {
            "confirmed": self.confirmed,
            "of them lost": len(self.lost),
            "delivered and not ended": len(self.unended),
            "sends whose outcome is unknown or that failed": counts["sent"] - self.confirmed,
            "of them came out": counts["recovered"],
            "deliveries": counts["delivered"],
            "repeats unexplained": len(self.unexplained),
        } | {f"repeats after {cause}": many for cause, many in self.repeats.items()}
        page = [f"LOST {each}" for each in self.lost[:5]] + [f"UNEXPLAINED {each}" for each in self.unexplained[:5]]
        page += [f"BROKEN {name}: {each.id} {each.what}" for name, found in self.broken.items() for each in found[:3]]
        page += [f"{count:>12,} {name}" for name, count in lines.items()]
        page += [
            f"{each.kind:>12}: {each.down:.1f} s; {each.late:,} came more than 1 s after that, the last {each.worst:.1f} s"
            for each in self.waits
        ]
        page += [f"{many:>12,} {error} raised by {op}" for (error, op), many in sorted(self.raised.items())]
        page += [f"late by ms: {dict(self.report.lateness)}"]
        page += [f"     {record}" for found in self.broken.values() for each in found[:3] for record in each.story]
        return "\n".join(page)


def account(paths: Sequence[Path]) -> Account:
    facts = load(paths)
    confirmed = [each for each in facts.messages.values() if each.accepted]
    causes: Counter[str] = Counter()
    unexplained: list[str] = []
    for message in facts.messages.values():
        message.deliveries.sort(key=lambda each: each.ended)
        for first, second in pairwise(message.deliveries):
            cause = _cause(facts, message, first, second)
            causes[cause or "nothing"] += 1
            if cause is None:
                unexplained.append(f"{message.id}: {first.token} in {first.process}, and {second.token} in {second.process}")
    return Account(
        confirmed=len(confirmed),
        lost=[each.id for each in confirmed if not each.deliveries],
        unended=[each.id for each in confirmed if each.deliveries and not any(map(_ends, each.acts))],
        repeats=dict(causes.most_common()),
        unexplained=unexplained,
        waits=list(_waits(facts)),
        raised=_raised(paths),
        again=frozenset(each.id for each in facts.messages.values() if _may_be_two(facts, each)),
        report=check(paths, can=CAN, steady=True, batches=False),
    )


def _cause(facts: Facts, message: MessageFacts, first: DeliveryFacts, second: DeliveryFacts) -> str | None:
    """Why it was handed out again: it was asked for, or a fault explains it.

    A fault that came in between took the delivery from its receiver. One that came while the message was on its way made the
    broker repeat a step of the ladder, and then there are two of it.
    """
    for act in message.acts:
        if act.token == first.token and act.op in ("retry", "release") and act.possible and act.began < second.ended:
            return act.op
    if taken := _fault(facts, first.began, second.ended):
        return _kind(facts, taken)
    if second.now >= first.now + first.lease and not _extended(message, first):
        return "a lease that ended"
    if repeated := _fault(facts, _sent(message), second.ended):
        return f"{_kind(facts, repeated)}, in the ladder"
    return None


def _may_be_two(facts: Facts, message: MessageFacts) -> bool:
    """Two deliveries are alike, and a fault was there before: an ack was lost, or a step of the ladder repeated."""
    return any(
        (first.due == second.due or first.token == second.token)
        and _fault(facts, _sent(message), max(first.ended, second.ended))
        for first, second in combinations(message.deliveries, 2)
    )


def _sent(message: MessageFacts) -> int:
    return min((send.began for send in message.sends), default=0)


def _fault(facts: Facts, since: int, until: int) -> Act | None:
    return next((each for each in _faults(facts) if since <= each.ended and each.began <= until), None)


def _ends(act: Act) -> bool:
    """Or may have ended it: then it is not handed out again, or the repeat is explained."""
    return act.op == "ack" and act.possible


def _extended(message: MessageFacts, held: DeliveryFacts) -> bool:
    return any(act.op == "extend" and act.token == held.token and act.possible for act in message.acts)


def _faults(facts: Facts) -> Iterable[Act]:
    return sorted((act for acts in facts.faults.values() for act in acts), key=lambda act: act.began)


def _kind(facts: Facts, fault: Act) -> str:
    return next(kind for kind, acts in facts.faults.items() if any(act is fault for act in acts))


def _waits(facts: Facts) -> Iterable[Wait]:
    faults = list(_faults(facts))
    firsts = [(_due(message), message.deliveries[0].ended) for message in facts.messages.values() if message.deliveries]
    for fault, after in zip(faults, [*faults[1:], None], strict=True):
        until = NEVER if after is None else after.began  # what waits still is late by the next fault, too
        late = [min(came, until) - max(due, fault.ended) for due, came in firsts if due < until and came > fault.ended]
        down, many = (fault.ended - fault.began) / SECOND, sum(each > SECOND for each in late)
        yield Wait(_kind(facts, fault), down, many, max(late, default=0) / SECOND)


def _due(message: MessageFacts) -> int:
    """When it was due, by the machine's monotonic clock."""
    first = message.deliveries[0]
    return first.ended - (first.now - first.due) * MS


def _raised(paths: Sequence[Path]) -> Mapping[tuple[str, str], int]:
    return Counter(
        (record.outcome, record.op)
        for path in paths
        for record in read(path)
        if record.outcome is not None and record.result in ("fail", "unknown") and record.op not in ("fault", "handle")
    )
