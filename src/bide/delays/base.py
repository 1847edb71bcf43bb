"""What the sync and the async delay queue share: which item is next, and which caller waits for it.

Of the callers that wait, one is the leader: it sleeps until the first item is due, and the others sleep until they are
woken. A leader that stops waiting, for whatever reason, makes another one leader, so no wake-up gets lost.
"""

import itertools
import threading
from heapq import heapify, heappop, heappush
from time import monotonic_ns
from typing import Final, Generic, NewType, TypeVar, overload

from bide.core.times import duration_ms
from bide.errors import BadOption, Unavailable
from bide.types import Duration
from bide.wakeable import Wakeable

T = TypeVar("T")
Default = TypeVar("Default")

Handle = NewType("Handle", int)
"""What `put` returns, and `remove` takes."""

MS, SECOND = 1_000_000, 1_000_000_000  # in nanoseconds
LONGEST_SLEEP = 3_600.0
FEW = 64  # removed items that may stay in the heap

_handles = itertools.count(1)  # of all queues, so that one queue's handle means nothing to another


class Nothing:
    """Told apart from any item, None among them."""


NOTHING: Final = Nothing()


class BaseDelayQueue(Generic[T]):
    """Everything of a delay queue except `take`, the only method that waits. Thread-safe."""

    def __init__(self) -> None:
        # Reentrant, because the garbage collector may run a __del__ that uses the queue anywhere.
        self._lock: threading.RLock = threading.RLock()
        self._items: dict[Handle, T] = {}
        self._order: list[tuple[int, Handle]] = []  # a heap of due times; of what was removed too, until tidied
        self._waiting: dict[Wakeable, None] = {}  # longest first
        self._leader: Wakeable | None = None
        self._closed: bool = False

    def put(self, item: T, delay: Duration = 0) -> Handle:
        """Add an item that can be taken after the delay. Returns a handle for `remove`.

        If several items are due at the same time, the one that was put first comes first. Raises BadTime for an invalid delay,
        and Unavailable if the queue is closed.
        """
        wait = duration_ms(delay) * MS
        with self._lock:
            self._check_open()
            handle = Handle(next(_handles))
            self._items[handle] = item
            heappush(self._order, (monotonic_ns() + wait, handle))
            if self._order[0][1] == handle and self._leader is not None:
                self._leader.set()
            return handle

    @overload
    def poll(self) -> T | None: ...
    @overload
    def poll(self, default: Default) -> T | Default: ...
    def poll(self, default: object = None) -> object:
        """Take the first item that is due, or return `default`. Raises Unavailable if the queue is closed."""
        with self._lock:
            self._check_open()
            item = self._take_due()
        return default if isinstance(item, Nothing) else item

    @overload
    def peek(self) -> T | None: ...
    @overload
    def peek(self, default: Default) -> T | Default: ...
    def peek(self, default: object = None) -> object:
        """Return the first item, due or not, and leave it there; `default` if there is none. Raises Unavailable if closed."""
        with self._lock:
            self._check_open()
            return self._items[self._order[0][1]] if self._first_due() is not None else default

    def remove(self, handle: Handle) -> bool:
        """Remove an item. True: nobody will get it. False: it was taken or removed before."""
        if type(handle) is not int:
            raise BadOption(f"handle is a {type(handle).__name__}. Give what put returned.")
        with self._lock:
            item = self._items.pop(handle, NOTHING)
            if len(self._order) > 2 * len(self._items) + FEW:
                self._order = [entry for entry in self._order if entry[1] in self._items]
                heapify(self._order)
        return item is not NOTHING

    def close(self) -> list[T]:
        """Close the queue, and return the remaining items in due order. Callers that wait in `take` get Unavailable.

        A second call returns an empty list.
        """
        with self._lock:
            self._closed = True
            left = [self._items[handle] for _, handle in sorted(self._order) if handle in self._items]
            self._items.clear()
            self._order.clear()
            for each in self._waiting:
                each.set()
        return left

    def __len__(self) -> int:
        """The number of items, due or not."""
        return len(self._items)

    def _take_or_wait(self, me: Wakeable, deadline: int | None) -> tuple[T | Nothing, float]:
        """What is due, or how many seconds to sleep before trying again."""
        with self._lock:
            self._check_open()
            item = self._take_due()
            now = monotonic_ns()
            if not isinstance(item, Nothing):
                return item, 0.0
            if deadline is not None and now >= deadline:
                raise TimeoutError("Nothing fell due in time. Wait longer, or without a timeout.")
            self._waiting.setdefault(me)
            if self._leader is None:
                self._leader = me
            due = self._first_due() if self._leader is me else None
            ends = [each for each in (due, deadline) if each is not None]
            return NOTHING, min([max(0, each - now) / SECOND for each in ends], default=LONGEST_SLEEP)

    def _leave(self, me: Wakeable) -> None:
        """Stop waiting, with an item or without; if it led, another caller leads."""
        with self._lock:
            self._waiting.pop(me, None)
            if self._leader is me:
                self._leader = next(iter(self._waiting), None)
                if self._leader is not None and self._items:
                    self._leader.set()

    def _take_due(self) -> T | Nothing:
        due = self._first_due()
        if due is None or due > monotonic_ns():
            return NOTHING
        return self._items.pop(heappop(self._order)[1])

    def _first_due(self) -> int | None:
        """When the first item is due that has not been removed."""
        while self._order and self._order[0][1] not in self._items:
            heappop(self._order)
        return self._order[0][0] if self._order else None

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("The delay queue is closed. Make a new one to go on.")


def deadline_of(timeout: Duration | None) -> int | None:
    """On the monotonic clock, in nanoseconds."""
    return None if timeout is None else monotonic_ns() + duration_ms(timeout, "timeout") * MS
