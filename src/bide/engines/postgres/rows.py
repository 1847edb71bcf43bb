"""What each verb asks of the server, and how its answer is read: arguments from messages, and messages from rows."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.key_rules import FIRST
from bide.core.times import MAX_DELAY_MS
from bide.engines.base import (
    MAX_BATCH,
    Claim,
    Claimed,
    Condition,
    End,
    Ended,
    Hold,
    Move,
    NewMessage,
    Past,
    Ref,
    Scanned,
    Seen,
    Stored,
    claim_time,
    operation_of,
)
from bide.engines.stored import UNREADABLE, read_headers
from bide.errors import BadOption, OutcomeUnknown
from bide.types import Sent, State, Stats

CALLS: Mapping[str, str] = {
    "put": "select * from {schema}.accept(%s, %s::{text}, %b::{bytea}, %s::bigint[], %s::bigint[], %s::int[], %s::int[], "
    "%s::bigint[], %s::{text}, %s::{text}, %s::{text}, %s::bigint[], %s::int[], %s::bigint[], %s::{text}, %s::{text}, "
    "%s::int[], %s::bigint[], %s, %s::{text}, %s)",
    "put_plain": "select * from {schema}.put_plain(%s, %s, %b, %s::bigint, %s::bigint, %s::int, %s::int, %s::bigint, %s, "
    "%s::bigint, %s, %s::bigint)",
    "claim": "select * from {schema}.hand_out(%s::{text}, %s::bigint[], %s, %s, %s, %s::{text}, %s)",
    "settle": "select * from {schema}.end_deliveries(%s, %s::bigint[], %s::{text}, %s::bigint[], %s::{text}, %s::bigint[], "
    "%s::{text}, %s::bigint[], %b::{bytea}, %s::int[], %s, %s, %s)",
    "extend": "select * from {schema}.extend(%s::bigint[], %s::{text}, %s::bigint[], %s, %s)",
    "cancel": "select * from {schema}.cancel(%s, %s::bigint[], %s::{text}, %s::{text}, %s)",
    "cancel_seen": "select * from {schema}.cancel_seen(%s, %s::bigint[], %s::bigint[], %b::{bytea}, %s)",
    "reschedule": "select * from {schema}.move(%s, %s::bigint[], %s::{text}, %s::{text}, %s::bigint[], %s::bigint[], "
    "%s::{text}, %s, %s)",
    "move_seen": "select * from {schema}.move_seen(%s, %s::bigint[], %s::bigint[], %s::bigint[], %s::{text}, %s, %s::bigint[], "
    "%s, %s, %s)",
    "tend": "select * from {schema}.upkeep(%s, %s, %s, %s, %s, %s, %s, %s)",
    "get": "select g.place, g.now, g.traces, g.since, g.token, g.request, (g.it).* "
    "from {schema}.get_all(%s::bigint[], %s::{text}, %s::{text}, %s) as g",
    "scan": "select s.stage_of, s.now, s.since, s.token, s.request, (s.it).* "
    "from {schema}.scan_all(%s, %s, %s, %s, %s, %s, %s) as s",
    "topics": "select * from {schema}.topics()",
    "stats": "select * from {schema}.stats_of(%s::{text}, %s, %s, %s, %s, %s, %s)",
    "requeue": "select * from {schema}.requeue_over(%s, %s, %s::bigint[], %s, %s, %s, %s, %s)",
    "purge_dead": "select * from {schema}.purge_dead(%s, %s, %s::bigint[], %s, %s)",
    "purge": "select * from {schema}.purge(%s, %s, %s, %s)",
    "pause": "select {schema}.pause(%s, %s)",
    "tell": "select {schema}.tell_late(%s::{text}, %s)",
}
"""The server's functions, one for each verb."""

PENDING, LEASED, DEAD = range(3)
BY_HAND = f"{UNREADABLE} Was its row written by hand? Other programs send with bide.send()."
MOMENT = 0.02  # seconds that a statement of stats should take
EXACT = 10_000  # messages of a topic and state that stats counts one by one; how many more there are, it estimates

