"""Renews leases from a thread of its own, so that a busy event loop or a long handler can't lose them."""

import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import TypeAlias

from bide.engines.base import MAX_BATCH, Hold
from bide.engines.registry import Source
from bide.engines.sync import Engine
from bide.errors import BideError
from bide.logs import Log

_log = Log("bide.heartbeat")
BEATS = 3  # a lease
IDLE = 1.0  # seconds that the thread stays when it holds nothing
LONGEST_PAUSE = 1.0  # seconds, after a breakdown


class Beat:
    """Deliveries whose leases are renewed together, such as those of one claim.

    `lost` is called, in the heartbeat's thread, for a delivery whose lease is not renewed any more: it can't be, or the
    delivery was dropped.
    """

    __slots__ = ("holds", "lease_ms", "lost", "next")

    def __init__(self, holds: Iterable[Hold], lease_ms: int, lost: Callable[[Hold], None]) -> None:
        self.holds: dict[Hold, None] = dict.fromkeys(holds)
        self.lease_ms: int = lease_ms
        self.lost: Callable[[Hold], None] = lost
        self.next: float = 0.0
        self.put_off(BEATS)

    def put_off(self, beats: int) -> None:
        self.next = time.monotonic() + self.lease_ms / 1000 / beats


class Heartbeat:
    """The thread begins with the first delivery and ends when there has been none for a while."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._beats: dict[Beat, None] = {}
        self._mail: SimpleQueue[tuple[Beat, Hold] | None] = SimpleQueue()  # what was dropped; None: look again now
        self._asleep_until = 0.0
        self._thread: threading.Thread | None = None
        self._failed = False  # the last try to begin it
        self._closed = False

    def add(self, beat: Beat) -> None:
        """Renew these leases until each is removed."""
        with self._lock:
            self._beats[beat] = None
        self.see_to_thread()
        if beat.next < self._asleep_until:
            self._mail.put(None)

    def see_to_thread(self) -> None:
        """Begin the thread if there is work for it. When the machine has none to give, call this again: leases last a while."""
        with self._lock:
            if self._thread is not None or self._closed or not self._beats:
                return
            thread = threading.Thread(target=self._run, name="bide-heartbeat", daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError) as error:
                failed, self._failed = self._failed, True
                refused = error if not failed else None
            else:
                self._thread, self._failed, refused = thread, False, None
        if refused is not None:
            _log.error("No thread can be started to renew leases, which is tried again and again: %s", refused)

    def remove(self, beat: Beat, hold: Hold) -> bool:
        """Renew this lease no longer. False: it was known to be lost, or removed."""
        with self._lock:
            known = hold in beat.holds
            if known:
                del beat.holds[hold]
                if not beat.holds:
                    self._beats.pop(beat, None)
            return known

    def drop(self, beat: Beat, hold: Hold) -> None:
        """A delivery was dropped without being ended: renew its lease no longer, and say so.

        The garbage collector calls this in any thread, also in one that holds a lock, so it takes none: the heartbeat's
        thread does the rest.
        """
        self._mail.put((beat, hold))

    def close(self, patience: float = 30.0) -> None:
        """Renew nothing more, and see the thread to its end, unless its engine keeps it for so many seconds."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._beats.clear()
            thread = self._thread
        self._mail.put(None)
        if thread is not None:
            thread.join(patience)

    def _run(self) -> None:
        """Renew until there is nothing to renew. After a breakdown it begins anew: handlers rely on it while they run."""
        breakdowns = 0
        while not self._over():
            engine = self._source.sync()
            try:
                engine.open()
                while (due := self._sleep()) is not None:
                    for lease_ms, part in due:
                        self._renew(engine, lease_ms, part)
                return
            except Exception as error:
                breakdowns += 1
                unforeseen = None if isinstance(error, BideError) else error
                _log.error("The heartbeat has broken down and begins anew: %s", error, exc_info=unforeseen)
            finally:
                engine.close()
            self._read(min(LONGEST_PAUSE, 0.025 * 2 ** min(breakdowns, 30)))

    def _over(self) -> bool:
        """Whether there is nothing to do any more; then the next delivery begins a new thread."""
        with self._lock:
            over = self._closed or not self._beats
            if over:
                self._thread = None
            return over

    def _sleep(self) -> "list[_Part] | None":
        """Sleep until something is due to be renewed. None: there is nothing to do any more."""
        with self._lock:
            idle = not self._beats
            self._asleep_until = min((beat.next for beat in self._beats), default=time.monotonic() + IDLE)
        self._read(self._asleep_until - time.monotonic())
        with self._lock:
            if self._closed or (idle and not self._beats):
                self._thread = None
                return None
            now = time.monotonic()
            return _parts([beat for beat in self._beats if beat.next <= now])

    def _read(self, seconds: float) -> None:
        """Sleep until there is mail, at most so long, and stop renewing what was dropped."""
        try:
            mail = self._mail.get(timeout=max(0.0, seconds))
            while True:
                if mail is not None:
                    self._dropped(*mail)
                mail = self._mail.get_nowait()
        except Empty:
            return

    def _dropped(self, beat: Beat, hold: Hold) -> None:
        _log.warning(
            "Message %s of %s was dropped without being ended: it comes back when its lease ends. "
            "Use `with delivery:`, or call ack(), retry(), release() or bury().",
            hold.id,
            hold.topic,
        )
        if self.remove(beat, hold):
            beat.lost(hold)

    def _renew(self, engine: Engine, lease_ms: int, part: "list[tuple[Beat, Hold]]") -> None:
        try:
            answers = engine.extend([hold for _, hold in part], lease_ms)
        except BideError as error:
            _log.warning("%d leases could not be renewed and will be tried again soon: %s", len(part), error)
            for beat, _ in part:
                beat.put_off(2 * BEATS)
            return
        for (beat, hold), held in zip(part, answers, strict=True):
            beat.put_off(BEATS)
            if not held and self.remove(beat, hold):  # else it was ended while its renewal was under way
                beat.lost(hold)


_Part: TypeAlias = tuple[int, list[tuple[Beat, Hold]]]


def _parts(beats: list[Beat]) -> list[_Part]:
    """What is renewed in one call each: by lease, since a call extends all by the same, and no more than a batch."""
    by_lease: dict[int, list[tuple[Beat, Hold]]] = {}
    for beat in beats:
        by_lease.setdefault(beat.lease_ms, []).extend((beat, hold) for hold in beat.holds)
    return [
        (lease_ms, pairs[first : first + MAX_BATCH])
        for lease_ms, pairs in by_lease.items()
        for first in range(0, len(pairs), MAX_BATCH)
    ]
