"""The pytest plugin: queues in memory, by a clock that begins at the real now and stands still until the test moves it.

def test_an_unpaid_order_is_cancelled(bide_queue):
    bide_queue.send("order.cancel", {"order": 42}, delay="15m")
    bide_queue.testing.advance("15m")
    [delivery] = bide_queue.receive("order.cancel")
    assert delivery.body == {"order": 42}
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bide import AsyncQueue, Queue


@pytest.fixture
def bide_queue() -> "Iterator[Queue]":
    """A Queue of its own for each test. Its twin for async code is `bide_queue.aio`."""
    from bide import Queue  # noqa: PLC0415  (pytest loads this file in every run, with or without bide in it)
    from bide.queue.travel.following import FollowingClock  # noqa: PLC0415

    queue = Queue("memory://", clock=FollowingClock())
    yield queue
    queue.close()


@pytest.fixture
def bide_async_queue() -> "Iterator[AsyncQueue]":
    """An AsyncQueue of its own for each test, whatever plugin runs its loop. Its twin is `bide_async_queue.sync`."""
    from bide import AsyncQueue  # noqa: PLC0415
    from bide.queue.travel.following import FollowingClock  # noqa: PLC0415

    queue = AsyncQueue("memory://", clock=FollowingClock())
    yield queue
    queue.sync.close()
