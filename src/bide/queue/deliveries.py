"""What deliveries in sync and async have in common, and the one that the running handler is for."""

import asyncio
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from bide.clock import epoch_ms
from bide.core.options import MAX_ATTEMPTS
from bide.engines.base import Claimed
from bide.errors import ConfigError

STOPS = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""Not failures of the work: somebody stopped it from outside."""

UNREAD = object()
"""In place of a body that nobody has asked for yet."""

PLANNED = "bide-planned"  # the header with the instant of a schedule
ATTEMPTS = "bide-attempts"  # the header of a message whose sender has asked for as many attempts as others have by default
DEPENDS = "bide-depends-on"  # the header with the ids of messages that a message waits for
SHARE = 100  # a garbage collection is followed by this many times its own length without one


class Noted(NamedTuple):
    """What those who listen to events learn of a delivery when it ends."""

    claimed: Claimed
    now: int  # by the engine's clock, when it was handed out
    seconds: float  # of work


def attempts_left(attempts: int, made: int, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str]]:
    """Of a message that is sent once more, and its headers: a 3 that is left of another number counts as asked for."""
    left = max(1, attempts - made)
    return left, headers if left != MAX_ATTEMPTS or left == attempts else {**headers, ATTEMPTS: str(left)}


running: ContextVar[Callable[[], Any]] = ContextVar("bide_present")
"""Gives the delivery in the handler's colour, or those of a batch."""

D = TypeVar("D")


class Read(msgspec.Struct, frozen=True, gc=False):
    """What a claim has brought and could be read."""

    messages: Sequence[Claimed]
    arguments: Sequence[dict[str, Any] | None]  # of their handlers, where these were read from JSON
    bodies: Sequence[Any]  # UNREAD there
    now: int  # the engine's time, when it handed them out
    at_work: float | None  # since when, by time.monotonic(), if somebody listens to events


class Together(list[D]):
    """The deliveries of a batch. To those who call handlers they are as one."""

    @property
    def expired(self) -> bool:
        return all(getattr(each, "expired", False) for each in self)

    @expired.setter
    def expired(self, value: bool) -> None:
        for each in self:
            vars_of: Any = each
            vars_of.expired = value


def planned_of(headers: Mapping[str, str]) -> int | None:
    """The instant that a schedule has planned a message for, in milliseconds; None for any other message."""
    text = headers.get(PLANNED)
    if text is None:
        return None
    try:
        return epoch_ms(datetime.fromisoformat(text))
    except (ValueError, TypeError, OverflowError):
        return None


def depends_on(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The ids of the messages that a message waits for, or has waited for."""
    text = headers.get(DEPENDS)
    return tuple(text.split(",")) if text else ()


class Cycles:
    """Deliveries in reference cycles hold their places until the garbage collector runs, and an idle process has none."""

    def __init__(self) -> None:
        self._next = 0.0

    def collect(self) -> None:
        """Run the garbage collector, unless too much time would go into it."""
        began = time.monotonic()
        if began >= self._next:
            gc.collect()
            ended = time.monotonic()
            self._next = ended + (ended - began) * SHARE


def sender(topic: str, key: str) -> str | None:
    """The id of the message that is being handled here, if this is its own key."""
    present = running.get(None)
    if present is None:
        return None
    delivery = present()
    if type(delivery) is Together:
        return next((each.id for each in delivery if (each.topic, each.key) == (topic, key)), None)
    return delivery.id if delivery is not None and (delivery.topic, delivery.key) == (topic, key) else None


def noting(function: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
    """A handler that leaves what it returned at its delivery, also where middleware around it returns nothing."""

    async def noted_async(**arguments: Any) -> Any:
        delivery = running.get()()
        value = delivery.returned = await function(**arguments)
        return value

    def noted(**arguments: Any) -> Any:
        delivery = running.get()()
        value = delivery.returned = function(**arguments)
        return value

    return noted_async if is_async else noted


def returned_of(delivery: Any) -> Any:
    """What its handler returned; None where middleware did not call it."""
    return getattr(delivery, "returned", None)


def current() -> Any:
    """Return the delivery that the running handler is for: an AsyncDelivery in an async handler, a Delivery in a sync one.

    It has the id, key, headers, attempt and lateness, and says whether the handler should stop (`expired`). You can extend its
    lease, or end it early. Raises ConfigError outside a handler.
    """
    delivery = _present("current()")()
    if type(delivery) is Together:
        raise ConfigError("This handler has a batch of messages, and current() is for one: current_batch() gives them all.")
    return delivery


def current_batch() -> Any:
    """Return the deliveries that the running handler is for, in the order of its list: AsyncDelivery objects in an async
    handler, Delivery objects in a sync one. A handler without `batch=` gets a list of one.

    End them together, in your own transaction too: `queue.ack_many(current_batch(), connection=…)`. Raises ConfigError outside
    a handler.
    """
    found = _present("current_batch()")()
    return list(found) if type(found) is Together else [found]


def _present(name: str) -> Callable[[], Any]:
    try:
        return running.get()
    except LookupError:
        raise ConfigError(f"{name} is for handlers: no message is being handled here.") from None
