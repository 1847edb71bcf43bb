"""SIGTERM, SIGHUP and Ctrl-C: the first asks the worker to stop, the second ends the process at once."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

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


class _Listener:
    """Whom a signal asks to stop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stop: Callable[[], None],
        heard: Callable[[], None] | None,
        at_once: Callable[[], None] | None,
    ) -> None:
        self.loop = loop
        self.at_once = at_once
        self.asked_at: float | None = None
        self._stop = stop
        self._heard = heard

    def ask(self) -> None:
        self.asked_at = time.monotonic()
        if self._heard is not None:
            self._heard()
        with suppress(RuntimeError):  # the loop has been closed: there is nothing to stop any more
            self.loop.call_soon_threadsafe(self._stop)


class _SignalListener:
    """All that listen in this process: a signal has one handler, which asks all of them.

    The handler is a plain one, not the event loop's, so that it is heard while a handler of messages blocks the loop.
    """

    def __init__(self) -> None:
        self.owner: int = os.getpid()
        self._listeners: list[_Listener] = []
        self._before: dict[int, Any] = {}
        self._woken: asyncio.AbstractEventLoop | None = None
        self._undo = ExitStack()

    def add(self, listener: _Listener) -> None:
        self._listeners.append(listener)
        if len(self._listeners) == 1:
            self._before = {number: signal.signal(number, self._hear) for number in asking()}
        if self._woken is not listener.loop:
            self._undo.close()
            self._undo.enter_context(_woken_by_signals(listener.loop))
            self._woken = listener.loop

    def remove(self, listener: _Listener) -> None:
        self._listeners.remove(listener)
        if self._listeners:
            return
        self._woken = None
        self._undo.close()
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: somebody's who is not Python's

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self.owner:
            end_by(number)
        asked_at = min((each.asked_at for each in self._listeners if each.asked_at is not None), default=None)
        if asked_at is not None and time.monotonic() - asked_at >= TOGETHER:
            for each in self._listeners:
                if each.at_once is not None:
                    each.at_once()
            end_by(number)
        for each in list(self._listeners):
            if each.asked_at is None:
                each.ask()


_listening: dict[int, _SignalListener] = {}  # by process, as one that is forked off inherits what its parent has here


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
    same one. Several may listen at once, and each is asked.
    """
    listening = _listening.setdefault(os.getpid(), _SignalListener())
    listener = _Listener(loop, stop, heard, at_once)
    try:
        listening.add(listener)
        yield
    finally:
        listening.remove(listener)


@contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """While this lasts, a signal wakes the loop, so that its handler runs at once.

    The system may give a signal to any thread, and to this one as it falls asleep: then it would sleep on. A program, or its
    loop, may have itself woken in the same way: what wakes us is passed on to it.
    """
    with ExitStack() as undo:
        reader, writer = map(undo.enter_context, socket.socketpair())
        reader.setblocking(False)
        writer.setblocking(False)
        ours = writer.fileno()
        theirs = signal.set_wakeup_fd(ours, warn_on_full_buffer=False)
        undo.callback(_wake_instead, theirs, ours)

        def pass_on() -> None:
            with suppress(OSError):  # theirs is full, or closed
                told = reader.recv(READ)
                if theirs != -1:
                    os.write(theirs, told)

        loop.add_reader(reader, pass_on)
        undo.callback(loop.remove_reader, reader)
        yield


def _wake_instead(theirs: int, ours: int) -> None:
    """Have theirs woken by signals again, unless somebody has taken our place, as the loop's `add_signal_handler` does."""
    found = signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
    if found != ours:
        signal.set_wakeup_fd(found, warn_on_full_buffer=False)
