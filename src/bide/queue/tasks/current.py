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
    """Return the delivery that the running handler is for: an AsyncDelivery in an async handler, a Delivery in a sync one.

    It has the id, key, headers, attempt and lateness, and says whether the handler should stop (`expired`). You can extend its
    lease, or end it early. Raises ConfigError outside a handler.
    """
    try:
        delivery = running.get()
    except LookupError:
        raise ConfigError("current() is for handlers: no message is being handled here.") from None
    return delivery()
