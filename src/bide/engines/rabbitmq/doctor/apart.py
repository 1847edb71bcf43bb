"""Runs async work for a caller who waits, whether or not the caller's thread has a loop that runs."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def done_apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What comes of it, done in a loop of its own in a thread of its own."""
    with ThreadPoolExecutor(1, "bide-doctor") as thread:
        return thread.submit(lambda: asyncio.run(work())).result()
