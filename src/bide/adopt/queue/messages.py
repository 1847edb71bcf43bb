"""The messages of a queue as a move lists them, and what each is on its way and in the other queue."""

import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bide.adopt.source import RefusedEntry
from bide.core.times import MAX_DELAY_MS
from bide.engines.base import MAX_BATCH, NewMessage, Past, Ref, Stored
from bide.queue.bulk import complete
from bide.queue.deliveries import DEPENDS, attempts_left
from bide.queue.run.sync.limits import tend
from bide.queue.schedules.records import OWN
from bide.types import State

if TYPE_CHECKING:
    import re

    from bide.engines.sync import Engine
    from bide.types import Stats


YEAR = 365 * 86_400_000
AWAY = 35 * YEAR  # ms that a message is moved away
FURTHEST = AWAY - 10 * YEAR  # ms until a message is due that can be moved: later ones were moved away, ten years ago at most
FEW = 50  # messages of a topic, until it is known how large they are
LARGE = 16_000_000  # bytes of bodies in a page, about
TOO_LARGE = "is larger than the other queue takes"
WAITS = "waits for the results of other messages"
NO_DEAD = "is a dead letter, and the other queue takes none"
HAS_KEY = "has a key, and the other queue has none"


class Able(msgspec.Struct, frozen=True):
    """What the other queue can store of a message."""

    past: bool = True
    keys: bool = True
    priority: bool = True
    longest: int = MAX_DELAY_MS
    largest: int = 2**30  # bytes of a body


def is_away(message: Stored, due: int) -> bool:
    """Whether a message that was due then is still moved away. Since then, somebody may have moved it on by up to a year."""
    return message.state == "scheduled" and 0 <= message.due - AWAY - due <= YEAR


def brought_back(message: Stored, due: int) -> Stored:
    """As it was before it was moved away, when it was due then."""
    if not is_away(message, due):
        return message
    expires = None if message.expires is None else message.expires - AWAY
    return msgspec.structs.replace(message, due=message.due - AWAY, expires=expires)


def has_failed(message: Stored) -> bool:
    """Whether attempts may have left records, which no listing tells."""
    return bool(message.attempt) or message.last_error is not None


def fingerprint(message: Stored) -> str:
    """Of what a copy has: a message that is changed after a kill is another one for the queue that has the copy."""
    return f"{zlib.crc32(message.body):08x}{zlib.crc32(repr(_around(message)).encode()):08x}"


def crc_in(print: str) -> int:
    """Of the body, in a fingerprint."""
    return int(print[:8], 16)


def is_same(message: Stored, held: Stored) -> bool:
    """Whether a message that is on its way has not changed since it was listed."""
    now = brought_back(message, held.due)
    return is_away(message, held.due) and now.body == held.body and _around(now) == _around(held)


def _around(message: Stored) -> tuple[Any, ...]:
    """What a copy has of it, but for the body."""
    of_time = message.due, message.expires, message.attempt, message.max_attempts
    return *of_time, message.level, message.key, dict(message.headers)


def message_of(message: Stored, able: Able, now: int) -> NewMessage:
    """The message as it goes on in the other queue. `now`: of its own queue."""
    dead = message.state == "dead"
    begin = message.due if dead else max(message.due, now)
    had = dead or has_failed(message) or message.traces
    past = Past(message.attempt, message.last_error, message.traces, dead) if had and able.past else None
    attempts, headers = attempts_left(message.max_attempts, message.attempt if past is None else 0, message.headers)
    return NewMessage(
        message.topic,
        message.body,
        at=message.due,
        key=message.key,
        level=message.level if able.priority else 1,
        expires_in=None if message.expires is None else min(max(1, message.expires - begin), MAX_DELAY_MS),
        max_attempts=attempts,
        headers=headers,
        past=past,
    )


PENDING: Sequence[State] = ("ready", "scheduled")
DEAD: Sequence[State] = ("dead",)

TOO_FAR = f"is due in more than {FURTHEST // YEAR} years"


class MessageListing:
    def __init__(self, engine: "Engine", topics: "re.Pattern[str]", able: Able) -> None:
        """`topics`: the names of those that are moved."""
        self._engine = engine
        self._topics = topics
        self._able = able
        self.left: set[str] = set()  # ids of what was refused, or is not to be moved by this run

    def chosen(self) -> "Mapping[str, Stats]":
        """The topics that are moved, with their counts."""
        topics = complete(self._engine.stats(but=OWN)).topics
        return {name: each for name, each in sorted(topics.items()) if self._topics.fullmatch(name)}

    def count(self) -> int | None:
        chosen = self.chosen().values()
        if any(each.about for each in chosen):
            return None
        return sum(each.scheduled + each.ready + each.dead for each in chosen)

    def first(self, limit: int) -> Iterator[Stored]:
        """Some of each topic and state: those that are due first."""
        for topic in self.chosen():
            for state in (*PENDING, *DEAD):
                yield from complete(self._engine.scan(topic, state, min(limit, MAX_BATCH))).messages

    def pages(self, limit: int) -> Iterator[list[Stored]]:
        """All messages once, dead letters last and apart. Small topics share a page, which is listed when it is asked for.

        What the leases of dead receivers hold is taken back first: nobody else may be there to do so.
        """
        while tend(self._engine).more:
            pass
        for states in (PENDING, DEAD):
            page: list[Stored] = []
            for topic in self.chosen():
                for state in states:
                    after: str | None = None
                    few = FEW
                    while True:
                        found = complete(self._engine.scan(topic, state, min(few, limit - len(page)), after))
                        page += found.messages
                        if len(page) >= limit or _size(page) >= LARGE:
                            yield page
                            page = []
                        if (after := found.after) is None:
                            break
                        if found.messages:
                            few = max(1, (LARGE - _size(page)) * len(found.messages) // (_size(found.messages) + 1))
            if page:
                yield page

    def sorted_out(self, messages: Sequence[Stored], held: Collection[str]) -> tuple[list[Stored], list[RefusedEntry]]:
        """What can be moved, and what can't; without what is held, or known to be left."""
        able, unable, now = dict[str, Stored](), list[tuple[Stored, str]](), time.time_ns() // 1_000_000
        for each in messages:  # one that moves while it is listed may come twice
            if each.id in held or each.id in self.left or each.id in able:
                continue
            reason = self._refuses(each, now)
            if reason is None:
                able[each.id] = each
            else:
                unable.append((each, reason))
        gone = self._gone([each.id for each, reason in unable if reason is TOO_FAR])
        there = [(each, reason) for each, reason in unable if each.id not in gone]
        self.left |= {each.id for each, _ in there}
        return list(able.values()), [RefusedEntry(f"{each.id} of {each.topic}", reason) for each, reason in there]

    def _gone(self, ids: Sequence[str]) -> set[str]:
        """Those that have been moved since they were listed: on their way, they looked far away."""
        now = self._engine.get([Ref(id=id) for id in ids]) if ids else []
        return {id for id, stored in zip(ids, now, strict=True) if stored is None}

    def _refuses(self, message: Stored, now: int) -> str | None:
        if DEPENDS in message.headers:
            return WAITS
        if len(message.body) > self._able.largest:
            return TOO_LARGE
        if message.state == "dead":
            return None if self._able.past else NO_DEAD
        if message.due - now > FURTHEST:
            return TOO_FAR
        if message.due - now > self._able.longest:
            return f"is due in more than {self._able.longest // 86_400_000:,} days"
        return None if message.key is None or self._able.keys else HAS_KEY


def _size(messages: Sequence[Stored]) -> int:
    """Bytes of their bodies."""
    return sum(len(each.body) for each in messages)
