"""One file as this process uses it: all queues on it share its connections, its sleepers and its watch."""

import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from bide.blocking import SerialThread
from bide.engines.callers import Sleeper, Sleepers
from bide.engines.sqlite import file
from bide.engines.sqlite.failures import translated
from bide.engines.sqlite.transaction import FileNamespace, Transaction
from bide.engines.sqlite.watch import FileGone, Watch
from bide.engines.sqlite.writer import Writer
from bide.errors import EngineError
from bide.wakeable import Wakeable, is_own, refuse_reentry

T = TypeVar("T")
LATELY = 5.0  # seconds
NEAR = 20  # ms: a sleeper that wakes so soon after a due time need not be woken for it


class Database:
    def __init__(self, path: str) -> None:
        self.path = path
        self.users = 0
        self._sleepers: Sleepers[tuple[str, str]] = Sleepers()
        self._sleeping: threading.RLock = threading.RLock()
        self._until: dict[Sleeper[tuple[str, str]], tuple[FileNamespace, float]] = {}  # when each wakes by itself, monotonic
        self._lately: dict[tuple[FileNamespace, str], float] = {}  # when each topic was last seen to have a sleeper
        self._unsure = False  # whether something may have come that the next look would not notice
        self._woken: dict[
            tuple[str, str], int
        ] = {}  # topics whose sleeper has not come back, and Writer.noticed when it was woken
        self._reader: sqlite3.Connection | None = None
        self._reading: threading.RLock = threading.RLock()
        self.readers: SerialThread = SerialThread("bide-sqlite-reader")  # where event loops have things read
        self._watch = Watch(self._look)
        self.writer: Writer = Writer(path, self.wake, self.wake_all)

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Read in one transaction, without waiting for a writer or making one wait."""
        refuse_reentry(self._reading)
        with self._reading:
            try:
                self.check()
                if self._reader is None:
                    self._reader = file.connect(self.path, read_only=True)
                self._reader.execute("begin")
                try:
                    return work(Transaction(self._reader, self.writer.times))
                finally:
                    self._reader.execute("rollback")
            except sqlite3.Error as error:
                raise translated(error, self.path) from error

    def check(self) -> None:
        """Raise unless the file is where it was when it was opened."""
        self.writer.identity.check()

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

    def before_fork(self) -> None:
        """Close the file, and take all locks.

        SQLite takes the locks of a process's open connections for its own, also in a child, which has none of them: a
        child that opened the file again would write beside its parent, and lose what it wrote.
        """
        self.writer.before_fork()
        self._reading.acquire()
        self._sleeping.acquire()
        self._shut()

    def after_fork(self) -> None:
        """Release the locks. The next call opens the file again."""
        self._sleeping.release()
        self._reading.release()
        self.writer.after_fork()

    def _shut(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    # waking

    def wake(self, topics: set[tuple[str, str]]) -> None:
        """Wake one sleeper of each topic in this process; other processes see that the file has changed."""
        if is_own(self._sleeping):  # a signal handler has interrupted this thread in sleep() or stop_sleeping()
            self._unsure = True
            self._woken.clear()
        elif topics:
            with self._sleeping:
                self._woken.update((topic, self.writer.noticed) for topic in topics if self._sleepers.has(topic))
                self._sleepers.wake(topics)

    def wake_all(self) -> None:
        if is_own(self._sleeping):  # as above
            self._unsure = True
            return
        with self._sleeping:
            self._sleepers.wake_all()

    def sleep(
        self, signal: Wakeable, namespace: FileNamespace, topics: Sequence[str], timeout: float
    ) -> Sleeper[tuple[str, str]] | None:
        """Register a sleeper; None when there is a wake-up already."""
        sleeper = Sleeper(signal, [(namespace.name, topic) for topic in topics])
        refuse_reentry(self._sleeping)
        self.writer.listened = True  # a transaction that began before wakes all when it ends
        with self._sleeping:
            if not self._sleepers.add(sleeper):
                return None
            for topic in sleeper.topics:
                self._woken.pop(topic, None)
            self._until[sleeper] = namespace, time.monotonic() + timeout
            if not self._lately.keys() >= {(namespace, topic) for topic in topics}:
                self._unsure = True
            self._seen(namespace, sleeper)
            self._watch.begin()
        return sleeper

    def stop_sleeping(self, sleeper: Sleeper[tuple[str, str]], *, cancelled: bool) -> None:
        """Remove a sleeper; if it was cancelled after it was woken, wake another one."""
        with self._sleeping:
            self._sleepers.remove(sleeper)
            namespace, _ = self._until.pop(sleeper)
            self._seen(namespace, sleeper)
            if cancelled and sleeper.woken_by is not None:
                self._sleepers.wake([sleeper.woken_by])
            if not self._until:
                self._watch.end()

    def _seen(self, namespace: FileNamespace, sleeper: Sleeper[tuple[str, str]]) -> None:
        self._lately.update(dict.fromkeys(((namespace, topic) for _, topic in sleeper.topics), time.monotonic()))

    def _look(self) -> None:
        """When another process has written, wake the sleepers that would sleep past the first due time of their topics."""
        try:
            others_wrote = self.writer.others_wrote()
            with self._sleeping:
                if not others_wrote and not self._unsure:
                    return
                self._unsure = False
                watched = self._watched()
            found = self.read(lambda tx: _slept_past(tx, watched))
            with self._sleeping:  # but who was woken since another process has written sees all that there is
                self._sleepers.wake([topic for topic in found if self._woken.get(topic) != self.writer.noticed])
        except FileGone:
            self.wake_all()  # their next call tells them
        except (sqlite3.Error, EngineError):
            self._unsure = True  # the watch goes on: the next look may work

    def _watched(self) -> dict[tuple[FileNamespace, str], float]:
        """Until when each topic has a sleeper; for ever when it had one lately, which may be about to come back."""
        longest = sorted(self._until.items(), key=lambda each: each[1][1])
        asleep = {
            (namespace, topic): until
            for sleeper, (namespace, until) in longest
            for _, topic in sleeper.topics
            if sleeper.woken_by is None
        }
        old = time.monotonic() - LATELY
        self._lately = {topic: seen for topic, seen in self._lately.items() if topic in asleep or seen > old}
        return dict.fromkeys(self._lately, math.inf) | asleep


def _slept_past(tx: Transaction, watched: dict[tuple[FileNamespace, str], float]) -> set[tuple[str, str]]:
    at = time.monotonic()
    found = set()
    for (namespace, topic), until in watched.items():
        row = tx.sql.one("find_topic", {"space": namespace.name, "name": topic})
        now = tx.times.now(namespace, None)
        first = None if row is None or row[1] else tx.topics.first_to_come(row[0], now, tx.times.wall)
        if first is not None and first < now + (until - at) * 1000 - NEAR:
            found.add((namespace.name, topic))
    return found


_databases: dict[str, Database] = {}
_held: list[Database] = []  # over a fork
_lock = threading.RLock()


def acquire(path: str) -> Database:
    """The database of a file, opened by its first user."""
    refuse_reentry(_lock)
    with _lock:
        database = _databases.get(path)
        if database is None:
            database = _databases[path] = Database(path)
        database.users += 1
        return database


def release(database: Database) -> None:
    """The last user closes it."""
    refuse_reentry(_lock)
    database.refuse_reentry()
    with _lock:
        database.users -= 1
        if database.users == 0 and _databases.get(database.path) is database:
            del _databases[database.path]
            database.close()


def _before_fork() -> None:
    _lock.acquire()
    for database in _databases.values():
        database.before_fork()
        _held.append(database)


def _after_fork() -> None:
    for database in _held:
        database.after_fork()
    _held.clear()
    _lock.release()


def _in_child() -> None:
    global _lock  # noqa: PLW0603  (the parent's is held)
    _lock = threading.RLock()
    for database in _held:  # a delivery that the parent received may still be ended here
        database.writer.forget()
        database.after_fork()
    _held.clear()
    _databases.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
