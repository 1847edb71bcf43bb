"""The pytest plugin: queues in memory. Their clock begins at the real time and stands still until the test moves it.

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
    """A new Queue for each test. For async code, `bide_queue.aio` is the same queue."""
    from bide import Queue  # noqa: PLC0415  (pytest loads this file in every run, with or without bide in it)
    from bide.queue.travel.following import FollowingClock  # noqa: PLC0415

    queue = Queue("memory://", clock=FollowingClock())
    yield queue
    queue.close()


@pytest.fixture
def bide_async_queue() -> "Iterator[AsyncQueue]":
    """A new AsyncQueue for each test, whatever plugin runs its event loop. `bide_async_queue.sync` is the same queue."""
    from bide import AsyncQueue  # noqa: PLC0415
    from bide.queue.travel.following import FollowingClock  # noqa: PLC0415

    queue = AsyncQueue("memory://", clock=FollowingClock())
    yield queue
    queue.sync.close()