_ID = re.compile(r"[0-7][0-9a-f]{15}")
_NOTE = re.compile(r"([A-Za-z0-9._-]{1,128}) ([0-9]{1,18})")
_OWN_OPERATION = re.compile(r"~([0-9a-f]{16}-\d+)\.(\d{1,4})")
_encode_headers = msgspec.json.Encoder().encode


def public_id(number: int) -> str:
    """Fixed width, so that ids sort in the order of birth."""
    return f"{number:016x}"


def private_id(text: str | None) -> int | None:
    """The number of an id; 0, which no message has, when the text is not an id of bide."""
    if text is None:
        return None
    return int(text, 16) if _ID.fullmatch(text) else 0


def _token_text(token: int) -> str:
    return f"{token:019d}"


def token_number(text: str) -> int:
    return int(text) if len(text) == 19 and text.isdecimal() and text.isascii() else -1


def own_operation(request: str, place: int) -> str:
    """What a caller repeats one message of a put by, whose answer was lost."""
    return f"~{request}.{place}"


def heard_of(payload: str) -> tuple[str, int] | None:
    """The topic and the due time of a notification. None of one that bide did not send: any role of the database may notify."""
    note = _NOTE.fullmatch(payload)
    return None if note is None else (note[1], int(note[2]))


def is_plain(messages: Sequence[NewMessage]) -> bool:
    """Whether it is one message, which needs no look at others."""
    new = messages[0]
    return len(messages) == 1 and new.key is None and new.operation is None and new.past is None


def plain_args(new: NewMessage) -> list[Any]:
    """Of a message that is plain. Numbers as text: the driver would have the server prepare the call for each width of them."""
    at, expires = None if new.at is None else str(new.at), None if new.expires_in is None else str(new.expires_in)
    headers = _headers_text(new) if new.headers or new.max_wait is not None else None
    return [new.topic, new.body, str(new.delay), at, str(new.level), str(new.max_attempts), expires, headers, str(MAX_DELAY_MS)]


def put_args(messages: Sequence[NewMessage], dead_max: int) -> list[Any]:
    """All columns but the last ones, which the server takes with the request and the time. Rare ones are left out."""
    keyed = any(new.key is not None or new.operation is not None or new.past is not None for new in messages)
    pasts = any(new.past is not None for new in messages)
    operations: list[str | None] = []
    places: list[int] = []
    for new in messages if keyed else ():
        own = _OWN_OPERATION.fullmatch(new.operation or "")
        operations.append(own[1] if own else None if new.operation is None else operation_of(new))
        places.append(int(own[2]) + 1 if own else 1)
    headers = [_headers_text(new) if new.headers or new.max_wait is not None else None for new in messages]
    return [
        _same([new.topic for new in messages]),
        [new.body for new in messages],
        numbers(_same([new.delay for new in messages])),
        numbers([new.at for new in messages], default=None),
        numbers(_same([new.level for new in messages])),
        numbers(_same([new.max_attempts for new in messages])),
        numbers([new.expires_in for new in messages], default=None),
        headers if any(headers) else None,
        [new.key for new in messages] if keyed else None,
        [new.if_exists for new in messages] if keyed else None,
        numbers([new.max_wait for new in messages], default=None),
        numbers([new.largest if new.if_exists == "merge" else None for new in messages], default=None),
        numbers([new.unique_for for new in messages], default=None),
        [None if new.past is None else _past_text(new.past, dead_max) for new in messages] if pasts else None,
        operations if keyed else None,
        numbers(places) if keyed else None,
        numbers([private_id(new.within) for new in messages]) if keyed else None,
        MAX_DELAY_MS,
    ]


def _headers_text(new: NewMessage) -> str:
    headers = dict(new.headers)
    if new.max_wait is not None:
        headers.pop(FIRST, None)  # the server writes it
    return _encode_headers(headers).decode()


