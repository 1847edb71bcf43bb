"""Deliveries: what the scripts are told of them, and what they answer."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from bide.engines.base import MAX_BATCH, Claim, Claimed, End, Ended, Hold
from bide.engines.redis.protocol import Arg
from bide.engines.redis.protocol.encoding import FULL, TOPIC, claimed, error_text, full_id, id_bytes

GOLDEN = 2654435769  # of 2**32
YES = ord("1")  # in a text of 0 and 1, one for each delivery


def turned(topics: Sequence[str], count: int) -> Sequence[str]:
    """Beginning with another one each time: one script can't look into very many.

    Steps of the golden ratio begin with each equally often, also when callers ask for several lists of topics by turns.
    """
    first = (count * GOLDEN % 2**32) * len(topics) >> 32
    return [*topics[first:], *topics[:first]]


def claim_answer(shard: int, request: str, reply: Sequence[Any]) -> Claim:
    now, due, more, number, fulls, values, beside, named, *again = reply
    names = {full_id(digits.decode(), b""): name.decode() for digits, name in zip(named[::2], named[1::2], strict=True)}
    known = {beside[i]: (beside[i + 1], beside[i + 2]) for i in range(0, len(beside), 3)}
    positions = again[0] if again else range(len(values))
    head, first = number.decode(), shard.to_bytes(1, "big")
    none = (b"", b"")
    found: list[Claimed] = []
    for i, value in enumerate(values):
        full = fulls[FULL * i : FULL * i + FULL]
        token = f"{head}{positions[i]:03x}{request}"
        found.append(claimed(first, full, names[full[:TOPIC]], token, value, known.get(i + 1, none)))
    found.sort(key=_due)
    return Claim(found, int(now), int(due) if due else None, bool(more))


def _due(message: Claimed) -> int:
    return message.due


class Held(NamedTuple):
    """What the token and the id of a delivery say, as the scripts are told it."""

    request: str
    claim: str
    topic: str
    digits: str  # the topic's number
    position: bytes
    full: bytes


_POSITIONS = {f"{position:03x}": position.to_bytes(2, "big") for position in range(MAX_BATCH)}


def held(delivery: End | Hold) -> Held | None:
    """None when they are none of ours, and so the delivery is lost."""
    token, id = delivery.token, delivery.id
    position = _POSITIONS.get(token[16:19])
    raw = id_bytes(id)
    if position is None or raw is None or len(token) < 20:
        return None
    full = raw[1 : 1 + FULL]
    return Held(token[19:], token[:16], delivery.topic, f"{int.from_bytes(full[:TOPIC], 'big'):x}", position, full)


class Grouped:
    """Deliveries by what their scripts are told once of all of them."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str, str], tuple[list[int], list[bytes], list[bytes]]] = {}

    def add(self, i: int, each: Held) -> None:
        indexes, positions, fulls = self._groups.setdefault(each[:4], ([], [], []))
        indexes.append(i)
        positions.append(each.position)
        fulls.append(each.full)

    @property
    def indexes(self) -> list[list[int]]:
        return [indexes for indexes, _, _ in self._groups.values()]

    @property
    def args(self) -> list[Arg]:
        args: list[Arg] = [len(self._groups)]
        for group, (_, positions, fulls) in self._groups.items():
            args += (*group, b"".join(positions), b"".join(fulls))
        return args


class Settle(NamedTuple):
    groups: Sequence[Sequence[int]]
    others: Sequence[int]
    args: Sequence[Arg]


def settle(ends: Sequence[End], dead_max: int) -> Settle:
    tokens = [end.token for end in ends]
    again = set() if len(set(tokens)) == len(tokens) else {each for each in tokens if tokens.count(each) > 1}
    grouped = Grouped()
    others: list[int] = []
    other_args: list[Arg] = []
    for i, end in enumerate(ends):
        each = held(end)
        if each is None:
            continue
        if end.verdict == "done" and end.token not in again:
            grouped.add(i, each)
        else:
            request, claim, topic, _, position, full = each
            others.append(i)
            other_args += (
                request, claim, topic, full, int.from_bytes(position, "big"), end.verdict, end.delay, error_text(end.error),
            )  # fmt: skip
    return Settle(grouped.indexes, others, [dead_max, *grouped.args, len(others), *other_args])


def settle_answer(asked: Settle, count: int, reply: Sequence[Any]) -> list[Ended]:
    answers: list[Ended] = ["lost"] * count
    for indexes, results in zip(asked.groups, reply[1:], strict=False):
        for i, result in zip(indexes, results, strict=True):
            if result == YES:
                answers[i] = "done"
    for i, word in zip(asked.others, reply[1 + len(asked.groups) :], strict=True):
        answers[i] = word.decode()
    return answers


def extend(holds: Sequence[Hold], lease: int) -> tuple[list[list[int]], list[Arg]]:
    grouped = Grouped()
    for i, hold in enumerate(holds):
        each = held(hold)
        if each is not None:
            grouped.add(i, each)
    return grouped.indexes, [lease, *grouped.args]


def extend_answer(groups: Sequence[Sequence[int]], count: int, reply: Sequence[Any]) -> list[bool]:
    answers = [False] * count
    for indexes, results in zip(groups, reply[1:], strict=True):
        for i, result in zip(indexes, results, strict=True):
            answers[i] = result == YES
    return answers
