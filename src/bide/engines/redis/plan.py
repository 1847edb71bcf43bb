"""What the scripts are told, and what their answers mean: pure. The head of each script is the other side."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from bide.core.when import MAX_DELAY_MS, due_time
from bide.engines.base import Claim, Claimed, End, Ended, Hold, Move, NewMessage, Ref, Scanned, Stored, Window
from bide.engines.redis.wire import Name, claimed, content, error_text, full_id, name_of, public_id, stored
from bide.errors import BadOption
from bide.types import CancelResult, Outcome, RescheduleResult, Sent, Stats

Arg = bytes | str | int
T = TypeVar("T")
R = TypeVar("R")

_CANCELLED = {"c": CancelResult.CANCELLED, "r": CancelResult.RUNNING, "g": CancelResult.GONE}
_MOVED = {"m": RescheduleResult.MOVED, "r": RescheduleResult.RUNNING, "g": RescheduleResult.GONE}


def when(delay: int, at: int | None) -> str:
    return str(delay) if at is None else f"@{at}"


# put


class Put(NamedTuple):
    """A batch in the order in which the script is told of it."""

    sections: Sequence[tuple[str, Sequence[int]]]  # topic, and which of the batch
    others: Sequence[int]
    args: Sequence[Arg]

    @property
    def verb(self) -> str:
        return "put_named" if self.others else "put"

    def operations(self, shard: int, lane: str, number: int) -> list[str]:
        """A name for each message of the batch, by which a later put finds out what became of it."""
        order = [i for _, indexes in self.sections for i in indexes] + list(self.others)
        named = {i: f"~{shard}.{lane}.{number}#{place}" for place, i in enumerate(order)}
        return [named[i] for i in range(len(order))]


def put(messages: Sequence[NewMessage]) -> Put:
    sections: dict[tuple[str, int], tuple[list[int], list[Arg]]] = {}
    others: list[int] = []
    other_args: list[Arg] = []
    for i, new in enumerate(messages):
        blob, large = content(new)
        moment = when(new.delay, new.at)
        if new.key is None and new.operation is None and new.expires_in is None and not large:
            indexes, each = sections.setdefault((new.topic, new.level), ([], []))
            indexes.append(i)
            each += (moment, blob)
        else:
            others.append(i)
            other_args += (new.topic, new.level, moment, blob, new.key or "", new.if_exists, new.operation or "", large)
    args: list[Arg] = [MAX_DELAY_MS, len(sections)]
    for (topic, level), (indexes, each) in sections.items():
        args += (topic, level, len(indexes))
        args += each
    if others:
        args += (len(others), *other_args)
    return Put([(topic, indexes) for (topic, _), (indexes, _) in sections.items()], others, args)


def put_answer(asked: Put, messages: Sequence[NewMessage], shard: int, salt: bytes, reply: Sequence[Any]) -> list[Sent]:
    answers: dict[int, Sent] = {}
    now, ceiling = int(reply[0]), int(reply[1])
    placed, named = reply[3], reply[4]
    for (topic, indexes), digits, ids in zip(asked.sections, placed[::2], placed[1::2], strict=True):
        head = shard.to_bytes(1, "big") + int(digits, 16).to_bytes(5, "big")
        for place, i in enumerate(indexes):
            new = messages[i]
            due = due_time(new.delay, new.at, now, ceiling)
            answers[i] = Sent((head + ids[9 * place : 9 * place + 9] + salt).hex(), topic, due, "created")
    for place, i in enumerate(asked.others):
        digits, local, own_salt, due_text, outcome = named[5 * place : 5 * place + 5]
        told: Outcome = outcome.decode()
        id = public_id(shard, full_id(digits.decode(), local), own_salt)
        answers[i] = Sent(id, messages[i].topic, int(due_text), told)
    return [answers[i] for i in range(len(messages))]


# claim


def claim_answer(shard: int, request: str, reply: Sequence[Any]) -> Claim:
    now, due, more, number, fulls, values, beside, named, *places = reply
    names = {int(digits, 16): name.decode() for digits, name in zip(named[::2], named[1::2], strict=True)}
    known = {beside[i]: (beside[i + 1], beside[i + 2]) for i in range(0, len(beside), 3)}
    held = places[0] if places else range(len(values))
    head = number.decode()
    none = (b"", b"")
    found: list[Claimed] = []
    for i, value in enumerate(values):
        full = fulls[14 * i : 14 * i + 14]
        topic = names[int.from_bytes(full[:5], "big")]
        found.append(claimed(shard, full, topic, f"{head}{held[i]:03x}{request}", value, known.get(i + 1, none)))
    found.sort(key=_due)
    return Claim(found, int(now), int(due) if due else None, bool(more))


def _due(message: Claimed) -> int:
    return message.due


class Held(NamedTuple):
    """What the token and the id of a delivery say."""

    request: str
    claim: str
    topic: str
    place: int
    name: Name


def held(delivery: End | Hold) -> Held | None:
    """None when they are none of ours, and so the delivery is lost."""
    token = delivery.token
    name = name_of(delivery.id)
    try:
        place = int(token[16:19], 16)
    except ValueError:
        return None
    if not name.local or not token[:16].isdecimal() or len(token) < 20 or token[16:19] != f"{place:03x}":
        return None
    return Held(token[19:], token[:16], delivery.topic, place, name)


Grouped = dict[tuple[str, str, str, str], list[int]]


def _packed(grouped: Grouped, known: Sequence[Held | None]) -> list[Arg]:
    args: list[Arg] = [len(grouped)]
    for group, indexes in grouped.items():
        here = [each for i in indexes if (each := known[i]) is not None]
        head = int(group[3], 16).to_bytes(5, "big")
        places = b"".join([each.place.to_bytes(2, "big") for each in here])
        args += (*group, places, b"".join([head + each.name.local for each in here]))
    return args


class Settle(NamedTuple):
    groups: Sequence[Sequence[int]]
    others: Sequence[int]
    args: Sequence[Arg]


def settle(ends: Sequence[End], dead_max: int) -> Settle:
    known = [held(end) for end in ends]
    times: dict[Held, int] = {}
    for each in known:
        if each is not None:
            times[each] = times.get(each, 0) + 1
    groups: Grouped = {}
    others: list[int] = []
    other_args: list[Arg] = []
    for i, (end, each) in enumerate(zip(ends, known, strict=True)):
        if each is None:
            continue
        if end.verdict == "done" and times[each] == 1:
            groups.setdefault((each.request, each.claim, each.topic, each.name.topic), []).append(i)
        else:
            full = full_id(each.name.topic, each.name.local)
            others.append(i)
            other_args += (
                each.request, each.claim, each.topic, full, each.place, end.verdict, end.delay, error_text(end.error),
            )  # fmt: skip
    return Settle(list(groups.values()), others, [dead_max, *_packed(groups, known), len(others), *other_args])


def settle_answer(asked: Settle, count: int, reply: Sequence[Any]) -> list[Ended]:
    answers: list[Ended] = ["lost"] * count
    for indexes, results in zip(asked.groups, reply[1:], strict=False):
        for i, result in zip(indexes, results, strict=True):
            if result == 49:
                answers[i] = "done"
    for i, word in zip(asked.others, reply[1 + len(asked.groups) :], strict=True):
        answers[i] = word.decode()
    return answers


def extend(holds: Sequence[Hold], lease: int) -> tuple[list[list[int]], list[Arg]]:
    known = [held(hold) for hold in holds]
    groups: Grouped = {}
    for i, each in enumerate(known):
        if each is not None:
            groups.setdefault((each.request, each.claim, each.topic, each.name.topic), []).append(i)
    return list(groups.values()), [lease, *_packed(groups, known)]


def extend_answer(groups: Sequence[Sequence[int]], count: int, reply: Sequence[Any]) -> list[bool]:
    answers = [False] * count
    for indexes, results in zip(groups, reply[1:], strict=True):
        for i, result in zip(indexes, results, strict=True):
            answers[i] = result == 49
    return answers


# what names a message


def ref(named: Ref) -> tuple[Arg, ...]:
    if named.id is None:
        return "key", named.topic or "", named.key or "", ""
    name = name_of(named.id)
    return "id", name.topic, name.local or b"0--------", name.salt


def refs(named: Iterable[Ref]) -> list[Arg]:
    return [part for each in named for part in ref(each)]


def cancel_answer(reply: Sequence[Any]) -> list[CancelResult]:
    return [_CANCELLED[letter] for letter in reply[1].decode()]


def reschedule(moves: Sequence[Move]) -> list[Arg]:
    args: list[Arg] = [MAX_DELAY_MS, len(moves)]
    for move in moves:
        args += (when(move.delay, move.at), *ref(move.ref))
    return args


def reschedule_answer(reply: Sequence[Any]) -> list[RescheduleResult]:
    return [_MOVED[letter] for letter in reply[1].decode()]


def named_dead(ids: Iterable[str]) -> list[Arg]:
    args: list[Arg] = []
    for id in ids:
        name = name_of(id)
        if name.local:
            args += (name.topic, name.local, name.salt)
    return args


# looking


def get_answer(shard: int, reply: Sequence[Any]) -> list[Stored | None]:
    now = int(reply[0])
    return [stored(shard, told[0].decode(), now, told[1]) if told else None for told in reply[1:]]


def page_mark(after: str | None) -> tuple[int, int, int, bytes]:
    """Shard, stage, order and id of a page's last message."""
    if after is None:
        return 0, 0, 0, b""
    try:
        shard, stage, order, local = after.split(".")
        mark = int(shard), int(stage), int(order), bytes.fromhex(local)
    except ValueError:
        raise _BAD_MARK from None
    if mark[1] not in (1, 2, 3) or mark[2] < 0 or len(mark[3]) not in (0, 9) or mark[0] < 0:
        raise _BAD_MARK
    return mark


