"""Deliveries: what the scripts are told of them, and what they answer."""

from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import merge
from itertools import groupby, repeat
from operator import attrgetter, itemgetter, methodcaller
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

import msgspec

from bide.engines.base import MAX_BATCH, Claim, Claimed, End, Ended, Hold
from bide.engines.lots import Ends, Lot, Stretch
from bide.engines.redis.protocol import Arg
from bide.engines.redis.protocol.encoding import (
    ATTEMPTS,
    FULL,
    HEADERS,
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
    public_id,
    read_content,
    read_life,
)
from bide.engines.stored import UNREADABLE

GOLDEN = 2654435769  # of 2**32
ONCE = (1).to_bytes(2, "big")  # of attempts
YES = ord("1")  # in a text of 0 and 1, one for each delivery
FEW = 5  # messages: a lot is worth it from so many on
NOTHING = Beside(b"", b"", None)
CHANGED = f"{UNREADABLE} Has another program changed bide's keys?"
_FULLS = Struct(f"{FULL}s")
_number, _only, _slot = int.from_bytes, itemgetter(0), itemgetter(slice(SLOT))
_body, _due, _id, _token = map(attrgetter, ("body", "due", "id", "token"))
_held = methodcaller("count", YES)


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


def claim_answer(shard: int, request: str, reply: ClaimReply, plan: Plan) -> tuple[Claim, Sequence[End]]:
    """A claim, and the ends of what it brought that can't be read."""
    next_due = int(reply.due) if reply.due else None
    found: Sequence[Claimed]
    unreadable: Sequence[End] = ()
    lot = None if len(reply.values) < FEW else RedisLot(shard, request, reply)
    if lot is None or (lot.odd and lot.has_unreadable()):
        found, unreadable = _one_by_one(shard, request, reply)
    else:
        found = lot.messages(range(len(lot))) if lot.large else lot
    claim = Claim(found, int(reply.now), next_due, bool(reply.more), int(reply.upkeep), plan(int(reply.us), next_due))
    return claim, unreadable


def _one_by_one(shard: int, request: str, reply: ClaimReply) -> tuple[list[Claimed], list[End]]:
    """The messages of a lot, in its order."""
    names, beside, head = _names(reply), _beside(reply), reply.number.decode()
    found: list[Claimed] = []
    unreadable: list[End] = []
    for i, (full,) in enumerate(_FULLS.iter_unpack(reply.fulls)):
        value, position = reply.values[i], i if reply.positions is None else reply.positions[i]
        id, topic, token = public_id(shard, full, value[:SALT]), names[full[:TOPIC]], head + _TEXTS[position] + request
        message = claimed(id, full, topic, token, value, beside.get(i, NOTHING))
        if message is None:
            unreadable.append(End(topic, id, token, "dead", error=CHANGED))
        else:
            found.append(message)
    found.sort(key=_due)
    return found, unreadable


def _names(reply: ClaimReply) -> dict[bytes, str]:
    """Of its topics, by their numbers."""
    found: dict[bytes, str] = {}
    for digits, name in zip(reply.topics[::2], reply.topics[1::2], strict=True):
        found[int(digits, 16).to_bytes(TOPIC, "big")] = name.decode()
    return found


def _beside(reply: ClaimReply) -> dict[int, Beside]:
    """Of those that have more than a value, by where they are in the reply."""
    found: dict[int, Beside] = {}
    for at in range(0, len(reply.beside), 4):
        position, life, large, began = reply.beside[at : at + 4]
        found[position - 1] = Beside(life, large, int(began) if began else None)
    return found


