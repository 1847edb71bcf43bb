"""Kept results: what is to be remembered of what was sent, what a value looks like when it is kept, and what is told of it."""

from collections.abc import Iterable, Mapping

from bide.core.codec import encode
from bide.engines.base import Stored
from bide.engines.results import Expected, Result
from bide.errors import (
    BadBody,
    BadOption,
    NoResult,
    ResultCancelled,
    ResultFailed,
    ResultNotKept,
    ResultPending,
    ResultUnknown,
    TooLarge,
)
from bide.logs import Log
from bide.queue.deliveries import DEPENDS
from bide.queue.envelope import Envelope, id_of
from bide.types import Sent

_log = Log("bide.tasks")
UNDONE_MS = 86_400_000  # a message that ends without a result is remembered for so long after its time, and its keep=
FIRST_LOOK = 0.005  # seconds
PART = 4  # then again when it has waited for a fourth as long again,
LAST_LOOK = 1.0  # and at least so often when it is due,
ASLEEP = 5.0  # or so often while it is not


def which(message: object) -> str:
    """The id of the message that is meant."""
    if not isinstance(message, Sent | str):
        raise BadOption(
            f"That is a {type(message).__name__}. Say which message: queue.result(sent), or queue.result('its id')."
        )
    return id_of(message)


def expected(sent: Iterable[Sent], keeps: Mapping[str, int]) -> list[Expected]:
    """Of what was sent, the messages whose results are to be kept.

    A duplicate of one that was sent before is left out: that one may be done, and the time of its result over.
    """
    return [
        Expected(each.id, each.due + keep + UNDONE_MS)
        for each in sent
        if (keep := keeps.get(each.topic)) is not None and each.outcome != "duplicate"
    ]


def encoded(envelope: Envelope, value: object, name: str, id: str) -> bytes | None:
    """What a task returned, as it is kept; None if it can't be, which is logged without the value."""
    try:
        return encode(envelope.codec, value, envelope.max_body)
    except TooLarge:
        why = f"it is larger than max_body, {envelope.max_body:,} bytes"
    except BadBody as error:
        why = f"the queue's codec has no form for it ({type(error.__cause__ or error).__name__})"
    _log.error("What %s returned for message %s is not kept: %s. The message is done.", name, id, why)
    return None


def pause(waited: float, stored: Stored, now_ms: int) -> float:
    """Seconds until the next look for a result that is not there. What waits for other messages may be due at any time."""
    sleeps = stored.state == "scheduled" and DEPENDS not in stored.headers
    asleep = (stored.due - now_ms) / 1000 if sleeps else 0.0
    return max(min(max(FIRST_LOOK, waited / PART), LAST_LOOK), min(asleep, ASLEEP))


def undone(id: str, stored: Stored | None, known: Result | None) -> NoResult | None:
    """Why there will be no result of a message; None while it may still come."""
    if stored is not None:
        if stored.state != "dead":
            return None
        return ResultFailed(f"Message {id} is a dead letter: {stored.last_error or 'no reason was given'}", stored.last_error)
    if known is None:
        return ResultUnknown(
            f"Nothing is known of a result of {id}: there was no such message of a task with keep=, or its time is over."
        )
    return ResultCancelled(
        f"Message {id} has ended without a result: it was cancelled or purged, has expired, or a worker whose task has no "
        "keep= has handled it."
    )


def pending(id: str, stored: Stored) -> ResultPending:
    return ResultPending(f"Message {id} is not done yet: it is {stored.state}.")


def never_kept(topic: str) -> BadOption:
    return BadOption(
        f"The task for {topic} has no keep=, so what it returns is not kept, and waiting for it would never end. "
        f"Give it one, as in @queue.task({topic!r}, keep='1h')."
    )


def not_kept(id: str) -> ResultNotKept:
    return ResultNotKept(f"Message {id} is done, but what its task returned was too large, or had no form in the codec.")
