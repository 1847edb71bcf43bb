"""Reads histories: pairs the begin of each operation with its end, and groups them by what they were about."""

import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from bide.prove.facts import NEVER, Act, ClockSet, DeliveryFacts, Facts, Handled, LastLook, LeftMessage, Receive, Send
from bide.prove.history import join_messages, join_operations, stored
from bide.prove.record import Record, read
from bide.types import Info

OF_TOPICS = ("pause", "resume", "requeue", "purge")


def load(paths: Iterable[Path | str], left: Iterable[Info] | None = None) -> Facts:
    """`left` replaces what the histories say was left."""
    facts = Facts()
    machines = set[str]()
    for path in paths:
        machines |= _load_one(path, facts)
    if left is not None:
        _add_look(
            facts,
            LastLook(facts.end + 1, facts.end + 1, True, None),
            {info.id: msgspec.convert(stored(info), LeftMessage) for info in left},
        )
    for id, each in facts.left.items():
        facts.message(id).left = each
    if len(machines) > 1:
        raise ValueError("The histories are of several machines, or of several boots of one: their clocks can't be compared.")
    facts.clocks.sort(key=lambda each: each.began)
    join_operations(facts)
    join_messages(facts)
    return facts


def _load_one(path: Path | str, facts: Facts) -> set[str]:
    machines = set[str]()
    under_way: dict[int, Record] = {}
    looked: tuple[int, dict[str, LeftMessage]] = (0, {})
    for record in read(path):
        facts.records += 1
        facts.begin, facts.end = min(facts.begin, record.mono), max(facts.end, record.mono)
        if record.op == "deliver":
            _add_delivery(facts, record, under_way.get(record.call))
        elif record.op == "left":
            if looked[0] != record.call:
                looked = record.call, {}
            looked[1][record.id or ""] = msgspec.convert(msgspec.structs.asdict(record), LeftMessage)
        elif record.op == "look":
            look = LastLook(record.mono, record.mono, record.note == "drained", record.counts)
            _add_look(facts, look, looked[1] if looked[0] == record.call else {})
        elif record.op == "begin":
            machines.add(record.note or "")
        elif record.result == "invoke":
            under_way[record.call] = record
        elif record.call in under_way:
            _add(facts, under_way.pop(record.call), record)
        else:
            raise ValueError(f"{path} has the end of a {record.op} that never began.")
    for record in under_way.values():
        _add(facts, record, None)
    return machines


def _add_look(facts: Facts, look: LastLook, left: dict[str, LeftMessage]) -> None:
    """Only the last look counts."""
    if facts.look is None or facts.look.began < look.began:
        facts.look = look
        facts.left = left


