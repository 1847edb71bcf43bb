"""Gates: what the scripts are told, and what they answer.

An answer is ABSENT if the shard only empties itself, and has nothing of the gate.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from bide.engines.base import Tended
from bide.engines.gates import AGAIN_MS, TURN_MS, Called, Entered, Entry, Held, Spend, Spent
from bide.engines.redis.protocol import Arg
from bide.engines.redis.protocol.sends import PART

T = TypeVar("T")
WANT = 1_000  # instants that one script takes
INSTANT = 6  # bytes

_ABSENT_LETTER = b"a"
_KEPT = {"1": True, "0": False, "a": None}


class Absent(NamedTuple):
    """The gate is not in this shard, and never will be: another one makes it."""

    spent: bytes = b""  # what it told to be passed on, of a rate


ABSENT = Absent()


def _optional(text: str | None) -> str:
    return "" if text is None else f"+{text}"


def enter(entries: Sequence[Entry], least: int) -> list[Arg]:
    """`least`: a token that is to be passed."""
    args: list[Arg] = [least, len(entries)]
    for each in entries:
        args += (each.gate, each.holder, each.lease, each.places, _optional(each.waiter), each.asks or 0)
    return args


def enter_answer(reply: Sequence[Any]) -> tuple[list[Entered | Absent], int]:
    """And the last token of a shard that gives none any more."""
    return list(map(_entered, reply[2])), int(reply[1])


def _entered(told: bytes) -> Entered | Absent:
    if told == _ABSENT_LETTER:
        return ABSENT
    if told[:1] == b"w":
        since, _, free_in = told[1:].partition(b",")
        return Entered(None, int(since) if since else None, int(free_in) if free_in else None)
    return Entered(told.decode())


def keep(held: Sequence[Held], lease: int) -> list[Arg]:
    return [lease, *_held(held)]


def leave(held: Sequence[Held]) -> list[Arg]:
    return [TURN_MS, AGAIN_MS, *_held(held)]


def _held(held: Sequence[Held]) -> list[Arg]:
    args: list[Arg] = [len(held)]
    for each in held:
        args += (each.gate, each.holder, _optional(each.token))
    return args


def held_answer(reply: Sequence[Any]) -> list[bool | Absent]:
    """Of keep and leave."""
    answers = map(_KEPT.__getitem__, reply[1].decode())
    return [ABSENT if each is None else each for each in answers]


def left_called(reply: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """Who is called by leave, and by which of those that left."""
    return ((at, waiter.decode()) for at, waiter in zip(reply[2][::2], reply[2][1::2], strict=True))


def recall(limit: int) -> list[Arg]:
    return [TURN_MS, AGAIN_MS, limit]


def recall_answer(reply: Sequence[Any]) -> Tended:
    now, next_at, called = reply
    pairs = zip(called[::2], called[1::2], strict=True)
    waiters = tuple(Called(gate.decode(), waiter.decode()) for gate, waiter in pairs)
    next_in = next_in_of(now, next_at)
    return Tended(more=next_in == 0, called=waiters, next_in=next_in)


def tend_answer(reply: Sequence[Any]) -> Tended:
    """When gates need `recall`, of which this does nothing, is told too."""
    now, returned, buried, expired, dropped, more, next_at = reply
    return Tended(returned, buried, expired, dropped, bool(more), next_in=next_in_of(now, next_at))


def next_in_of(now: bytes, next_at: bytes) -> int | None:
    return max(0, int(next_at) - int(now)) if next_at else None


def spend(spends: Sequence[Spend], older: Sequence[bytes]) -> list[Arg]:
    """`older`: what an older shard has told of each."""
    args: list[Arg] = [len(spends)]
    for each, spent in zip(spends, older, strict=True):
        args += (each.gate, each.count, each.window, each.want, _optional(each.holder), spent)
    return args


def spend_answer(reply: Sequence[Any]) -> list[Spent | Absent]:
    now = int(reply[0])
    return [_spent(told, now) for told in reply[1]]


def _spent(told: bytes, now: int) -> Spent | Absent:
    if told[:1] == b"s":
        return Absent(told[1:])
    next_at, *at = (int.from_bytes(told[i : i + INSTANT], "big") for i in range(1, len(told), INSTANT))
    return Spent(at, next_at, now)


class Piece(NamedTuple):
    """A part of what is wanted of a rate, as one script takes it."""

    of: int  # which of the batch
    spend: Spend


def pieces(spends: Sequence[Spend]) -> list[Piece]:
    found: list[Piece] = []
    for of, each in enumerate(spends):
        if each.holder is not None or each.want <= WANT:
            found.append(Piece(of, each if each.holder is None else replace(each, want=1)))
        else:
            wants = [min(WANT, each.want - first) for first in range(0, each.want, WANT)]
            found += [Piece(of, replace(each, want=want)) for want in wants]
    return found


def together(count: int, parts: Sequence[Piece], told: Sequence[Spent]) -> list[Spent]:
    """What was spent of each of the batch."""
    at: list[list[int]] = [[] for _ in range(count)]
    last = dict[int, Spent]()
    for (of, _), spent in zip(parts, told, strict=True):
        at[of] += spent.at
        last[of] = spent
    return [replace(last[of], at=at[of]) for of in range(count)]


def runs(items: Sequence[T], size_of: Callable[[T], int] = lambda _: 0) -> Iterator[Sequence[T]]:
    """As many of them, in their order, as one script takes."""
    first, size = 0, 0
    for i, each in enumerate(items):
        size += size_of(each)
        if i > first and (i - first == PART or size > WANT):
            yield items[first:i]
            first, size = i, size_of(each)
    if items:
        yield items[first:]
