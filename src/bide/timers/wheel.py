"""The public wheel: schedule, cancel, and either a thread that turns the wheel or a caller who does."""

import math
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from decimal import Decimal
from time import monotonic_ns, sleep
from types import TracebackType
from typing import Self, TypeVarTuple

from bide.core.times import duration_ms
from bide.errors import BadOption, BadTime, ConfigError, Unavailable
from bide.timers.callbacks import CallbackExecutor, CallbackThreads
from bide.timers.levels import Levels
from bide.timers.timer import Timer
from bide.types import Duration

Args = TypeVarTuple("Args")

MS, SECOND = 1_000_000, 1_000_000_000  # in nanoseconds
EXACT = 4_000_000  # seconds: so far a float tells one nanosecond from the next
MOST_SLOTS = 65_536
BREATH = 0.000_05  # seconds between the steps of a long turn, so that other threads get at the lock
LONGEST_SLEEP = 3_600.0


class TimerWheel:
    """Calls functions later, inside this process. Made for very many timers, most of which are cancelled.

    Scheduling and cancelling take the same short time however many timers there are. A timer fires at the first `tick` at or
    after its time: never early, and at most a tick late. Pending timers are lost when the process ends.

    Time is in seconds since the wheel was made, from 0.0. Only `advance` moves it, until `start` (or a `with` block) begins a
    thread that follows the machine's monotonic clock.

    Callbacks run in the `executor`, or in the wheel's own daemon threads: two, and more while callbacks block, so that a
    blocked one delays others by at most a tick. Up to 256 may block at the same time. With `advance` and without an executor,
    they run in the caller. If a callback raises, the logger "bide.timers" logs it.

    `slots` is the number of slots in each level of the wheel, a power of two. Raises BadTime and BadOption. Thread-safe.
    """

    def __init__(self, tick: Duration = 0.01, slots: int = 512, executor: Executor | None = None) -> None:
        self._tick: int = _tick_ns(tick)
        self._levels: Levels = Levels(_checked_slots(slots), self._tick)
        # Reentrant, because the garbage collector may run a __del__ that cancels a timer anywhere.
        self._lock: threading.RLock = threading.RLock()
        self._sooner: threading.Event = threading.Event()
        self._executor: CallbackExecutor | None = None
        if executor is not None:
            if not isinstance(executor, Executor):
                raise BadOption(f"executor is a {type(executor).__name__}. Give a concurrent.futures.Executor, or none.")
            self._executor = CallbackExecutor(executor, self._lock, self._levels, self._sooner.set)
        self._threads: CallbackThreads | None = None
        self._now: int = 0  # nanoseconds, until the thread is there
        self._began: int = 0  # when that was 0, on the monotonic clock
        self._thread: threading.Thread | None = None
        self._closed: bool = False

    def schedule(self, delay: Duration, fn: Callable[[*Args], object], *args: *Args) -> Timer:
        """Call `fn(*args)` after the delay, which is from 0 to a hundred years.

        Raises BadTime and BadOption, and Unavailable if the wheel is closed.
        """
        if (type(delay) is float or type(delay) is int) and 0 <= delay <= EXACT:
            wait = round(delay * SECOND)
        else:
            wait = duration_ms(delay) * MS
        if not callable(fn):
            raise BadOption(f"fn is a {type(fn).__name__}. Give a function, and its arguments after it.")
        now = monotonic_ns() - self._began if self._thread else self._now
        timer = Timer(self._lock, (now + wait + self._tick - 1) // self._tick, fn, args)
        self._lock.acquire()  # a third quicker than a with block, and this is what the wheel is for
        try:
            if self._closed:
                raise Unavailable("The wheel is closed. Make a new TimerWheel to schedule more.")
            if self._levels.add(timer, now):
                self._sooner.set()
        finally:
            self._lock.release()
        return timer

    def advance(self, now: float) -> int:
        """Set the time to `now`, in seconds since the wheel was made, and fire the timers that are due. Returns how many fired.

        Timers fire in the order of their ticks; within a tick, in the order in which they were scheduled. Callbacks run in this
        call, or in the executor if there is one. Timers that a callback schedules fire in a later call, even if they are due.
        Use it in tests, and in programs with their own loop.

        Raises BadTime if time would go back, Unavailable if the wheel is closed, and ConfigError if it was started.
        """
        tick = self._go_to(now) // self._tick
        with self._lock:
            while self._levels.turn(tick):
                pass
        if self._executor:
            return self._executor.submit_all()
        fired = 0
        while timer := self._next():
            timer._run()
            fired += 1
        return fired

    def start(self) -> None:
        """Start the daemon thread that runs the wheel; a second call does nothing. Raises Unavailable on a closed wheel."""
        with self._lock:
            if self._closed:
                raise Unavailable("The wheel is closed. Make a new TimerWheel and start that.")
            if self._thread is None:
                if self._executor is None:
                    self._threads = CallbackThreads(self._lock, self._levels, self._tick / SECOND / 4)
                self._began = monotonic_ns() - self._now
                thread = self._thread = threading.Thread(target=self._drive, name="bide-timers", daemon=True)
                try:
                    thread.start()
                except BaseException:  # the machine has no more threads: start() may be called again
                    self._thread = None
                    raise

    def close(self) -> list[Timer]:
        """Stop the wheel, and return the timers that have not fired, in their order.

        Running callbacks go on; close does not wait for them. A second call returns an empty list.
        """
        with self._lock:
            self._closed = True
            left = self._levels.take_all()
            thread, threads = self._thread, self._threads
        self._sooner.set()
        if threads:
            threads.close()
        if thread and thread is not threading.current_thread():
            thread.join()
        return left

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _present(self) -> int:
        return monotonic_ns() - self._began if self._thread else self._now

    def _go_to(self, now: float) -> int:
        """The new present, in nanoseconds."""
        if type(now) not in (int, float) or not math.isfinite(now):
            raise BadTime(f"now is {now!r}. Give the seconds since the wheel was made.")
        ns = round(Decimal(repr(now)) * SECOND)  # repr, because after months a float is no longer exact to the nanosecond
        with self._lock:
            if self._closed:
                raise Unavailable("The wheel is closed. Make a new TimerWheel to go on.")
            if self._thread:
                raise ConfigError("The wheel has been started, so its thread turns it. Call advance or start, not both.")
            if ns < self._now:
                raise BadTime(f"now is {now}, but the wheel is at {self._now / SECOND} already. Time only goes forward.")
            self._now = ns
            return ns

    def _next(self) -> Timer | None:
        with self._lock:
            return self._levels.due.take_first()

    def _drive(self) -> None:
        callbacks = self._executor or self._threads
        assert callbacks is not None
        while True:
            self._sooner.clear()
            with self._lock:
                if self._closed:
                    return
                more = self._levels.turn(self._present() // self._tick)
            again = callbacks.serve()
            if more:
                sleep(BREATH)
            else:
                self._sooner.wait(min(self._idle_seconds(), again or LONGEST_SLEEP))

    def _idle_seconds(self) -> float:
        """Until the wheel has to turn again."""
        with self._lock:
            now = self._present()
            return max(0, self._levels.next_turn(now // self._tick) * self._tick - now) / SECOND


def _tick_ns(tick: Duration) -> int:
    ms = duration_ms(tick, "tick")
    if not ms:
        raise BadTime('tick is 0. Give at least "1ms": a timer fires up to a tick late, and each tick in use costs a wake-up.')
    return ms * MS


def _checked_slots(slots: int) -> int:
    if type(slots) is not int or not 2 <= slots <= MOST_SLOTS or slots & (slots - 1):
        raise BadOption(f"slots is {slots!r}. Give a power of two from 2 to {MOST_SLOTS}, such as 512.")
    return slots
