"""Deliveries: what the scripts are told of them, and what they answer."""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from bide.engines.base import MAX_BATCH, Claim, Claimed, End, Ended, Hold
from bide.engines.redis.protocol import Arg
from bide.engines.redis.protocol.encoding import FULL, SALT, TOPIC, claimed, error_text, id_texts, ids_bytes

GOLDEN = 2654435769  # of 2**32
YES = ord("1")  # in a text of 0 and 1, one for each delivery
NOTHING = (b"", b"")
_due = attrgetter("due")
_id, _token = attrgetter("id"), attrgetter("token")


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
    upkeep: bytes  # no upkeep is needed before
    us: bytes  # now
    positions: Sequence[int] | None = None  # of what an earlier claim of this request holds still


Plan: TypeAlias = Callable[[int, int | None], float | None]
"""When to claim again, by when a claim ran in µs and the due time in ms."""


def claim_answer(shard: int, request: str, answer: Sequence[Any], plan: Plan) -> Claim:
    reply = ClaimReply(*answer)
    names: dict[bytes, str] = {}
    for digits, name in zip(reply.topics[::2], reply.topics[1::2], strict=True):
        names[int(digits, 16).to_bytes(TOPIC, "big")] = name.decode()
    beside: dict[int, tuple[bytes, bytes]] = {}
    for position, life, large in zip(reply.beside[::3], reply.beside[1::3], reply.beside[2::3], strict=True):
        beside[position - 1] = life, large
    positions = range(len(reply.values)) if reply.positions is None else reply.positions
    head, first = reply.number.decode(), shard.to_bytes(1, "big")
    fulls: list[bytes] = []
    raw: list[bytes] = []
    for i, value in enumerate(reply.values):
        full = reply.fulls[FULL * i : FULL * i + FULL]
        fulls.append(full)
        raw.append(first + full + value[:SALT])
    found: list[Claimed] = []
    for i, (id, full, value) in enumerate(zip(id_texts(raw), fulls, reply.values, strict=True)):
        token = f"{head}{positions[i]:03x}{request}"
        found.append(claimed(id, full, names[full[:TOPIC]], token, value, beside.get(i, NOTHING)))
    found.sort(key=_due)
    due = int(reply.due) if reply.due else None
    return Claim(found, int(reply.now), due, bool(reply.more), int(reply.upkeep), plan(int(reply.us), due))


Group: TypeAlias = tuple[str, str, str, bytes]
"""What the deliveries of one claim in one topic have in common: the request, the claim's number, the topic and its number."""

_POSITIONS = {f"{position:03x}": position.to_bytes(2, "big") for position in range(MAX_BATCH)}
CLAIM, HEAD = 16, 19  # where in a token the number of its claim ends, and the position of the delivery; a request follows


def held(deliveries: Sequence[End | Hold]) -> Iterator[tuple[int, Group, bytes, bytes]]:
    """Of each its index, its group, and its position and full id; of those that are none of ours, and so are lost, nothing."""
    for i, (delivery, raw) in enumerate(zip(deliveries, ids_bytes(list(map(_id, deliveries))), strict=True)):
        token = delivery.token
        position = _POSITIONS.get(token[CLAIM:HEAD])
        if position is not None and raw is not None and len(token) > HEAD:
            yield i, (token[HEAD:], token[:CLAIM], delivery.topic, raw[1 : 1 + TOPIC]), position, raw[1 : 1 + FULL]


class Groups:
    """Deliveries by what the scripts are told once of all of them."""

    def __init__(self) -> None:
        self._found: dict[Group, tuple[list[int], list[bytes], list[bytes]]] = {}

    def add(self, i: int, group: Group, position: bytes, full: bytes) -> None:
        found = self._found.get(group)
        if found is None:
            found = self._found[group] = ([], [], [])
        found[0].append(i)
        found[1].append(position)
        found[2].append(full)

    def args(self) -> list[Arg]:
        args: list[Arg] = [str(len(self._found))]
        for (request, claim, topic, number), (_, positions, fulls) in self._found.items():
            digits = f"{int.from_bytes(number, 'big'):x}"
            args += (request, claim, topic, digits, b"".join(positions), b"".join(fulls))
        return args

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
    groups = Groups()
    others: list[int] = []
    other_args: list[Arg] = []
    for i, group, position, full in held(ends):
        end = ends[i]
        if end.verdict == "done" and end.token not in again:
            groups.add(i, group, position, full)
        else:
            request, claim, topic, _ = group
            others.append(i)
            other_args += (
                request, claim, topic, full, int.from_bytes(position, "big"), end.verdict, end.delay, error_text(end.error),
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
    groups = Groups()
    for each in held(holds):
        groups.add(*each)
    return groups, [str(lease), *groups.args()]


def extend_answer(groups: Groups, count: int, reply: Sequence[Any]) -> list[bool]:
    answers = [False] * count
    for i in groups.confirmed(reply[1:]):
        answers[i] = True
    return answers
