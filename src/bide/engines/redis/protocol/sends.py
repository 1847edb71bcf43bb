"""Messages that are sent, cancelled and moved: what the scripts are told, and what they answer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple, TypeVar

import msgspec

from bide.core.times import MAX_DELAY_MS, due_time, planned
from bide.engines.base import Condition, Move, NewMessage, Past, Ref, Seen
from bide.engines.redis.protocol import Arg
from bide.engines.redis.protocol.encoding import (
    LOCAL,
    NOWHERE,
    SALT,
    TOPIC,
    MessageName,
    content,
    error_text,
    id_text,
    id_texts,
    name_of,
)
from bide.errors import Unsupported
from bide.types import CancelResult, Outcome, RescheduleResult, Sent

T = TypeVar("T")
PART = 250  # messages that one script ends, cancels or moves
LOT_PART = 500  # places of lots, of which one script is told that they are done
FULL = 2**20  # bytes of bodies that one script takes

_CANCELLED = {
    "c": CancelResult.CANCELLED,
    "r": CancelResult.RUNNING,
    "d": CancelResult.DEAD,
    "g": CancelResult.GONE,
}
_MOVED = {
    "m": RescheduleResult.MOVED,
    "r": RescheduleResult.RUNNING,
    "d": RescheduleResult.DEAD,
    "g": RescheduleResult.GONE,
}
_OUTCOMES: dict[bytes, Outcome] = {
    b"c": "created",
    b"k": "kept",
    b"e": "exists",
    b"r": "replaced",
    b"p": "postponed",
    b"d": "duplicate",
    b"m": "merged",
}
_FROM = {"due": "+", "since": "-"}  # what a delay counts from, before it
_NO_ID = b"A---------"  # of no message
_LONGEST = str(MAX_DELAY_MS)
_FIRST = (0,)  # which of a batch of one
_PAST = Struct(">HBI")
_RECORD = Struct(">H")
_OUTCOME = Struct(f"1s{LOCAL + SALT}s6s")


def when(delay: int, at: int | None) -> str:
    """A time as the scripts are asked for it."""
    return str(delay) if at is None else f"@{at}"


class Put(msgspec.Struct, frozen=True):
    """A batch in the order in which the script is told of it."""

    verb: str
    sections: Mapping[
        tuple[str, int], tuple[Sequence[int], Sequence[Arg]]
    ]  # by topic and level: which of the batch, and what is told
    others: Sequence[int]
    args: Sequence[Arg]

    def operations(self, messages: Sequence[NewMessage], shard: int, lane: str, number: int) -> list[str]:
        """A name for each message of the batch, by which a later put finds out what became of it.

        One that has a name keeps it: an earlier try under it may have been done, and this one undone by a failover.
        """
        order = [i for indexes, _ in self.sections.values() for i in indexes] + list(self.others)
        named = {i: f"~{shard}.{lane}.{number}#{position}" for position, i in enumerate(order)}
        return [new.operation or named[i] for i, new in enumerate(messages)]


def put(messages: Sequence[NewMessage]) -> Put:
    if len(messages) == 1:  # as most are sent
        [new] = messages
        if new.key is None and new.operation is None and new.expires_in is None and new.past is None:
            blob, large = content(new)
            if not large:
                args = (
                    _LONGEST,
                    "1",
                    new.topic,
                    str(new.level),
                    "1",
                    str(new.delay) if new.at is None else f"@{new.at}",
                    blob,
                )
                return Put("put", {(new.topic, new.level): (_FIRST, args[5:])}, (), args)
    sections: dict[tuple[str, int], tuple[list[int], list[Arg]]] = {}
    others: list[int] = []
    other_args: list[Arg] = []
    verb, topic, level = "put", None, None
    indexes: list[int] = []
    each: list[Arg] = []
    for i, new in enumerate(messages):
        blob, large = content(new)
        moment = str(new.delay) if new.at is None else f"@{new.at}"
        if new.key is None and new.operation is None and new.expires_in is None and new.past is None and not large:
            if new.topic != topic or new.level != level:  # most have those of the one before
                topic, level = new.topic, new.level
                indexes, each = sections.setdefault((topic, level), ([], []))
            indexes.append(i)
            each += (moment, blob)
        else:
            others.append(i)
            how, ruled = _if_exists(new)
            verb = "put_ruled" if ruled else "put_named" if verb == "put" else verb
            other_args += (new.topic, str(new.level), moment, blob, new.key or "", how, new.operation or "", large)
            other_args.append(b"" if new.within is None else within(name_of(new.within)))
    told: list[Arg] = [_LONGEST, str(len(sections))]  # text, which is sent as it is
    for (topic, level), (indexes, each) in sections.items():
        told += (topic, str(level), str(len(indexes)))
        told += each
    if others:
        told += (str(len(others)), *other_args)
    return Put(verb, sections, others, told)


def _if_exists(new: NewMessage) -> tuple[Arg, bool]:
    """What becomes of others with its key, as the scripts are told it; and whether only `put_ruled` knows that."""
    if new.max_wait is not None:
        return f"{new.if_exists} {new.max_wait}", True
    if new.unique_for is not None:
        return f"{new.if_exists} {new.unique_for}", True
    if new.if_exists == "merge":
        return f"{new.if_exists} {new.largest}", True
    if new.past is not None:
        return past(new.past), True
    return new.if_exists, False


def past(lived: Past) -> bytes:
    """What a message has lived through elsewhere, as the script is told it."""
    error = error_text(lived.error)
    records = b"".join(_RECORD.pack(len(each)) + each for each in lived.traces)
    return b"past " + _PAST.pack(lived.attempt, lived.dead, len(error)) + error + records


def within(sender: MessageName) -> bytes:
    """The message whose handler sends, as the script knows it."""
    return sender.topic.encode() + sender.local + sender.salt


def put_answer(asked: Put, messages: Sequence[NewMessage], shard: int, salt: bytes, answer: Sequence[Any]) -> list[Sent | None]:
    """From what the script gives: now, and now rounded up; the salt; of each section the number of its topic, and the ids; of
    each run of others in one topic its number, and what became of them; and the server's clock, if it is behind.
    """
    now, ceiling, placed = int(answer[0]), int(answer[1]), answer[3]
    wall = int(answer[5] or now) if len(answer) > 5 else now
    if len(messages) == 1 and placed:  # as most are sent
        [new], [digits, local] = messages, placed
        return [Sent(id_text(_head(shard, digits) + local + salt), new.topic, _due(new, now, ceiling, wall), "created")]
    answers: dict[int, Sent | None] = {}
    for at, ((topic, _), (indexes, _)) in enumerate(asked.sections.items()):
        digits, ids = placed[2 * at : 2 * at + 2]
        head = _head(shard, digits)
        texts = id_texts([head + ids[each : each + LOCAL] + salt for each in range(0, len(ids), LOCAL)])
        some = messages if len(indexes) == len(messages) else [messages[i] for i in indexes]
        sent: list[Sent | None] = [
            Sent(
                id,
                topic,
                due_time(new.delay, None, now, ceiling) if new.at is None else _due(new, now, ceiling, wall),
                "created",
            )
            for id, new in zip(texts, some, strict=True)
        ]
        if some is messages:
            return sent
        answers.update(zip(indexes, sent, strict=True))
    for i, (head, letter, rest, due) in zip(asked.others, _told(shard, answer[4]), strict=True):
        outcome = _OUTCOMES.get(letter)  # none: it is absent
        answers[i] = Sent(id_text(head + rest), messages[i].topic, int.from_bytes(due, "big"), outcome) if outcome else None
    return list(map(answers.__getitem__, range(len(messages))))


def _head(shard: int, digits: bytes) -> bytes:
    """How the ids of a topic begin, by its number."""
    return (shard << 8 * TOPIC | int(digits, 16)).to_bytes(1 + TOPIC, "big")


def _due(new: NewMessage, now: int, ceiling: int, wall: int) -> int:
    if new.at is None:  # by far the most
        return due_time(new.delay, None, now, ceiling)
    return planned(new.delay, new.at, now, ceiling, wall).due


def _told(shard: int, named: Sequence[bytes]) -> list[tuple[bytes, bytes, bytes, bytes]]:
    """Of each message that is not plain: how its id begins; its outcome's letter, the rest of the id, and when it is due."""
    found: list[tuple[bytes, bytes, bytes, bytes]] = []
    for digits, told in zip(named[::2], named[1::2], strict=True):
        head = _head(shard, digits)
        for letter, rest, due in _OUTCOME.iter_unpack(told):
            found.append((head, letter, rest, due))
    return found


