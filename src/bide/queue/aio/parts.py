# unasync: ../sync/parts.py
"""Does a batch in parts; sends many messages, each part whole or not at all, and as there is room for them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

from bide.engines.base import MAX_BATCH, NewMessage
from bide.errors import BideError, ConfirmTimeout, EngineError, PartlySent, QueueFull, SchemaMismatch, Unavailable
from bide.queue.aio.rooms import AsyncRooms
from bide.queue.collected import Collected
from bide.types import Sent

T = TypeVar("T")
R = TypeVar("R")
Answers: TypeAlias = list[Sent]
Put: TypeAlias = Callable[[Sequence[NewMessage]], Awaitable[Answers]]


async def in_parts(
    call: Callable[[Sequence[T]], Awaitable[list[R]]],
    items: Sequence[T],
    collected: Collected[R],
    room: Callable[[Sequence[T]], Awaitable[int]] | None = None,
) -> list[R]:
    """A call for each thousand, or for as many as there is room for. One that is not confirmed was done, so the rest follows,
    and ConfirmTimeout is raised at the end.
    """
    part: Sequence[T] = ()
    try:
        while collected.done < len(items):
            part = items[collected.done : collected.done + MAX_BATCH]
            if room is not None:
                part = part[: await room(part)]
            try:
                collected.answer(await call(part))
            except ConfirmTimeout as short:
                collected.fall_short(short, len(part))
    except BideError as error:
        collected.stop(error, len(part))
        raise
    return collected.result()


async def put_in_parts(put: Put, new: Sequence[NewMessage]) -> list[Sent]:
    """Raises PartlySent when a later part fails."""
    return await in_parts(put, new, Collected(len(new), new))


async def put_with_room(put: Put, new: Sequence[NewMessage], rooms: AsyncRooms) -> list[Sent]:
    """All of them, or none when there is no room for all."""
    topic = new[0].topic
    await rooms.take(topic, len(new))
    stored = len(new)  # or may be
    try:
        sent = await put_in_parts(put, new)
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


async def put_as_room_comes(put: Put, new: Sequence[NewMessage], rooms: AsyncRooms, wait: float) -> list[Sent]:
    """In parts that there is room for. Raises QueueFull, or PartlySent, when there was none for so many seconds."""

    async def put_part(part: Sequence[NewMessage]) -> list[Sent]:
        return await _put_part(put, part, rooms)

    async def room(left: Sequence[NewMessage]) -> int:
        return await rooms.wait(left[0].topic, len(left), wait)

    return await in_parts(put_part, new, Collected(len(new), new), room)


async def _put_part(put: Put, part: Sequence[NewMessage], rooms: AsyncRooms) -> list[Sent]:
    """What room was taken for."""
    stored = len(part)
    try:
        sent = await put(part)
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
