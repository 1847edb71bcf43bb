"""Notices what other processes do to a file: they write to it while somebody here sleeps, or remove or replace it.

An open file lives on without its name: nobody else would ever see what is written to it.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable

from bide.errors import Unavailable

INTERVAL = 0.04  # seconds: 25 looks a second, a few microseconds each
TICK = 3_000_000_000  # nanoseconds: two changes of a folder that are further apart have two times, on any filesystem
TRUSTED = 1.0  # seconds: so long a folder's times are enough, as a mount on a file changes none, nor do some filesystems
_COMPANIONS = ("-wal", "-shm")  # they are there while a connection is open, and the same ones


class FileGone(Unavailable):
    """Nothing may be done with what is still open."""


class FileIdentity:
    """Which files the connections of a process are open on, by device and inode.

    Whoever removes, moves or replaces a file changes its folder, of which one of two times tells: FAT and exFAT of some
    years ago change `mtime` only, and who sets that changes `ctime`. So for a second after all files were found there, one
    look at a folder that has not changed is enough. The root of a FAT filesystem has no times.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._real = os.path.realpath(path)
        self._folder = os.path.dirname(path) if _is_plain(path, self._real) else None  # else a link in another one leads here
        self._quiet: tuple[int, ...] | None = None  # the folder as all was there, if its next change is sure to show
        self._until = 0.0  # when all is looked at anyway
        self._own: dict[str, tuple[int, int] | None] = {path: _identity(path)}
        self._files: dict[str, tuple[int, int] | None] = self._own

    def opened(self) -> None:
        """From now on the companions stay, too."""
        found = {self._real + ending: _identity(self._real + ending) for ending in _COMPANIONS}
        self._files = self._own | {path: known for path, known in found.items() if known is not None}
        self._quiet = None

    def closed(self) -> None:
        """The last connection takes the companions with it."""
        self._files = self._own
        self._quiet = None

    def check(self) -> None:
        """Raise FileGone unless all is where it was. It is called twice for each transaction."""
        folder = None if self._folder is None else _changed(self._folder)
        if folder is None or folder != self._quiet or time.monotonic() > self._until:
            until = time.monotonic() + TRUSTED
            self._check_each()
            self._quiet, self._until = _settled(folder), until

    def _check_each(self) -> None:
        files = self._files
        for path, known in files.items():
            try:
                found = os.stat(path)
                same = (found.st_dev, found.st_ino) == known
            except OSError:
                same = known is None
            if not same:
                if files is self._files:
                    raise FileGone(self._told(path))
                self._check_each()  # meanwhile a fork has closed all, which may take the companions along
                return

    def _told(self, path: str) -> str:
        if path != self.path:
            return (
                f"{self.path}{path.removeprefix(self._real)} was removed or replaced while this process had the file open, "
                "which is not used any more: stop all that uses it and start again, and leave that file to SQLite, as it is "
                "part of the queue."
            )
        if _identity(path) is None:
            return (
                f"{path} was removed or moved away while this process had it open, and is not used any more: put it "
                "back, or stop what uses it and start again."
            )
        return (
            f"{path} was replaced by another file while this process had it open, and is not used any more: stop "
            "all that uses it, remove a -wal and -shm that are not of the new file, and start again."
        )


def _identity(path: str) -> tuple[int, int] | None:
    """None when there is no such file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _changed(folder: str) -> tuple[int, ...] | None:
    """Which folder it is, by device and inode, and when something in it was made, removed or renamed last, by both times."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns, found.st_mtime_ns


def _settled(folder: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The folder, if it has times, and its next change is sure to have another one."""
    return folder if folder is not None and folder[2] > 0 and time.time_ns() - max(folder[2:]) > TICK else None


def _is_plain(path: str, real: str) -> bool:
    """Whether the file itself is in the folder that its path names, and no link to it."""
    return os.path.realpath(os.path.dirname(path)) == os.path.dirname(real) and not os.path.islink(path)


class Watch:
    """A thread that looks at the file while somebody sleeps. It is started on first use."""

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
        if self._closed.is_set():  # close() may be at work, and waits for a thread that must not wait any more
            self._wanted.set()

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
