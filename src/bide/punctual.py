"""An event loop's timers are one to two milliseconds late: it sleeps whole milliseconds, rounded up. These here are not.

Linux has timers that wake a loop like a socket does. Where there are none, the loop's own serve.
"""

import asyncio
import contextlib
import ctypes
import heapq
import math
import os
import sys
import time
import weakref
from itertools import count
from typing import Any

CLOEXEC, NONBLOCK, ABSOLUTE = 0o2000000, 0o4000, 1  # of timerfd_create and timerfd_settime
TIMES = ctypes.c_long * 4  # of an interval, which is none, and of the first time: seconds and nanoseconds


class _Alarms:
    """Of one event loop. Only that holds them, so they are gone when it is closed."""

    def __init__(self, timer: int) -> None:
        weakref.finalize(self, os.close, timer)
        self._timer = timer
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def add(self, when: float, alarm: "asyncio.Future[None]") -> None:
        heapq.heappush(self._waiting, (when, next(self._numbers), alarm))
        if self._waiting[0][2] is alarm:
            self._set()

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._timer, 8)
        now = time.monotonic()
        while self._waiting and (self._waiting[0][0] <= now or self._waiting[0][2].done()):
            _, _, alarm = heapq.heappop(self._waiting)
            if not alarm.done():
                alarm.set_result(None)
        if self._waiting:
            self._set()

    def _set(self) -> None:
        """To the first; rounded up, or it would be set again and again until the last nanosecond is over."""
        seconds, rest = divmod(math.ceil(max(self._waiting[0][0], 0.0) * 1e9) + 1, 10**9)
        if _libc.timerfd_settime(self._timer, ABSOLUTE, TIMES(0, 0, seconds, rest), None):
            raise OSError(f"a timer could not be set to {seconds} s and {rest} ns")


_known: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Alarms]]" = weakref.WeakKeyDictionary()


def alarm_at(when: float) -> "asyncio.Future[None]":
    """Done at that time of time.monotonic(), and never before. Cancel it when it is not needed any more."""
    loop = asyncio.get_running_loop()
    alarm: asyncio.Future[None] = loop.create_future()
    alarms = _alarms_of(loop)
    if alarms is not None:
        alarms.add(when, alarm)
    else:
        _wait(loop, when, alarm)
    return alarm


def _wait(loop: asyncio.AbstractEventLoop, when: float, alarm: "asyncio.Future[None]") -> None:
    if alarm.done():
        return
    left = when - time.monotonic()
    if left > 0:  # still, or again: uvloop's timers may be early
        loop.call_later(left, _wait, loop, when, alarm)
    else:
        alarm.set_result(None)


def _alarms_of(loop: asyncio.AbstractEventLoop) -> _Alarms | None:
    if loop in _known:
        return _known[loop]()
    if _libc is None or (timer := _libc.timerfd_create(time.CLOCK_MONOTONIC, CLOEXEC | NONBLOCK)) < 0:
        return None
    alarms = _Alarms(timer)
    loop.add_reader(timer, alarms.ring)
    _known[loop] = weakref.ref(alarms)
    return alarms


def _find_libc() -> Any:
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    try:
        libc = ctypes.CDLL(None)
        libc.timerfd_create, libc.timerfd_settime  # noqa: B018
    except (OSError, AttributeError):
        return None
    return libc


_libc = _find_libc()
