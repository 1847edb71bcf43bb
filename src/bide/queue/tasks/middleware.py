"""What is called around each handler."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from bide.errors import BadOption
from bide.queue.aio.delivery import AsyncDelivery

Middleware: TypeAlias = Callable[[AsyncDelivery, Callable[[], Awaitable[None]]], Awaitable[None]]
"""Called around each handler, with the delivery and the next step to await: `async def timed(delivery, handle): await
handle()`.
"""


def checked(given: Any) -> tuple[Middleware, ...]:
    """Middleware as users give it."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadOption(f"middleware is a {type(given).__name__}. Give a list of functions, as in middleware=[timed].")
    every = tuple(given)
    for each in every:
        if not callable(each):
            raise BadOption(f"middleware holds a {type(each).__name__}. Each is `async def timed(delivery, handle)`.")
    return every