def ref(named: Ref, shard: int) -> tuple[Arg, ...]:
    """As the scripts of this shard are told it. An id that names another shard names no message here."""
    if named.id is None:
        return "key", named.topic or "", named.key or "", ""
    name = name_of(named.id)
    if name.shard != shard:
        name = NOWHERE
    return "id", name.topic, name.local or _NO_ID, name.salt


def refs(named: Iterable[Ref], shard: int) -> list[Arg]:
    return [part for each in named for part in ref(each, shard)]


def seen(both: Sequence[tuple[Ref, Seen]], shard: int) -> list[Arg]:
    """What is to be cancelled, each with what was seen of it: its due time, and behind a colon its body, if that counts."""
    args: list[Arg] = [len(both)]
    for named, each in both:
        args += (*ref(named, shard), str(each.due) if each.body is None else b"%d:%b" % (each.due, each.body))
    return args


def check_together(named: Iterable[Ref]) -> None:
    """Of several shards each acts by itself. Who opened the queue when it had one may not know that."""
    if len({name_of(each.id or "").shard for each in named}) > 1:
        raise Unsupported(
            "The queue was resharded, and its shards can't change these messages as a whole: open it again, or begin again."
        )


def cancel_answer(reply: Sequence[Any]) -> list[CancelResult]:
    return [_CANCELLED[letter] for letter in reply[1].decode()]