def first_mark(shard: int) -> str:
    """Where a scan goes on that is through with the shards before."""
    return f"{shard}.1.0."


_BAD_MARK = BadOption("after is not the mark of a page: give back a page's own .after, or None for the first.")


def scan_answer(shard: int, topic: str, reply: Sequence[Any]) -> Scanned:
    now, mark = int(reply[0]), reply[1]
    found = [stored(shard, topic, now, told) for told in reply[2:]]
    return Scanned(found, f"{shard}.{mark[0]}.{mark[1].decode()}.{mark[2].hex()}" if mark else None)


def stats_args(window: Window | None, topics: Sequence[str]) -> list[Arg]:
    return [*((window.start, window.end, window.parts) if window else (0, 0, 0)), *topics]


def stats_answer(topics: Sequence[str], reply: Sequence[Any]) -> dict[str, Stats]:
    now = int(reply[0])
    return {topic: _stats(now, told) for topic, told in zip(topics, reply[1:], strict=True) if told}


def _stats(now: int, told: Sequence[Any]) -> Stats:
    scheduled, ready, leased, dead, dropped, paused, oldest, following, line = told
    return Stats(
        scheduled=scheduled,
        ready=ready,
        leased=leased,
        dead=dead,
        dead_dropped=dropped,
        paused=bool(paused),
        oldest_overdue=(now - int(oldest)) / 1000 if oldest else None,
        next_due=int(following) if following else None,
        timeline=line,
    )


def together(each: Sequence[Stats], topics: Mapping[str, Stats], parts: int) -> Stats:
    """Counts of several: of all topics, or of one topic's shards."""
    return Stats(
        scheduled=sum(one.scheduled for one in each),
        ready=sum(one.ready for one in each),
        leased=sum(one.leased for one in each),
        dead=sum(one.dead for one in each),
        dead_dropped=sum(one.dead_dropped for one in each),
        paused=any(one.paused for one in each),
        oldest_overdue=max((one.oldest_overdue for one in each if one.oldest_overdue is not None), default=None),
        next_due=min((one.next_due for one in each if one.next_due is not None), default=None),
        topics=topics,
        timeline=[sum(one.timeline[i] for one in each) for i in range(parts)],
    )


# shards


def by_shard(items: Sequence[T], shard_of: Callable[[T], int]) -> dict[int, list[int]]:
    """Which of a batch go where."""
    found: dict[int, list[int]] = {}
    for i, item in enumerate(items):
        found.setdefault(shard_of(item), []).append(i)
    return found
