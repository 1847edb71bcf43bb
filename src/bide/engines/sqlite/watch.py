"""Notices, while somebody sleeps, that another process has written to the file."""

import contextlib
import threading
from collections.abc import Callable

INTERVAL = 0.04  # seconds: 25 looks a second, a few microseconds each


class Watch:
    """A thread that is made on first need, and sleeps while nobody does."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        self._wanted.set()
        if self._thread is not None:
            return
        with self._lock:
            self._begin()

    def _begin(self) -> None:
        if self._thread is None and not self._closed.is_set():
            thread = threading.Thread(target=self._run, name="bide-sqlite-watch", daemon=True)
            with contextlib.suppress(RuntimeError, MemoryError):  # tried again by the next who sleeps; no sleep is long
                thread.start()
                self._thread = thread

    def end(self) -> None:
        self._wanted.clear()

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            self._wanted.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while not self._closed.wait(INTERVAL):
            self._look()
            self._wanted.wait()