def _past_text(past: Past, dead_max: int) -> str:
    records = [each.hex() for each in past.traces]
    known = {"attempt": past.attempt, "error": _storable(past.error), "dead": past.dead, "traces": records, "most": dead_max}
    return msgspec.json.encode(known).decode()


def sent_of(messages: Sequence[NewMessage], rows: Iterable[Any]) -> list[Sent]:
    return [Sent(public_id(id), new.topic, due, outcome) for new, (id, due, outcome) in zip(messages, rows, strict=True)]


def claim_of(rows: Sequence[Any]) -> tuple[Claim, int, int, list[End]]:
    """A claim, how many ms engine time is ahead of the clock, how many µs it took on the server; and the ends of what it
    brought that can't be read."""
    *delivered, last = rows
    topics = list(dict.fromkeys(row[1] for row in delivered))
    places = {topic: place for place, topic in enumerate(topics)}
    delivered.sort(key=lambda row: (places[row[1]], row[10])) if len(topics) > 1 else delivered.sort(key=_place)
    messages: list[Claimed] = []
    unreadable: list[End] = []
    for id, topic, body, headers, key, due, since, attempt, most, token, _, began in delivered:
        known, text = read_headers(headers), _token_text(token)
        if known is None:
            unreadable.append(End(topic, public_id(id), text, "dead", error=BY_HAND))
        else:
            messages.append(Claimed(public_id(id), topic, body, known, key, due, since, attempt, most, text, began))
    return Claim(messages, last[6], last[5]), max(0, last[6] - last[11]), last[7], unreadable


def _place(row: Any) -> int:
    place: int = row[10]
    return place


def settle_args(ends: Sequence[End]) -> list[Any]:
    """Without verdicts if all are done; then each delivery must be named once."""
    ids = [private_id(end.id) for end in ends]
    plain = all(end.verdict == "done" for end in ends) and len(set(ids)) == len(ids)
    return [
        numbers(ids),
        _same([end.topic for end in ends]),
        numbers([token_number(end.token) for end in ends]),
        None if plain else ["aside" if end.aside else end.verdict for end in ends],
        None if plain else numbers([end.delay for end in ends]),
        None if plain else [_storable(end.error) for end in ends],
        None if plain else numbers([end.began for end in ends], default=None),
        [end.trace for end in ends] if any(end.trace for end in ends) else None,
        numbers([end.attempts for end in ends], default=None) if any(end.attempts for end in ends) else None,
    ]


def _storable(text: str | None) -> str | None:
    """A text without what PostgreSQL can't store."""
    return text if text is None or "\0" not in text else text.replace("\0", "\\x00")


def hold_args(holds: Sequence[Hold]) -> list[Any]:
    return [
        numbers([private_id(hold.id) for hold in holds]),
        _same([hold.topic for hold in holds]),
        numbers([token_number(hold.token) for hold in holds]),
    ]


def extended_of(holds: Sequence[Hold], rows: Iterable[Any]) -> dict[Hold, bool | None]:
    """Whether each lease was renewed; None, not known, of a message that another transaction has locked."""
    held = set(rows)
    names = [(private_id(hold.id), hold.topic, token_number(hold.token)) for hold in holds]
    return {
        hold: True if (id, topic, token) in held else None if (id, topic, -token) in held else False
        for hold, (id, topic, token) in zip(holds, names, strict=True)
    }


def ended_of(rows: Iterable[Any]) -> list[Ended | None]:
    """What became of each; None of a message that another transaction has locked: it is as it was."""
    return [None if ended == "locked" else ended for (ended,) in rows]


def locked(answers: Sequence[object], what: str, again: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{answers.count(None):,} of {len(answers):,} {what}, as another transaction is changing these messages: {again} again "
        "when it has ended.",
        answers=answers,
    )


def ref_args(refs: Sequence[Ref]) -> list[Any]:
    return [numbers([private_id(ref.id) for ref in refs]), [ref.topic for ref in refs], [ref.key for ref in refs]]


