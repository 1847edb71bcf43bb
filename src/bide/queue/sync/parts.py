# Generated from ../aio/parts.py by tools/unasync.py; change that file instead.
"""Batches in parts: each is sent whole or not at all, and as the topics have room."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from bide.core.formats import plural
from bide.engines.base import MAX_BATCH, NewMessage, Window
from bide.engines.sync import Engine
from bide.errors import BideError, ConfirmTimeout, EngineError, PartlySent, QueueFull, SchemaMismatch, Unavailable
from bide.queue.answers import Collected
from bide.queue.topic_rules import TopicRoom
from bide.types import Sent
from bide.wakeable import Signal

_EVER = Window(0, 2**45, 1)
FIRST_LOOK, LAST_LOOK = 0.05, 1.0  # seconds between two looks of who waits for room


class Rooms:
    def __init__(self, engine: Engine, most: Mapping[str, int]) -> None:
        """`most`: how many messages may be pending, by topic."""
        self._engine = engine
        self._most = most
        self._rooms: dict[str, TopicRoom] = {}

    def take(self, topic: str, count: int) -> None:
        """Room for so many messages. Raises QueueFull."""
        if not self._take(topic, count, count):
            raise self._full(topic, count)

    def wait(self, topic: str, count: int, seconds: float) -> int:
        """Room for some of so many messages, waited for. Raises QueueFull when there is none in that time."""
        until, pause = time.monotonic() + seconds, FIRST_LOOK
        while not (taken := self._take(topic, 1, count)):
            left = until - time.monotonic()
            if left <= 0:
                raise self._full(topic, count)
            Signal().wait(min(pause, left))
            pause = min(2 * pause, LAST_LOOK)
        return taken

    def done(self, topic: str, taken: int, stored: int) -> None:
        """Of the messages that there was room for, so many were stored, or may have been."""
        self._rooms[topic].done(taken, stored)

    def _take(self, topic: str, least: int, count: int) -> int:
        room, most = self._rooms.setdefault(topic, TopicRoom()), self._most.get(topic, 2**62)
        if room.is_stale():
            began, begun = time.monotonic(), room.begin()
            pending = self._count(topic)
            room.counted(pending, begun, time.monotonic() - began, most)
        return room.take(least, count, most)

    def _count(self, topic: str) -> int:
        """All that is pending. Where an engine estimates, its timeline is exact."""
        stats = self._engine.stats(topic)
        if stats.about:
            stats = self._engine.stats(topic, window=_EVER)
            return sum(stats.timeline)
        return stats.pending

    def _full(self, topic: str, count: int) -> QueueFull:
        pending, most = self._rooms[topic].pending, self._most.get(topic, 0)
        many = "" if count == 1 else f", and these are {count:,} more"
        return QueueFull(
            f"{topic} holds {plural(pending, 'pending message')}{many}: its most_pending is {most:,}. Send less, start more "
            "workers, or have send_many wait for room with wait=."
        )


T = TypeVar("T")
R = TypeVar("R")
Answers: TypeAlias = list[Sent]
Put: TypeAlias = Callable[[Sequence[NewMessage]], Answers]


def in_parts(
    call: Callable[[Sequence[T]], list[R]],
    items: Sequence[T],
    collected: Collected[R],
    room: Callable[[Sequence[T]], int] | None = None,
) -> list[R]:
    """A call for each thousand, or for as many as there is room for. One that is not confirmed was done, so the rest follows,
    and ConfirmTimeout is raised at the end.
    """
    part: Sequence[T] = ()
    try:
        while collected.done < len(items):
            part = items[collected.done : collected.done + MAX_BATCH]
            if room is not None:
                part = part[: room(part)]
            try:
                collected.answer(call(part))
            except ConfirmTimeout as short:
                collected.fall_short(short, len(part))
    except BideError as error:
        collected.stop(error, len(part))
        raise
    return collected.result()


def put_in_parts(put: Put, new: Sequence[NewMessage]) -> list[Sent]:
    """Raises PartlySent when a later part fails."""
    return in_parts(put, new, Collected(len(new), new))


def put_with_room(put: Put, new: Sequence[NewMessage], rooms: Rooms) -> list[Sent]:
    """All of them, or none when there is no room for all."""
    topic = new[0].topic
    rooms.take(topic, len(new))
    stored = len(new)  # or may be
    try:
        sent = put_in_parts(put, new)
        stored = sum(each.created for each in sent)
    except PartlySent as error:
        stored = len(error.sent) + (len(new) - len(error.sent)) * may_be_stored(error.error)
        raise
    except BideError as error:
        stored *= may_be_stored(error)
        raise
    finally:
        rooms.done(topic, len(new), stored)
    return sent


def put_as_room_comes(put: Put, new: Sequence[NewMessage], rooms: Rooms, wait: float) -> list[Sent]:
    """In parts that there is room for. Raises QueueFull, or PartlySent, when there was none for so many seconds."""

    def put_part(part: Sequence[NewMessage]) -> list[Sent]:
        return _put_part(put, part, rooms)

    def room(left: Sequence[NewMessage]) -> int:
        return rooms.wait(left[0].topic, len(left), wait)

    return in_parts(put_part, new, Collected(len(new), new), room)


def _put_part(put: Put, part: Sequence[NewMessage], rooms: Rooms) -> list[Sent]:
    """What room was taken for."""
    stored = len(part)
    try:
        sent = put(part)
        stored = sum(each.created for each in sent)
    except BideError as error:
        stored *= may_be_stored(error)
        raise
    finally:
        rooms.done(part[0].topic, len(part), stored)
    return sent


def may_be_stored(error: BaseException) -> bool:
    """Whether what failed may have been done."""
    return isinstance(error, EngineError) and not isinstance(error, Unavailable | QueueFull | SchemaMismatch)
