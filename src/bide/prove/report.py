"""The checker's report: the verdict, the violations with the records of a few messages, and the counts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from bide.core.formats import plural
from bide.engines.base import Capabilities
from bide.prove.record import Record

Verdict: TypeAlias = bool | Literal["unknown"]

MOST = 5  # violations that a page shows of one message

INVARIANTS: Mapping[str, str] = {
    "no loss": "what was accepted was acked, cancelled, buried, purged or has expired, or is still there",
    "nothing unexpected": "what came out was sent, and is the same",
    "never early": "nothing was handed out before its time, nor was due sooner than it was asked for",
    "one live lease": "a message with a live lease is handed to no other worker",
    "fencing": "tokens rise, and an old one changes nothing",
    "final": "acked, cancelled and buried are ends, one for each message, and answers say what is",
    "idempotent": "one operation acts once, and one key has one message",
    "attempts": "they are counted 1, 2, 3 … up to the limit",
    "duplicates explained": "each repeat follows a retry, a release, a requeue, or the end of a lease",
    "handled": "what a worker acks its handler has done, and each delivery goes to one handler once",
    "batches": "all of a part, or nothing",
    "counts agree": "the counts are those of the messages that are there",
    "isolation": "a message stays in its topic, and a topic's receiver gets no other",
    "limits": "no more hold a lock or are in a limit at once than may",
    "instants": "each instant of a schedule is one message",
    "results": "a result is what the handler returned whose message was acked",
    "dependencies": "what waits for others comes after all of them are done, or at its deadline",
    "merged": "each send that was merged is in one message, once, and stays in it",
    "pause": "a paused topic hands out nothing",
}


class Terms(msgspec.Struct, frozen=True):
    """What was promised for this run."""

    can: Capabilities
    steady: bool  # no clock was set, so that the engine's time went on as this machine's did
    batches: bool  # a part of a send_many is all or nothing
    spread: bool  # a receive asks several servers, one after the other, tells their latest time, and may miss an answer


class Violation(msgspec.Struct, frozen=True):
    invariant: str
    id: str | None
    what: str
    story: Sequence[Record] = ()


class Findings:
    """What the rules have found so far."""

    def __init__(self) -> None:
        self.violations: dict[str, list[Violation]] = {}
        self.counts: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        self.doubts: list[str] = []

    def broken(self, invariant: str, id: str | None, what: str) -> None:
        assert invariant in INVARIANTS
        self.violations.setdefault(invariant, []).append(Violation(invariant, id, what))


class Report(msgspec.Struct, kw_only=True):
    valid: Verdict
    violations: Mapping[str, Sequence[Violation]]  # by invariant; the first few with all their records
    doubts: Sequence[str]  # why the verdict is unknown
    looked: bool  # whether what was left in the end is recorded
    counts: Mapping[str, int]
    duplicates: Mapping[str, int]  # by cause
    faults: Mapping[str, tuple[int, int]]  # by kind: announced, landed
    lateness: Mapping[str, int]  # ms: p50, p99 and max of first deliveries
    seconds: float  # from the first record to the last

    def __str__(self) -> str:
        return "\n".join(_page(self)) + "\n"


def _page(report: Report) -> Iterable[str]:
    yield f"valid: {report.valid if report.valid == 'unknown' else 'yes' if report.valid else 'NO'}"
    yield from (f"  {doubt}" for doubt in report.doubts)
    yield ""
    for name in ("records", "operations", "sent", "accepted", "delivered", "acked", "cancelled", "dead", "left"):
        yield f"{report.counts[name]:>12,} {name}"
    yield f"{report.counts['unknown']:>12,} operations whose outcome is unknown"
    yield f"{report.counts['recovered']:>12,} unknown sends that came out"
    yield f"{report.counts['refused']:>12,} stale endings refused"
    if report.counts["undone"]:
        yield f"{report.counts['undone']:>12,} ends that a rollback of the server has undone"
    if report.counts["handled"]:
        yield f"{report.counts['handled']:>12,} deliveries handled by workers"
    yield f"{sum(report.duplicates.values()):>12,} repeats" + _listed(report.duplicates)
    for kind, (announced, landed) in sorted(report.faults.items()):
        yield f"{landed:>12,} of {announced:,} faults landed: {kind}"
    yield f"late by ms{_listed(report.lateness)}; {report.seconds:.1f} s of history"
    for name, found in report.violations.items():
        yield ""
        yield f"BROKEN, {plural(len(found), 'time')}: {name}: {INVARIANTS[name]}"
        yield from _broken(found)


def _broken(found: Sequence[Violation]) -> Iterable[str]:
    told: dict[str | None, list[Violation]] = {}
    for each in found:
        if each.story or each.id is None:
            told.setdefault(each.id, []).append(each)
    for id, group in told.items():
        yield from (f"  {id or '-'}: {each.what}" for each in group[:MOST])
        yield from _story(group[0].story)
    left = len(found) - sum(len(group[:MOST]) for group in told.values())
    if left:
        yield f"  … and {left:,} more"


def _listed(counts: Mapping[str, int]) -> str:
    listed = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    return f": {listed}" if listed else ""


def _story(records: Sequence[Record]) -> Iterable[str]:
    for record in records:
        fields = msgspec.structs.asdict(record)
        shown = [f"{name}={value}" for name, value in fields.items() if name not in _SHOWN_ELSEWHERE and value is not None]
        seconds = (record.mono - records[0].mono) / 1e9
        yield f"    {seconds:>+10.4f} s  {record.process:<14} {record.op:<10} {record.result:<7} {' '.join(shown)}"


_SHOWN_ELSEWHERE = {"mono", "wall", "process", "op", "result", "call", "id"}
