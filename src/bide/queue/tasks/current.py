"""The delivery that the running handler is for."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from bide.errors import ConfigError

running: ContextVar[Callable[[], Any]] = ContextVar("bide_present")
"""Gives the delivery in the handler's colour."""


def sender(topic: str, key: str) -> str | None:
    """The id of the message that is being handled here, if this is its own key."""
    delivery = running.get(_nothing)()
    return delivery.id if delivery is not None and (delivery.topic, delivery.key) == (topic, key) else None


def _nothing() -> None: ...


def current() -> Any:
    """In a handler, the delivery that it is for: an AsyncDelivery in an async handler, a Delivery in a sync one.

    It tells the id, key, headers, attempt and lateness, whether time is up (`expired`), and can extend the lease or end
    the delivery early. Raises ConfigError when no handler is running.
    """
    try:
        delivery = running.get()
    except LookupError:
        raise ConfigError("current() is for handlers: no message is being handled here.") from None
    return delivery()