def seen_args(refs: Sequence[Ref], seen: Sequence[Seen]) -> list[Any]:
    ids, dues = numbers([private_id(ref.id) for ref in refs]), numbers([each.due for each in seen])
    return [ids, dues, [each.body for each in seen]]


def move_args(moves: Sequence[Move]) -> list[Any]:
    times = [numbers([move.delay for move in moves]), numbers([move.at for move in moves])]
    origins = [move.origin for move in moves] if any(move.origin != "now" for move in moves) else None
    return [*ref_args([move.ref for move in moves]), *times, origins, MAX_DELAY_MS]


def move_seen_args(moves: Sequence[Move], condition: Condition | None) -> list[Any]:
    ids, _, _, *times = move_args(moves)
    must_be = (None, None) if condition is None else (private_id(condition.id), condition.due)
    return [ids, *times, numbers([each.seen for each in moves]), *must_be]


def read_mark(after: str | None) -> tuple[int, int, int]:
    if after is None:
        return PENDING, -1, 0
    try:
        stage, instant, number = map(int, after.split("."))
    except ValueError:
        raise BadOption("after is not the mark of a page: give back a page's own .after, or None for the first.") from None
    return stage, instant, number


def scanned_of(rows: Sequence[Any], limit: int) -> Scanned:
    page = rows[:limit]
    mark = None
    if len(rows) > limit:
        stage, _, _, _, _, id, _, due, *_, died = page[-1]
        mark = f"{stage}.{died if stage == DEAD else due}.{id}"
    return Scanned([_stored_of(row[1:]) for row in page], mark)


def got_of(rows: Iterable[Any]) -> dict[int, Stored]:
    """By their places in the call."""
    return {place: _stored_of((now, *row), traces) for place, now, traces, *row in rows}


def _stored_of(row: Sequence[Any], traces: Sequence[Any] | None = None) -> Stored:
    now, since, token, request, id, topic, due, attempt, most, key, level, body, headers, error, until, expires, died = row
    state: State = "dead" if died is not None else "leased" if until is not None else "ready" if due <= now else "scheduled"
    return Stored(
        id=public_id(id),
        topic=topic,
        state=state,
        due=due,
        attempt=attempt,
        max_attempts=most,
        key=key,
        level=min(max(level, 0), 2),
        body=body,
        headers=read_headers(headers) or {},
        last_error=error,
        lease_until=until,
        expires=expires,
        traces=[each for each in traces if isinstance(each, bytes)] if traces else (),
        since=None if died is not None else due if since is None else since,
        request=request,
        leased_since=None if token is None else claim_time(token >> 20, now),  # see `claim`
        token=None if token is None else _token_text(token),
    )


def next_many(many: int, took: float) -> int:
    """Topics that the next statement of stats may count, when so many took so long."""
    return max(1, min(MAX_BATCH, int(many * min(4.0, MOMENT / max(took, 0.001)))))


def stats_of(row: Sequence[Any]) -> Stats | None:
    """Of one topic; None where there is nothing."""
    _, scheduled, ready, leased, dead, dropped, paused, first, next_due, now, timeline, about = row
    stats = Stats(
        scheduled=scheduled,
        ready=ready,
        leased=leased,
        dead=dead,
        dead_dropped=dropped,
        paused=paused,
        oldest_overdue=None if first is None else (now - first) / 1000,
        next_due=next_due,
        about=about,
    )
    return None if stats == Stats() else replace(stats, timeline=timeline or ())


def _same(values: list[Any]) -> list[Any]:
    """The first value alone, if it is all of them."""
    return values[:1] if values.count(values[0]) == len(values) else values


def numbers(values: Sequence[int | None], default: object = ...) -> str | None:
    """An array as text, which costs less than to adapt each number. With a default, None if all are that."""
    if default is not ... and all(value is default for value in values):
        return None
    return "{" + ",".join(["null" if value is None else str(value) for value in values]) + "}"
