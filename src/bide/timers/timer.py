"""A timer, and the row it waits in: a ring of links, so that any timer can leave it at once and nothing is left behind."""

from collections.abc import Callable, Iterator
from threading import RLock
from typing import Any

from bide.logs import Log

_log = Log("bide.timers")


class Link:
    """A place in a row, between two others."""

    __slots__ = ("_after", "_before")

    _before: "Link"
    _after: "Link"


NOWHERE = Link()  # where the links of a timer lead that is in no row
NOWHERE._before = NOWHERE._after = NOWHERE


class Timer(Link):
    """A pending call, as `TimerWheel.schedule` returns it.

    `fn` and `args` are the function and its arguments. After the timer has fired or was cancelled, they are None and (), so
    that the timer keeps nothing alive.
    """

    __slots__ = ("_due", "_lock", "args", "fn")

    fn: Callable[..., object] | None
    args: tuple[Any, ...]

    def __init__(self, lock: RLock, due: int, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._lock = lock  # of all timers of a wheel
        self._due = due  # a tick
        self.fn = fn
        self.args = args

    def cancel(self) -> bool:
        """Cancel the timer. True: it will never run. False: it has fired, is firing, was cancelled before, or its wheel is
        closed.
        """
        self._lock.acquire()
        try:
            after = self._after
            if after is NOWHERE:
                return False
            before = self._before
            before._after = after
            after._before = before
            self._before = self._after = NOWHERE
        finally:
            self._lock.release()
        # Without the lock: what is freed here may have a __del__ that comes back to the wheel.
        self.fn = None
        self.args = ()
        return True

    def _run(self) -> None:
        """Call it. An exception is logged and goes no further."""
        fn, args = self._freed()
        try:
            fn(*args)
        except Exception:
            _log.exception("A timer's callback failed: %r.", fn)

    def _freed(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        """What is to be called, which the timer itself holds no longer."""
        fn, args = self.fn, self.args
        assert fn is not None
        self.fn = None
        self.args = ()
        return fn, args

    def __repr__(self) -> str:
        return f"<Timer {self.fn!r}>" if self.fn is not None else "<Timer, ended>"


class Row(Link):
    """Timers, first come first. Used under their lock."""

    __slots__ = ()

    def __init__(self) -> None:
        self._before = self._after = self

    def append(self, timer: Timer) -> None:
        last = self._before
        timer._before = last
        timer._after = self
        last._after = self._before = timer

    def take_first(self) -> Timer | None:
        first = self._after
        if not isinstance(first, Timer):
            return None
        second = first._after
        self._after = second
        second._before = self
        first._before = first._after = NOWHERE
        return first

    def take_over(self, other: "Row") -> None:
        """All of the other's timers, behind those that are here; in one step, however many they are. The other is done with."""
        if other:
            last = self._before
            last._after = other._after
            other._after._before = last
            other._before._after = self
            self._before = other._before
        other.done_with()

    def done_with(self) -> None:
        """An empty row is a ring of one, which would have to wait for the garbage collector."""
        self._before = self._after = NOWHERE

    def __bool__(self) -> bool:
        return self._after is not self

    def __iter__(self) -> Iterator[Timer]:
        link = self._after
        while isinstance(link, Timer):
            yield link
            link = link._after
