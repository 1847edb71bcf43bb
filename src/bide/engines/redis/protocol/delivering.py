"""Deliveries: what the scripts are told of them, and what they answer."""

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import repeat
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

from bide.engines.base import MAX_BATCH, Claim, Claimed, End, Ended, Hold
from bide.engines.redis.protocol import Arg
from bide.engines.redis.protocol.encoding import (
    FULL,
    SALT,
    SLOT,
    TOPIC,
    USUAL_ATTEMPTS,
    Beside,
    claimed,
    error_text,
    flags_and_start,
    id_texts,
    ids_bytes,
)

GOLDEN = 2654435769  # of 2**32
YES = ord("1")  # in a text of 0 and 1, one for each delivery
NOTHING = Beside(b"", b"", None)
_FULLS = Struct(f"{FULL}s")
_due, _number = attrgetter("due"), int.from_bytes
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
    beside: Sequence[Any]  # of each that has more than its value: position from 1, life, large body, first attempt
    topics: Sequence[bytes]  # their numbers and names by turns
    upkeep: bytes  # no upkeep is needed before
    us: bytes  # now
    wall: int  # what the server's clock shows, in ms
    positions: Sequence[int] | None = None  # of what an earlier claim of this request holds still


Plan: TypeAlias = Callable[[int, int | None], float | None]
"""When to claim again, by when a claim ran in µs and the due time in ms."""


def claim_answer(shard: int, request: str, reply: ClaimReply, plan: Plan) -> Claim:
    names: dict[bytes, str] = {}
    for digits, name in zip(reply.topics[::2], reply.topics[1::2], strict=True):
        names[int(digits, 16).to_bytes(TOPIC, "big")] = name.decode()
    beside: dict[int, Beside] = {}
    for at in range(0, len(reply.beside), 4):
        position, life, large, began = reply.beside[at : at + 4]
        beside[position - 1] = Beside(life, large, int(began) if began else None)
    positions = range(len(reply.values)) if reply.positions is None else reply.positions
    head, first = reply.number.decode(), shard.to_bytes(1, "big")
    fulls = [full for (full,) in _FULLS.iter_unpack(reply.fulls)]
    ids = id_texts([first + full + value[:SALT] for full, value in zip(fulls, reply.values, strict=True)])
    found: list[Claimed] = []
    slot, topic, at, start = b"", "", 0, 0  # of the message before: most share it
    for i, (id, full, value) in enumerate(zip(ids, fulls, reply.values, strict=True)):
        token = head + _TEXTS[positions[i]] + request
        if full[:SLOT] != slot:
            slot, topic, (at, start) = full[:SLOT], names[full[:TOPIC]], flags_and_start(full)
        if value[at] or i in beside:
            found.append(claimed(id, full, topic, token, value, beside.get(i, NOTHING)))
        else:  # as most are: nothing but a body
            due = start + _number(value[SALT:at], "big")
            found.append(Claimed(id, topic, value[at + 1 :], {}, None, due, due, 1, USUAL_ATTEMPTS, token))
    found.sort(key=_due)
    next_due = int(reply.due) if reply.due else None
    return Claim(found, int(reply.now), next_due, bool(reply.more), int(reply.upkeep), plan(int(reply.us), next_due))


Group: TypeAlias = tuple[str, str, str, bytes]
"""What the deliveries of one claim in one topic have in common: the request, the claim's number, the topic and its number."""

_TEXTS = [f"{position:03x}" for position in range(MAX_BATCH)]
_POSITIONS = {text: position.to_bytes(2, "big") for position, text in enumerate(_TEXTS)}
CLAIM, HEAD = 16, 19  # where in a token the number of its claim ends, and the position of the delivery; a request follows


class Groups:
    """Deliveries by what the scripts are told once of all of them. One that is none of ours is lost, and not here."""

    def __init__(self, deliveries: Sequence[End | Hold], indexes: Sequence[int]) -> None:
        """`indexes`: of those that are meant."""
        groups: dict[Group, tuple[list[int], list[bytes], list[bytes]]] = {}
        self._found = groups
        meant = [deliveries[i] for i in indexes]
        for i, delivery, raw in zip(indexes, meant, ids_bytes([each.id for each in meant]), strict=True):
            token = delivery.token
            position = _POSITIONS.get(token[CLAIM:HEAD])
            if position is None or raw is None or len(token) <= HEAD:
                continue
            group = token[HEAD:], token[:CLAIM], delivery.topic, raw[1 : 1 + TOPIC]
            found = groups.get(group)
            if found is None:
                found = groups[group] = ([], [], [])
            found[0].append(i)
            found[1].append(position)
            found[2].append(raw[1 : 1 + FULL])

    def args(self) -> list[Arg]:
        args: list[Arg] = [str(len(self._found))]
        for (request, claim, topic, number), (_, positions, fulls) in self._found.items():
            digits = f"{int.from_bytes(number, 'big'):x}"
            args += (request, claim, topic, digits, b"".join(positions), b"".join(fulls))
        return args

    def each(self) -> Iterator[tuple[int, Group, bytes, bytes]]:
        """In the order of the deliveries: the index of each, its group, its position and its full id."""
        return merge(*(zip(found[0], repeat(group), found[1], found[2]) for group, found in self._found.items()))

    def confirmed(self, reply: Sequence[bytes]) -> Iterator[int]:
        """The index of each that was held, by the answers for the groups."""
        for (indexes, _, _), results in zip(self._found.values(), reply, strict=True):
            for i, result in zip(indexes, results, strict=True):
                if result == YES:
                    yield i


class Settle(NamedTuple):
    groups: Groups
    others: Sequence[int]
    args: Sequence[Arg]


def settle(ends: Sequence[End], dead_max: int) -> Settle:
    tokens = list(map(_token, ends))
    again = set() if len(set(tokens)) == len(tokens) else {each for each in tokens if tokens.count(each) > 1}
    alike: list[int] = []
    apart: list[int] = []
    for i, end in enumerate(ends):
        (alike if end.verdict == "done" and end.token not in again else apart).append(i)
    groups = Groups(ends, alike)
    others: list[int] = []
    other_args: list[Arg] = []
    for i, (request, claim, topic, _), position, full in Groups(ends, apart).each() if apart else ():
        end = ends[i]
        others.append(i)
        verdict = "aside" if end.aside and end.verdict == "release" else end.verdict
        other_args += (
            request, claim, topic, full, int.from_bytes(position, "big"), verdict, end.delay, error_text(end.error),
            "" if end.began is None else end.began, end.trace or "", end.attempts or "",
        )  # fmt: skip
    return Settle(groups, others, [str(dead_max), *groups.args(), str(len(others)), *other_args])


def settle_answer(asked: Settle, count: int, reply: Sequence[Any]) -> list[Ended]:
    answers: list[Ended] = ["lost"] * count
    among = len(reply) - len(asked.others)
    for i in asked.groups.confirmed(reply[1:among]):
        answers[i] = "done"
    for i, word in zip(asked.others, reply[among:], strict=True):
        answers[i] = word.decode()
    return answers


def extend(holds: Sequence[Hold], lease: int) -> tuple[Groups, list[Arg]]:
    groups = Groups(holds, range(len(holds)))
    return groups, [str(lease), *groups.args()]


def extend_answer(groups: Groups, count: int, reply: Sequence[Any]) -> list[bool]:
    answers = [False] * count
    for i in groups.confirmed(reply[1:]):
        answers[i] = True
    return answers
