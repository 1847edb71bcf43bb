"""Deliveries: what the scripts are told of them, and what they answer."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from bide.engines.base import MAX_BATCH, Claim, Claimed, End, Ended, Hold
from bide.engines.redis.protocol import Arg
from bide.engines.redis.protocol.encoding import FULL, TOPIC, claimed, error_text, id_bytes

GOLDEN = 2654435769  # of 2**32
YES = ord("1")  # in a text of 0 and 1, one for each delivery
NOTHING = (b"", b"")
_due = attrgetter("due")
_token = attrgetter("token")


def turned(topics: Sequence[str], count: int) -> Sequence[str]:
    """Beginning with another one each time: one script can't look into very many.

    Steps of the golden ratio begin with each equally often, also when callers ask for several lists of topics by turns.
    """
    first = (count * GOLDEN % 2**32) * len(topics) >> 32
    return [*topics[first:], *topics[:first]]


class ClaimReply(NamedTuple):
    now: bytes
    due: bytes  # when to come back; empty for never
    more: int
    number: bytes  # of the claim
    fulls: bytes  # the full ids, one behind the other
    values: Sequence[bytes]
    beside: Sequence[Any]  # of each that has more than its value: position from 1, life, large body
    topics: Sequence[bytes]  # their numbers and names by turns
    positions: Sequence[int] | None = None  # of what an earlier claim of this request holds still


def claim_answer(shard: int, request: str, answer: Sequence[Any]) -> Claim:
    reply = ClaimReply(*answer)
    names: dict[bytes, str] = {}
    for digits, name in zip(reply.topics[::2], reply.topics[1::2], strict=True):
        names[int(digits, 16).to_bytes(TOPIC, "big")] = name.decode()
    beside: dict[int, tuple[bytes, bytes]] = {}
    for position, life, large in zip(reply.beside[::3], reply.beside[1::3], reply.beside[2::3], strict=True):
        beside[position - 1] = life, large
    positions = range(len(reply.values)) if reply.positions is None else reply.positions
    head, first, fulls = reply.number.decode(), shard.to_bytes(1, "big"), reply.fulls
    found: list[Claimed] = []
    for i, value in enumerate(reply.values):
        full = fulls[FULL * i : FULL * i + FULL]
        token = f"{head}{positions[i]:03x}{request}"
        found.append(claimed(first, full, names[full[:TOPIC]], token, value, beside.get(i, NOTHING)))
    found.sort(key=_due)
    return Claim(found, int(reply.now), int(reply.due) if reply.due else None, bool(reply.more))


class Held(NamedTuple):
    """What the token and the id of a delivery say, as the scripts are told it."""

    request: str
    claim: str
    topic: str
    digits: str  # the topic's number
    position: bytes
    full: bytes


_POSITIONS = {f"{position:03x}": position.to_bytes(2, "big") for position in range(MAX_BATCH)}
CLAIM, HEAD = 16, 19  # where in a token the number of its claim ends, and the position of the delivery; a request follows


def held(delivery: End | Hold) -> Held | None:
    """None when they are none of ours, and so the delivery is lost."""
    token, id = delivery.token, delivery.id
    position = _POSITIONS.get(token[CLAIM:HEAD])
    raw = id_bytes(id)
    if position is None or raw is None or len(token) <= HEAD:
        return None
    full = raw[1 : 1 + FULL]
    return Held(token[HEAD:], token[:CLAIM], delivery.topic, f"{int.from_bytes(full[:TOPIC], 'big'):x}", position, full)


Groups: TypeAlias = dict[tuple[str, ...], tuple[list[int], list[bytes], list[bytes]]]
"""Deliveries by what the scripts are told once of all of them: which of the batch, positions, full ids."""


def _args(groups: Groups) -> list[Arg]:
    args: list[Arg] = [len(groups)]
    for group, (_, positions, fulls) in groups.items():
        args += (*group, b"".join(positions), b"".join(fulls))
    return args


class Settle(NamedTuple):
    groups: Groups
    others: Sequence[int]
    args: Sequence[Arg]


def settle(ends: Sequence[End], dead_max: int) -> Settle:
    tokens = list(map(_token, ends))
    again = set() if len(set(tokens)) == len(tokens) else {each for each in tokens if tokens.count(each) > 1}
    groups: Groups = {}
    others: list[int] = []
    other_args: list[Arg] = []
    for i, end in enumerate(ends):
        each = held(end)
        if each is None:
            continue
        if end.verdict == "done" and end.token not in again:
            indexes, positions, fulls = groups.setdefault(each[:4], ([], [], []))
            indexes.append(i)
            positions.append(each.position)
            fulls.append(each.full)
        else:
            request, claim, topic, _, position, full = each
            others.append(i)
            other_args += (
                request, claim, topic, full, int.from_bytes(position, "big"), end.verdict, end.delay, error_text(end.error),
            )  # fmt: skip
    return Settle(groups, others, [dead_max, *_args(groups), len(others), *other_args])


def settle_answer(asked: Settle, count: int, reply: Sequence[Any]) -> list[Ended]:
    answers: list[Ended] = ["lost"] * count
    for (indexes, _, _), results in zip(asked.groups.values(), reply[1:], strict=False):
        for i, result in zip(indexes, results, strict=True):
            if result == YES:
                answers[i] = "done"
    for i, word in zip(asked.others, reply[1 + len(asked.groups) :], strict=True):
        answers[i] = word.decode()
    return answers


def extend(holds: Sequence[Hold], lease: int) -> tuple[Groups, list[Arg]]:
    groups: Groups = {}
    for i, hold in enumerate(holds):
        each = held(hold)
        if each is not None:
            indexes, positions, fulls = groups.setdefault(each[:4], ([], [], []))
            indexes.append(i)
            positions.append(each.position)
            fulls.append(each.full)
    return groups, [lease, *_args(groups)]


def extend_answer(groups: Groups, count: int, reply: Sequence[Any]) -> list[bool]:
    answers = [False] * count
    for (indexes, _, _), results in zip(groups.values(), reply[1:], strict=True):
        for i, result in zip(indexes, results, strict=True):
            answers[i] = result == YES
    return answers
