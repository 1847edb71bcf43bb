# Generated from ../aio/parts.py by tools/unasync.py; change that file instead.
"""Sends many messages: in parts, each whole or not at all, and as there is room for them."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from bide.engines.base import MAX_BATCH, NewMessage
from bide.errors import BadMessage, EngineError, PartlySent, QueueFull, SchemaMismatch, Unavailable
from bide.queue.sync.rooms import Rooms
from bide.types import Sent

Answers: TypeAlias = list[Sent]
Put: TypeAlias = Callable[[Sequence[NewMessage]], Answers]


def put_in_parts(put: Put, new: Sequence[NewMessage]) -> list[Sent]:
    """Raises PartlySent when a later part fails."""
    sent: list[Sent] = []
    try:
        while len(sent) < len(new):
            sent += put(new[len(sent) : len(sent) + MAX_BATCH])
    except (EngineError, BadMessage) as error:
        _tell(sent, new, error)
        raise
    return sent


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
    except (EngineError, BadMessage) as error:
        stored *= may_be_stored(error)
        raise
    finally:
        rooms.done(topic, len(new), stored)
    return sent


def put_as_room_comes(put: Put, new: Sequence[NewMessage], rooms: Rooms, wait: float) -> list[Sent]:
    """In parts that there is room for. Raises QueueFull, or PartlySent, when there was none for so many seconds."""
    sent: list[Sent] = []
    try:
        while len(sent) < len(new):
            left = new[len(sent) : len(sent) + MAX_BATCH]
            count = rooms.wait(left[0].topic, len(left), wait)
            sent += _put_part(put, left[:count], rooms)
    except (EngineError, BadMessage) as error:
        _tell(sent, new, error)
        raise
    return sent


def _put_part(put: Put, part: Sequence[NewMessage], rooms: Rooms) -> list[Sent]:
    """What room was taken for."""
    stored = len(part)
    try:
        sent = put(part)
        stored = sum(each.created for each in sent)
    except (EngineError, BadMessage) as error:
        stored *= may_be_stored(error)
        raise
    finally:
        rooms.done(part[0].topic, len(part), stored)
    return sent


def may_be_stored(error: BaseException) -> bool:
    """Whether what failed may have been done."""
    return isinstance(error, EngineError) and not isinstance(error, Unavailable | QueueFull | SchemaMismatch)


def _tell(sent: list[Sent], new: Sequence[NewMessage], error: EngineError | BadMessage) -> None:
    if sent:
        raise PartlySent(f"{len(sent):,} of {len(new):,} messages were accepted, then: {error}", sent, error) from error
