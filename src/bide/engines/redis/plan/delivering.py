"""Deliveries: what the scripts are told of them, and what they answer."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from bide.engines.base import Claim, Claimed, End, Ended, Hold
from bide.engines.redis.plan import Arg
from bide.engines.redis.wire import Name, claimed, error_text, full_id, name_of


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
