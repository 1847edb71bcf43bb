"""Judges the histories of the processes that used a queue."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from bide.engines.base import Capabilities
from bide.prove.facts import Facts
from bide.prove.load import load
from bide.prove.record import Record, read
from bide.prove.report import Findings, Report, Terms, Verdict, Violation
from bide.prove.rules import ends, leases, loss, sends, tasks, times
from bide.types import Info

ALL = Capabilities(accepted="")


def check(
    paths: Iterable[Path | str],
    left: Iterable[Info] | None = None,
    *,
    can: Capabilities = ALL,
    steady: bool = False,
    batches: bool = True,
    spread: bool = False,
    stories: int = 3,
) -> Report:
    """Judge the histories of one run against what the engine promises.

    left: all that the queue held after a full drain, unless a history has it (`History.left`). can: what the engine
    can do. steady: no clock was set during the run. batches: a part of a send_many is all or nothing, also when its
    outcome is unknown. spread: a receive asks several servers, one after the other, so it may have leased a message for as
    long before the time that it tells; and during a fault some on a server whose answer was lost. stories: for so many of
    each invariant's violations all records are shown.

    Only what must be wrong is a violation: when two operations overlapped, or an outcome is unknown, every order and both
    outcomes are considered possible. All histories have to come from one machine.
    """
    paths = list(paths)
    facts = load(paths, left)
    terms, found = Terms(can, steady, batches, spread), Findings()
    if spread:
        facts.unseen += facts.partly_answered()
    if steady:
        times.sharpen(facts, terms)
    for rule in (sends, times, leases, ends, tasks, loss):
        rule.judge(facts, terms, found)
    doubts = [*_doubts(facts, found), *found.doubts]
    verdict: Verdict = False if found.violations else "unknown" if doubts else True
    return Report(
        valid=verdict,
        violations=_with_stories(paths, facts, found, stories),
        doubts=doubts,
        looked=facts.look is not None,
        counts=dict.fromkeys(("dead", "refused", "undone"), 0) | found.counts | _counts(facts),
        duplicates=dict(found.causes.most_common()),
        faults={kind: (len(acts), sum(act.happened for act in acts)) for kind, acts in facts.faults.items()},
        lateness=_lateness(facts),
        seconds=max(0, facts.end - facts.begin) / 1e9,
    )


def _doubts(facts: Facts, found: Findings) -> Iterable[str]:
    """Why a run that broke nothing may have shown nothing."""
    if not any(message.accepted for message in facts.messages.values()):
        yield "No send was accepted."
    if not any(message.deliveries for message in facts.messages.values()):
        yield "Nothing was delivered."
    for kind, acts in facts.faults.items():
        if not any(act.happened for act in acts):
            yield f"{len(acts)} faults were announced and none has landed: {kind}."


def _counts(facts: Facts) -> dict[str, int]:
    messages = facts.messages.values()
    return {
        "records": facts.records,
        "operations": facts.operations,
        "unknown": facts.unknown,
        "sent": facts.tries,
        "accepted": sum(message.accepted for message in messages),
        "recovered": facts.recovered,
        "delivered": sum(len(message.deliveries) for message in messages),
        "handled": sum(len(message.handled) for message in messages),
        "acked": sum(any(message.done("ack")) for message in messages),
        "cancelled": sum(any(message.done("cancel")) for message in messages) + _cancelled_by_key(facts),
        "left": sum(message.left is not None for message in messages),
    }


def _cancelled_by_key(facts: Facts) -> int:
    return sum(act.op == "cancel" and act.happened for acts in facts.by_key.values() for act in acts)


def _lateness(facts: Facts) -> dict[str, int]:
    firsts = (min(each.deliveries, key=lambda d: d.token) for each in facts.messages.values() if each.deliveries)
    late = sorted(first.now - first.due for first in firsts)
    if not late:
        return {}
    return {"p50": late[len(late) // 2], "p99": late[len(late) * 99 // 100], "max": late[-1]}


def _with_stories(paths: Iterable[Path | str], facts: Facts, found: Findings, stories: int) -> dict[str, Sequence[Violation]]:
    """The violations; for the first few messages of each invariant with all that was written about them."""
    told = {name: _first_ids(group, stories) for name, group in found.violations.items()}
    ids = set[str]().union(*told.values())
    if not ids:
        return dict(found.violations)
    tags = {send.tag: id for id in ids for send in (facts.messages[id].sends if id in facts.messages else ())}
    records: dict[str | None, list[Record]] = {id: [] for id in ids}
    for path in paths:
        calls: dict[int, str] = {}
        for record in read(path):
            about = record.id if record.id in ids else tags.get(record.tag or "") or calls.get(record.call)
            if about is not None:
                records[about].append(record)
                if record.result == "invoke":
                    calls[record.call] = about
    for story in records.values():
        story.sort(key=lambda record: record.mono)
    return {
        name: [msgspec.structs.replace(each, story=records[each.id]) if each.id in told[name] else each for each in group]
        for name, group in found.violations.items()
    }


def _first_ids(group: Iterable[Violation], many: int) -> set[str]:
    found = dict.fromkeys(each.id for each in group if each.id is not None)
    return set(list(found)[:many])