def reschedule(moves: Sequence[Move], condition: Condition | None, shard: int) -> list[Arg]:
    args: list[Arg] = [MAX_DELAY_MS, "" if condition is None else condition.due]
    if condition is not None:
        args += ref(Ref(id=condition.id), shard)
    args.append(len(moves))
    for move in moves:
        moment = when(move.delay, move.at) if move.origin == "now" else f"{_FROM[move.origin]}{move.delay}"
        args += (moment if move.seen is None else f"{moment} {move.seen}", *ref(move.ref, shard))
    return args


def reschedule_answer(reply: Sequence[Any]) -> list[RescheduleResult]:
    return [_MOVED[letter] for letter in reply[1].decode()]


class DueSpan(NamedTuple):
    """Where the due times of requeued messages lie, which are evenly spread over some time."""

    taken: int  # by other shards
    all: int
    delay: int
    over: int

    @property
    def left(self) -> int:
        return self.all - self.taken

    def args(self, taken: int) -> list[Arg]:
        """`taken`: how many more are taken by now."""
        return [self.delay, self.over, self.all, self.taken + taken, MAX_DELAY_MS]


def named_dead(ids: Iterable[str]) -> list[Arg]:
    args: list[Arg] = []
    for id in ids:
        name = name_of(id)
        if name.local:
            args += (name.topic, name.local, name.salt)
    return args


def by_shard(items: Sequence[T], shard_of: Callable[[T], int]) -> dict[int, list[int]]:
    """Which of a batch go where."""
    found: dict[int, list[int]] = {}
    for i, item in enumerate(items):
        found.setdefault(shard_of(item), []).append(i)
    return found


def put_parts(messages: Sequence[NewMessage], shard_of: Callable[[NewMessage], int]) -> list[tuple[int, list[int]]]:
    """Which messages go where in one script: as many as fit into FULL bytes; one that has more goes alone."""
    found: list[tuple[int, list[int]]] = []
    for shard, indexes in by_shard(messages, shard_of).items():
        part: list[int] = []
        size = 0
        for i in indexes:
            size += len(messages[i].body)
            if size > FULL and part:
                found.append((shard, part))
                part, size = [], len(messages[i].body)
            part.append(i)
        found.append((shard, part))
    return found
