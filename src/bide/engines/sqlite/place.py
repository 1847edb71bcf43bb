"""One file in one process: all its queues share the connections, the sleepers and the watch on other processes."""

import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from bide.aside import Aside
from bide.engines.sleepers import Sleeper, Sleepers
from bide.engines.sqlite import file
from bide.engines.sqlite.failures import translated
from bide.engines.sqlite.presence import FileGone
from bide.engines.sqlite.turn import Space, Turn
from bide.engines.sqlite.watch import Watch
from bide.engines.sqlite.writer import Writer
from bide.errors import EngineError
from bide.reentry import is_own, refuse_reentry
from bide.wakeable import Wakeable

T = TypeVar("T")
LATELY = 5.0  # seconds
NEAR = 20  # ms: whoever wakes so soon after something falls due need not be woken for it


class Place:
    def __init__(self, path: str) -> None:
        self.path = path
        self.users = 0
        self._sleepers: Sleepers[tuple[str, str]] = Sleepers()
        self._sleeping: threading.RLock = threading.RLock()
        self._until: dict[Sleeper[tuple[str, str]], tuple[Space, float]] = {}  # when each wakes by itself, monotonic
        self._lately: dict[tuple[Space, str], float] = {}  # when each topic was last seen to have a sleeper
        self._unsure = False  # whether something may have come that the next look would not notice
        self._reader: sqlite3.Connection | None = None
        self._reading: threading.RLock = threading.RLock()
        self.readers: Aside = Aside("bide-sqlite-reader")  # where event loops have things read
        self._watch = Watch(self._look)
        self.writer: Writer = Writer(path, self.wake)

    def read(self, work: Callable[[Turn], T]) -> T:
        """Look, at one moment, without waiting for a writer or making one wait."""
        refuse_reentry(self._reading)
        with self._reading:
            try:
                self.check()
                if self._reader is None:
                    self._reader = file.connect(self.path, read_only=True)
                self._reader.execute("begin")
                try:
                    return work(Turn(self._reader, self.writer.times))
                finally:
                    self._reader.execute("rollback")
            except sqlite3.Error as error:
                raise translated(error, self.path) from error

    def check(self) -> None:
        """Raise unless the file is where it was when it was opened."""
        self.writer.presence.check()

    def refuse_reentry(self) -> None:
        """Before closing: this thread may be in the middle of using the file."""
        refuse_reentry(self._reading)
        self.writer.refuse_reentry()

    def close(self) -> None:
        self._watch.close()
        self.readers.close()
        self.writer.close()
        with self._reading:
            self._shut()

    def hold(self) -> None:
        """Before a fork: let go of the file.

        SQLite takes the locks of a process's open connections for its own, also in a child, which has none of them: a
        child that opened the file again would write beside its parent, and lose what it wrote.
        """
        self.writer.hold()
        self._reading.acquire()
        self._sleeping.acquire()
        self._shut()

    def go_on(self) -> None:
        """After a fork: whoever needs the file next opens it again."""
        self._sleeping.release()
        self._reading.release()
        self.writer.go_on()

    def _shut(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    # waking

    def wake(self, topics: set[tuple[str, str]]) -> None:
        """Wake one sleeper a topic, here; other processes see for themselves that the file has changed."""
        if is_own(self._sleeping):  # a signal handler has interrupted this thread in the middle of lying down
            self._unsure = True
        elif topics:
            with self._sleeping:
                self._sleepers.wake(topics)

    def wake_all(self) -> None:
        with self._sleeping:
            self._sleepers.wake_all()

    def sleep(self, signal: Wakeable, space: Space, topics: Sequence[str], timeout: float) -> Sleeper[tuple[str, str]] | None:
        """Lie down; None when there is a wake-up already."""
        sleeper = Sleeper(signal, [(space.name, topic) for topic in topics])
        refuse_reentry(self._sleeping)
        with self._sleeping:
            if not self._sleepers.add(sleeper):
                return None
            self._until[sleeper] = space, time.monotonic() + timeout
            if not self._lately.keys() >= {(space, topic) for topic in topics}:
                self._unsure = True
            self._seen(space, sleeper)
            self._watch.begin()
        return sleeper

    def rise(self, sleeper: Sleeper[tuple[str, str]], *, disturbed: bool) -> None:
        """Get up; a sleeper that was disturbed, and will not claim, hands on the wake-up it was given."""
        with self._sleeping:
            self._sleepers.remove(sleeper)
            space, _ = self._until.pop(sleeper)
            self._seen(space, sleeper)
            if disturbed and sleeper.woken_by is not None:
                self._sleepers.wake([sleeper.woken_by])
            if not self._until:
                self._watch.end()

    def _seen(self, space: Space, sleeper: Sleeper[tuple[str, str]]) -> None:
        self._lately.update(dict.fromkeys(((space, topic) for _, topic in sleeper.topics), time.monotonic()))

    def _look(self) -> None:
        """When another process has written, wake those who would sleep past what is due first in their topics."""
        try:
            others_wrote = self.writer.others_wrote()
            with self._sleeping:
                if not others_wrote and not self._unsure:
                    return
                self._unsure = False
                watched = self._watched()
            self.wake(self.read(lambda turn: _slept_past(turn, watched)))
        except FileGone:
            self.wake_all()  # whoever sleeps on it is told by the next thing it does
        except (sqlite3.Error, EngineError):
            self._unsure = True  # the watch goes on: the next look may work

    def _watched(self) -> dict[tuple[Space, str], float]:
        """Until when each topic would be slept on; for ever, when somebody got up from it and may be about to lie down."""
        longest = sorted(self._until.items(), key=lambda each: each[1][1])
        asleep = {
            (space, topic): until
            for sleeper, (space, until) in longest
            for _, topic in sleeper.topics
            if sleeper.woken_by is None
        }
        old = time.monotonic() - LATELY
        self._lately = {topic: seen for topic, seen in self._lately.items() if topic in asleep or seen > old}
        return dict.fromkeys(self._lately, math.inf) | asleep


def _slept_past(turn: Turn, watched: dict[tuple[Space, str], float]) -> set[tuple[str, str]]:
    at = time.monotonic()
    found = set()
    for (space, topic), until in watched.items():
        row = turn.one("find_topic", {"space": space.name, "name": topic})
        first = None if row is None or row[1] else turn.first_due(row[0])
        if first is not None and first < turn.now(space, None) + (until - at) * 1000 - NEAR:
            found.add((space.name, topic))
    return found


_places: dict[str, Place] = {}
_held: list[Place] = []  # over a fork
_lock = threading.RLock()


def enter(path: str) -> Place:
    """The place of a file, opened by the first to enter."""
    refuse_reentry(_lock)
    with _lock:
        place = _places.get(path)
        if place is None:
            place = _places[path] = Place(path)
        place.users += 1
        return place


def leave(place: Place) -> None:
    """The last to leave closes it."""
    refuse_reentry(_lock)
    place.refuse_reentry()
    with _lock:
        place.users -= 1
        if place.users == 0 and _places.get(place.path) is place:
            del _places[place.path]
            place.close()


def _before_fork() -> None:
    _lock.acquire()
    for place in _places.values():
        place.hold()
        _held.append(place)


def _after_fork() -> None:
    for place in _held:
        place.go_on()
    _held.clear()
    _lock.release()


def _in_child() -> None:
    global _lock  # noqa: PLW0603  (the parent's is held)
    _lock = threading.RLock()
    for place in _held:  # what the parent took out may still be ended here
        place.writer.forget()
        place.go_on()
    _held.clear()
    _places.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
