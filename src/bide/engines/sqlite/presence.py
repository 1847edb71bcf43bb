"""Notices that a file was removed, moved or replaced while it was open here.

An open file lives on without its name: what would be written to it, nobody else would ever see.
"""

import os

from bide.errors import Unavailable

_COMPANIONS = ("-wal", "-shm")  # they are there while a connection is open, and the same ones


class FileGone(Unavailable):
    """Nothing may be done with what is still open."""


class Presence:
    """Which files the connections of a process are open on, by device and inode."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._real = os.path.realpath(path)
        self._known = _identity(path)
        self._companions: dict[str, tuple[int, int]] = {}

    def opened(self) -> None:
        """From now on the companions stay, too."""
        found = {ending: _identity(self._real + ending) for ending in _COMPANIONS}
        self._companions = {ending: known for ending, known in found.items() if known is not None}

    def closed(self) -> None:
        """The last connection takes the companions with it."""
        self._companions = {}

    def check(self) -> None:
        """Raise FileGone unless all is where it was."""
        now = _identity(self.path)
        if now is None and self._known is not None:
            raise FileGone(
                f"{self.path} was removed or moved away while this process had it open, and is not used any more: put it "
                "back, or stop what uses it and start again."
            )
        if now != self._known:
            raise FileGone(
                f"{self.path} was replaced by another file while this process had it open, and is not used any more: stop "
                "all that uses it, remove a -wal and -shm that are not of the new file, and start again."
            )
        for ending, known in self._companions.items():
            if _identity(self._real + ending) != known:
                raise FileGone(
                    f"{self.path}{ending} was removed or replaced while this process had the file open, which is not used any "
                    "more: stop all that uses it and start again, and leave that file to SQLite, as it is part of the queue."
                )


def _identity(path: str) -> tuple[int, int] | None:
    """None when there is no such file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