class RedisLot(Lot):
    def __init__(self, shard: int, request: str, reply: ClaimReply) -> None:
        names = _names(reply)
        self._first = shard.to_bytes(1, "big")  # byte of the ids
        self.request: str = request
        self.head: str = reply.number.decode()  # of the tokens
        self._values = reply.values
        self.fulls: Sequence[bytes] = list(map(_only, _FULLS.iter_unpack(reply.fulls)))
        self.positions: Sequence[int] = range(len(self.fulls)) if reply.positions is None else reply.positions
        self._starts: list[int] = []  # where in its value the content of each begins, with the flags
        self._flags = bytearray()
        self._dues: list[int] = []
        topics: list[str] = []
        for slot, run in groupby(self.fulls, _slot):
            count, (at, start) = len(list(run)), flags_and_start(slot)
            values = self._values[len(topics) : len(topics) + count]
            self._starts += repeat(at, count)
            self._flags.extend(map(itemgetter(at), values))
            self._dues += map(start.__add__, map(_number, map(itemgetter(slice(SALT, at)), values)))
            topics += repeat(names[slot[:TOPIC]], count)
        self._beside = _beside(reply)
        self.large: bool = any(map(_body, self._beside.values()))  # one of its bodies
        for i, each in self._beside.items():
            if (changed := read_life(each.life)) is not None:
                self._dues[i] = changed.due
        self.order: list[int] = sorted(range(len(topics)), key=self._dues.__getitem__)  # where each place is in the reply
        self.topic: str | None = topics[0] if len(names) == 1 and topics else None  # of all of them
        self.topics: Sequence[str] = topics if self.topic is not None else [topics[i] for i in self.order]
        self.odd: Collection[int] = ()
        if self._beside or any(self._flags):
            self.odd = {place for place, i in enumerate(self.order) if i in self._beside or self._is_odd(i)}

    def _is_odd(self, i: int) -> bool:
        flags, at = self._flags[i], self._starts[i] + 1
        return bool(flags & HEADERS) or (bool(flags & ATTEMPTS) and self._values[i][at : at + 2] == ONCE)

    def has_unreadable(self) -> bool:
        for i in map(self.order.__getitem__, self.odd):
            if self._flags[i] & HEADERS:
                what = read_content(self._starts[i], self._values[i], self._beside.get(i, NOTHING).body)
                if what.headers is None:
                    return True
        return False

    def messages(self, places: Sequence[int]) -> list[Claimed]:
        """None of them is unreadable."""
        found, values, beside = list[Claimed](), self._values, self._beside
        at = list(map(self.order.__getitem__, places))
        raw = list[bytes]()
        for i in at:
            raw.append(self._first + self.fulls[i] + values[i][:SALT])
        ids = id_texts(raw)
        for id, i, place in zip(ids, at, places, strict=True):
            topic, token = self.topics[place], self.head + _TEXTS[self.positions[i]] + self.request
            if self._flags[i] or i in beside:
                message = claimed(id, self.fulls[i], topic, token, values[i], beside.get(i, NOTHING))
                assert message is not None
                found.append(message)
            else:  # as most are: nothing but a body
                due, body = self._dues[i], values[i][self._starts[i] + 1 :]
                found.append(Claimed(id, topic, body, {}, None, due, due, 1, USUAL_ATTEMPTS, token))
        return found

    def dues(self, places: Sequence[int]) -> Sequence[int]:
        return list(map(self._dues.__getitem__, map(self.order.__getitem__, places)))

    def bodies(self) -> Sequence[bytes]:
        values, starts = self._values, self._starts
        if any(self._flags):
            return [read_content(starts[i], values[i], b"").body for i in self.order]
        if len(set(starts)) == 1:  # as most are
            return list(map(itemgetter(slice(starts[0] + 1, None)), map(values.__getitem__, self.order)))
        return [values[i][starts[i] + 1 :] for i in self.order]


Group: TypeAlias = tuple[str, str, str, bytes]
"""What the deliveries of one claim in one topic have in common: the request, the claim's number, the topic and its number."""

_TEXTS = [f"{position:03x}" for position in range(MAX_BATCH)]
_PLACES = [position.to_bytes(2, "big") for position in range(MAX_BATCH)]
_POSITIONS = dict(zip(_TEXTS, _PLACES, strict=True))
CLAIM, HEAD = 16, 19  # where in a token the number of its claim ends, and the position of the delivery; a request follows


