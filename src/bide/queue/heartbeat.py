"""Renews leases from a thread of its own, so that a busy event loop or a long handler can't lose them."""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence

from bide.engines.base import MAX_BATCH, Hold
from bide.engines.registry import Source
from bide.engines.sync import Engine
from bide.errors import BideError

_log = logging.getLogger("bide.heartbeat")
BEATS = 3  # a lease
IDLE = 1.0  # seconds that the thread stays when it holds nothing


class _Beat:
    """One delivery that is kept alive."""

    def __init__(self, hold: Hold, lease_ms: int, lost: Callable[[], None]) -> None:
        self.hold = hold
        self.lease_ms = lease_ms
        self.lost = lost
        self.next = 0.0
        self.put_off(BEATS)

    def put_off(self, beats: int) -> None:
        self.next = time.monotonic() + self.lease_ms / 1000 / beats


class Heartbeat:
    """The thread begins with the first delivery and ends when there has been none for a while."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._beats: dict[Hold, _Beat] = {}
        self._sooner = threading.Event()
        self._asleep_until = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, hold: Hold, lease_ms: int, lost: Callable[[], None]) -> None:
        """Renew this lease until `remove`. `lost` is called, in the heartbeat's thread, when it can't be."""
        beat = _Beat(hold, lease_ms, lost)
        with self._lock:
            self._beats[hold] = beat
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="bide-heartbeat", daemon=True)
                self._thread.start()
        if beat.next < self._asleep_until:
            self._sooner.set()

    def remove(self, hold: Hold) -> None:
        with self._lock:
            self._beats.pop(hold, None)

    def close(self) -> None:
        """Renew nothing more, and see the thread to its end."""
        with self._lock:
            self._closed = True
            self._beats.clear()
            thread = self._thread
        self._sooner.set()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        engine = self._source.sync()
        try:
            engine.open()
            while (due := self._sleep()) is not None:
                for beats in _batches(due):
                    self._renew(engine, beats)
        except Exception:
            with self._lock:
                self._thread = None
            _log.exception("The heartbeat has stopped; the next delivery begins a new one.")
        finally:
            engine.close()

    def _sleep(self) -> list[_Beat] | None:
        """Sleep until something is due to be renewed. None: there is nothing to do any more."""
        with self._lock:
            held = list(self._beats.values())
            self._asleep_until = min((beat.next for beat in held), default=time.monotonic() + IDLE)
        self._sooner.wait(max(0.0, self._asleep_until - time.monotonic()))
        self._sooner.clear()
        with self._lock:
            if self._closed or (not held and not self._beats):
                self._thread = None
                return None
            now = time.monotonic()
            return [beat for beat in self._beats.values() if beat.next <= now]

    def _renew(self, engine: Engine, beats: Sequence[_Beat]) -> None:
        try:
            answers = engine.extend([beat.hold for beat in beats], beats[0].lease_ms)
        except BideError as error:
            _log.warning("%d leases could not be renewed and will be tried again soon: %s", len(beats), error)
            for beat in beats:
                beat.put_off(2 * BEATS)
            return
        for beat, held in zip(beats, answers, strict=True):
            if held:
                beat.put_off(BEATS)
                continue
            with self._lock:
                known = self._beats.pop(beat.hold, None)
            if known is not None:  # else it was ended while its renewal was under way
                beat.lost()


def _batches(beats: list[_Beat]) -> list[list[_Beat]]:
    """By lease, since one call extends all by the same."""
    ordered = sorted(beats, key=lambda beat: beat.lease_ms)
    groups = (list(group) for _, group in itertools.groupby(ordered, key=lambda beat: beat.lease_ms))
    return [group[first : first + MAX_BATCH] for group in groups for first in range(0, len(group), MAX_BATCH)]