def _add_delivery(facts: Facts, record: Record, receive: Record | None) -> None:
    assert record.id is not None
    topic = sys.intern(record.topic or "")
    facts.message(record.id).deliveries.append(
        DeliveryFacts(
            began=0 if receive is None else receive.mono,
            ended=record.mono,
            took=0 if receive is None else -((receive.mono - record.mono) // 1_000_000),
            topic=topic,
            key=record.key,
            tag=record.tag,
            body=record.body,
            headers=record.headers,
            due=record.due or 0,
            now=record.now or 0,
            token=record.token or "",
            attempt=record.attempt or 0,
            max_attempts=record.max_attempts or 0,
            lease=record.lease or 0,
            call=record.call,
            process=sys.intern(record.process),
            foreign=receive is not None and topic not in (receive.topics or ()),
            tags=record.tags,
            planned=record.planned,
            again=record.again,
        )
    )


def _add(facts: Facts, asked: Record, answer: Record | None) -> None:
    facts.operations += 1
    known = answer is not None and answer.result in ("ok", "fail")
    facts.unknown += not known
    if asked.op == "send":
        _add_send(facts, asked, answer if known else None)
    elif asked.op == "clock":
        known_at, shown = (NEVER, None) if answer is None else (answer.mono, answer.now)
        facts.clocks.append(ClockSet(began=asked.mono, ended=known_at, now=shown))
    elif asked.op in ("receive", "listen"):
        _add_receive(facts, asked, answer if known else None)
    elif asked.op == "handle":
        _add_handled(facts, asked, answer)
    else:
        _add_act(facts, asked, answer if known else None)


def _add_send(facts: Facts, asked: Record, answer: Record | None) -> None:
    facts.tries += 1
    send = Send(
        began=asked.mono,
        ended=NEVER if answer is None else answer.mono,
        result="unknown" if answer is None else answer.result,
        topic=sys.intern(asked.topic or ""),
        key=asked.key,
        tag=asked.tag or "",
        body=asked.body or "",
        headers=sys.intern(asked.headers or ""),
        delay=asked.delay,
        at=asked.at,
        expires_in=asked.expires_in,
        max_attempts=asked.max_attempts or 0,
        if_exists=asked.if_exists,
        operation=asked.operation,
        batch=None if asked.batch is None else f"{asked.process} {asked.batch}",
        needs=asked.needs,
        last=asked.mono,
        id=None if answer is None or answer.result == "fail" else answer.id,
        due=None if answer is None else answer.due,
        outcome=None if answer is None else answer.outcome,
    )
    earlier = facts.sends.get(send.tag)
    if earlier is None:
        facts.sends[send.tag] = send
    else:
        _fold(facts, earlier, send)


def _fold(facts: Facts, first: Send, again: Send) -> None:
    """Two tries of one send are one: it took effect between the first beginning and the first good end."""
    first.tries += again.tries
    first.began, first.last = min(first.began, again.began), max(first.last, again.last)
    if again.id is not None and first.id not in (None, again.id):
        facts.split.append((first, again.id))
    known, news = _weight(first), _weight(again)
    if news > known or (news == known and again.ended < first.ended):
        first.ended, first.result, first.id, first.due = again.ended, again.result, again.id, again.due
        first.outcome = again.outcome


def _weight(send: Send) -> int:
    """Which of two tries says more about the outcome of the send."""
    if send.result == "ok" and send.stored:
        return 3
    return {"unknown": 2, "ok": 1}.get(send.result, 0)


def _add_receive(facts: Facts, asked: Record, answer: Record | None) -> None:
    answered = answer is not None and asked.op == "receive"
    (facts.answered if answered else facts.unseen).append(
        Receive(
            began=asked.mono,
            ended=NEVER if answer is None else answer.mono,
            process=asked.process,
            call=asked.call,
            topics=frozenset(asked.topics or ()),
            room=asked.limit if asked.op == "receive" else None,
        )
    )


def _add_handled(facts: Facts, asked: Record, answer: Record | None) -> None:
    facts.workers.add(asked.process)
    facts.message(asked.id or "").handled.append(
        Handled(
            began=asked.mono,
            ended=NEVER if answer is None else answer.mono,
            result="unknown" if answer is None else answer.result,
            token=asked.token or "",
            topic=sys.intern(asked.topic or ""),
            gates=asked.gates or {},
            planned=asked.planned,
            needs=asked.needs or (),
            value=None if answer is None else answer.value,
        )
    )


def _add_act(facts: Facts, asked: Record, answer: Record | None) -> None:
    act = Act(
        op=sys.intern(asked.op),
        began=asked.mono,
        ended=NEVER if answer is None else answer.mono,
        result="unknown" if answer is None else answer.result,
        token=asked.token,
        topic=asked.topic,
        key=asked.key,
        delay=asked.delay,
        at=asked.at,
        lease=asked.lease,
        state=asked.state,
        count=0 if answer is None else answer.count or 0,
        outcome=None if answer is None else answer.outcome,
        value=None if answer is None else answer.value,
    )
    if asked.op == "fault":
        facts.faults.setdefault(asked.kind or "", []).append(act)
    elif asked.ids is not None:
        for id in asked.ids:
            facts.message(id).acts.append(act)
    elif asked.op in OF_TOPICS:
        facts.topics.setdefault(asked.topic or "", []).append(act)
    elif asked.id is not None:
        facts.message(asked.id).acts.append(act)
    else:
        facts.by_key.setdefault((asked.topic or "", asked.key or ""), []).append(act)