class Groups(msgspec.Struct):
    """Deliveries by what the scripts are told once of all of them. One that is none of ours is lost, and not here."""

    found: dict[Group, tuple[list[int], list[bytes], list[bytes]]] = msgspec.field(default_factory=dict)

    def add_places(self, first: int, lot: Lot, places: Sequence[int]) -> None:
        """`first`: the index of the first of them."""
        assert isinstance(lot, RedisLot)
        at = list(map(lot.order.__getitem__, places))
        if lot.topic is not None:
            self._add(lot, lot.topic, range(first, first + len(at)), at)
            return
        for topic in dict.fromkeys(lot.topics[place] for place in places):
            some = [i for i, place in enumerate(places) if lot.topics[place] == topic]
            self._add(lot, topic, [first + i for i in some], [at[i] for i in some])

    def _add(self, lot: RedisLot, topic: str, indexes: Sequence[int], at: Sequence[int]) -> None:
        """`at`: where they are in the reply to the claim."""
        group = lot.request, lot.head, topic, lot.fulls[at[0]][:TOPIC]
        found = self.found.setdefault(group, ([], [], []))
        found[0].extend(indexes)
        found[1].extend(map(_PLACES.__getitem__, map(lot.positions.__getitem__, at)))
        found[2].extend(map(lot.fulls.__getitem__, at))

    def add(self, indexes: Sequence[int], deliveries: Sequence[End | Hold]) -> None:
        groups = self.found
        for i, delivery, raw in zip(indexes, deliveries, ids_bytes(list(map(_id, deliveries))), strict=True):
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
        args: list[Arg] = [str(len(self.found))]
        for (request, claim, topic, number), (_, positions, fulls) in self.found.items():
            digits = f"{int.from_bytes(number, 'big'):x}"
            args += (request, claim, topic, digits, b"".join(positions), b"".join(fulls))
        return args

    def each(self) -> Iterator[tuple[int, Group, bytes, bytes]]:
        """In the order of the deliveries: the index of each, its group, its position and its full id."""
        return merge(*(zip(found[0], repeat(group), found[1], found[2]) for group, found in self.found.items()))

    def confirmed(self, reply: Sequence[bytes]) -> Iterator[int]:
        """The index of each that was held, by the answers for the groups."""
        for (indexes, _, _), results in zip(self.found.values(), reply, strict=True):
            for i, result in zip(indexes, results, strict=True):
                if result == YES:
                    yield i


class Settle(NamedTuple):
    groups: Groups
    others: Sequence[int]
    args: Sequence[Arg]


def settle(ends: Sequence[End], dead_max: int) -> Settle:
    groups, made = Groups(), dict[int, End]()  # by index
    first = 0
    for each in ends.stretches if type(ends) is Ends else [Stretch(None, ends=ends)]:
        made.update(enumerate(each.ends, first))
        if each.lot is not None:
            groups.add_places(first, each.lot, each.places)
        first += len(each.places) + len(each.ends)
    tokens = list(map(_token, made.values()))
    again = set() if len(set(tokens)) == len(tokens) else {each for each in tokens if tokens.count(each) > 1}
    alike: list[int] = []
    apart: list[int] = []
    for i, end in made.items():
        (alike if end.verdict == "done" and end.token not in again else apart).append(i)
    groups.add(alike, list(map(made.__getitem__, alike)))
    others: list[int] = []
    other_args: list[Arg] = []
    separate = Groups()
    if apart:
        separate.add(apart, list(map(made.__getitem__, apart)))
    for i, (request, claim, topic, _), position, full in separate.each() if apart else ():
        end = made[i]
        others.append(i)
        verdict = "aside" if end.aside and end.verdict == "release" else end.verdict
        other_args += (
            request, claim, topic, full, int.from_bytes(position, "big"), verdict, end.delay, error_text(end.error),
            "" if end.began is None else end.began, end.trace or "", end.attempts or "",
        )  # fmt: skip
    return Settle(groups, others, [str(dead_max), *groups.args(), str(len(others)), *other_args])


def settle_answer(asked: Settle, count: int, reply: Sequence[Any]) -> list[Ended]:
    among = len(reply) - len(asked.others)
    if sum(map(_held, reply[1:among])) == count:  # as most are
        return ["done"] * count
    answers: list[Ended] = ["lost"] * count
    for i in asked.groups.confirmed(reply[1:among]):
        answers[i] = "done"
    for i, word in zip(asked.others, reply[among:], strict=True):
        answers[i] = word.decode()
    return answers


def extend(holds: Sequence[Hold], lease: int) -> tuple[Groups, list[Arg]]:
    groups = Groups()
    groups.add(range(len(holds)), holds)
    return groups, [str(lease), *groups.args()]


def extend_answer(groups: Groups, count: int, reply: Sequence[Any]) -> list[bool]:
    answers = [False] * count
    for i in groups.confirmed(reply[1:]):
        answers[i] = True
    return answers
