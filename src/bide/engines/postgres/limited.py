"""A limit on how long a connection waits for the server. It holds in threads too, where nothing can be ended from outside."""

import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias, TypeVar

from psycopg import waiting

Answer = TypeVar("Answer")
Work: TypeAlias = Generator[Any, Any, Answer]

INTERVAL = 0.1  # seconds between two looks at the clock, while nothing comes

AsyncWaitFor: Callable[..., Awaitable[Any]] = waiting.wait_async
WaitFor: Callable[..., Any] = waiting.wait


def limited(work: Work[Answer], seconds: float) -> Work[Answer]:
    """The driver's work on a connection; it ends in a TimeoutError if nothing comes after so many seconds.

    It is resumed with what the socket is ready for, and with nothing once in an interval.
    """
    end = time.monotonic() + seconds
    try:
        state = next(work)
        while True:
            ready = yield state
            if not ready and time.monotonic() > end:
                raise TimeoutError(f"no answer in {seconds:g} seconds")
            state = work.send(ready)
    except StopIteration as done:
        answer: Answer = done.value
        return answer
