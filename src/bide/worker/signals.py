"""SIGTERM, SIGHUP and Ctrl-C: the first asks the worker to stop, the second ends the process at once."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import NoReturn

TOGETHER = 0.05  # seconds: one Ctrl-C may come twice, from the terminal and through a parent that passes it on
READ = 4_096  # bytes, one for each signal
_HANG_UP = getattr(signal, "SIGHUP", None)  # comes when a terminal is closed; not all systems have it


def asking() -> tuple[int, ...]:
    """The signals that ask a worker to stop. `nohup` has a process ignore SIGHUP, and then that stays so."""
    if _HANG_UP is None or signal.getsignal(_HANG_UP) == signal.SIG_IGN:
        return signal.SIGTERM, signal.SIGINT
    return signal.SIGTERM, signal.SIGINT, _HANG_UP


def end_by(number: int) -> NoReturn:
    """Die of a signal as if nobody had listened: also what a handler has forked off, which inherits who listens."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # process 1 of a container is spared by its own signals


@contextmanager
def stopped_by_signals(
    loop: asyncio.AbstractEventLoop,
    stop: Callable[[], None],
    *,
    heard: Callable[[], None] | None = None,
    at_once: Callable[[], None] | None = None,
) -> Iterator[None]:
    """While this lasts, the first signal has `stop` called in the loop, the second calls `at_once` and ends the process.

    `heard` is called at the first signal, without waiting for the loop. What comes within a moment of the first is the
    same one.

    The handlers are plain ones, not the event loop's, so that they are heard while a handler of messages blocks the loop.
    """
    asked: float | None = None
    owner = os.getpid()

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if os.getpid() != owner:
            end_by(number)
        if asked is not None:
            if time.monotonic() - asked < TOGETHER:
                return
            if at_once is not None:
                at_once()
            end_by(number)
        asked = time.monotonic()
        if heard is not None:
            heard()
        with suppress(RuntimeError):  # the loop has been closed: there is nothing to stop any more
            loop.call_soon_threadsafe(stop)

    before = {number: signal.signal(number, hear) for number in asking()}
    try:
        with _woken_by_signals(loop):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: somebody's who is not Python's


@contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """While this lasts, a signal wakes the loop, so that its handler runs at once.

    The system may give a signal to any thread, and to this one as it falls asleep: then it would sleep on.
    """
    with ExitStack() as undo:
        reader, writer = map(undo.enter_context, socket.socketpair())
        writer.setblocking(False)
        wakes = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        undo.callback(signal.set_wakeup_fd, wakes, warn_on_full_buffer=False)
        if wakes != -1:  # the loop sees to it by itself, as uvloop does
            undo.close()
        else:
            loop.add_reader(reader, reader.recv, READ)
            undo.callback(loop.remove_reader, reader)
        yield
