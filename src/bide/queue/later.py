"""Sends in the background: a bounded buffer in this process, and a thread of its own that sends what is in it."""

import atexit
import contextlib
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakSet

from msgspec.structs import replace

from bide.core.formats import plural
from bide.engines.base import MAX_BATCH, OPERATION_MS, NewMessage
from bide.engines.registry import Source
from bide.engines.sync import Engine
from bide.errors import BadMessage, BideError, ConfirmTimeout, OutcomeUnknown, QueueFull, Unavailable, Unsupported
from bide.logs import Log
from bide.queue.sync.parts import Rooms
from bide.types import Flushed
from bide.wakeable import refuse_reentry

_log = Log("bide.later")
MOST = 10_000  # messages that may wait
MOST_BYTES = 64 * 2**20  # of their bodies
LINGER = 5.0  # seconds that the thread stays with nothing to do
LEAST = 0.1  # seconds that its end gets
PATIENCE = 5.0  # seconds that a queue's close, and the end of the process, wait for it
AGAIN = 60.0  # seconds between two warnings of sends that were not confirmed


class Entry:
    __slots__ = ("new", "taken", "unsure")

    def __init__(self, new: NewMessage, taken: int) -> None:
        self.new: NewMessage = new
        self.taken: int = taken  # ms
        self.unsure: float | None = None  # since when it may have been sent, monotonic


class Done(NamedTuple):
    """What one call did."""

    sent: int = 0
    back: Sequence[Entry] = ()  # to be sent first
    lost: int = 0
    error: BideError | None = None
    last: Sequence[Entry] = ()  # to be sent when all others have been

    def __add__(self, other: "Done") -> "Done":  # type: ignore[override]  # no sum of tuples is wanted
        back, last = [*self.back, *other.back], [*self.last, *other.last]
        return Done(self.sent + other.sent, back, self.lost + other.lost, self.error or other.error, last)


def lost(each: Entry, why: str) -> Done:
    _log.error("A message for %s is lost: %s", each.new.topic, why)
    return Done(lost=1)


def unknown(batch: Sequence[Entry], error: OutcomeUnknown, *, named: bool) -> Done:
    """Sent again under the names that the engine knows them by, so that it takes none twice. Unless they are `named`, it knows
    none: what may have been sent is not sent again.
    """
    sent, back, left = 0, [], Done()
    for place, each in enumerate(batch):
        if place < len(error.answers) and error.answers[place] is not None:
            sent += 1
            continue
        if not named:
            left += lost(each, f"it may have been sent, and would be sent twice: {error}")
            continue
        each.unsure = each.unsure or time.monotonic()
        if place < len(error.operations) and error.operations[place]:
            each.new = replace(each.new, operation=error.operations[place])
        back.append(each)
    return left + Done(sent, back, error=error if back else None)


def late(each: Entry, now: int) -> int:
    """How long ago a message fell due."""
    due = each.taken + each.new.delay if each.new.at is None else max(each.taken, each.new.at)
    return max(0, now - due)


def aged(each: Entry, now: int) -> NewMessage:
    """The message as it is now: its delay and its life count from when it was taken."""
    new = each.new
    life = None if new.expires_in is None else new.expires_in - late(each, now)
    return replace(new, delay=max(0, new.delay - max(0, now - each.taken)), expires_in=life)


SOON, LATEST = 0.1, 5.0  # seconds until the next try while the engine fails
SURE = 0.9 * OPERATION_MS / 1000  # seconds in which a send may be repeated: then the engine may have forgotten the first


class Later:
    """Of a queue and its twin. The thread begins with the first message, and ends when there has been none for a while."""

    def __init__(self, source: Source, now_ms: Callable[[], int], most: Mapping[str, int]) -> None:
        """`most`: how many messages may be pending, by topic."""
        self._source = source
        self._most = most
        self._now_ms = now_ms
        self.begin()

    def begin(self) -> None:
        """As new; also in a forked child: what its parent took is the parent's to send."""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[Entry] = deque()
        self._under_way: Sequence[Entry] = ()
        self._bytes = 0
        self._sent = 0
        self._lost = 0
        self._unconfirmed = 0
        self._warned = -math.inf
        self._thread: threading.Thread | None = None
        self._flushing = 0  # callers who wait for it
        self._leaves = False  # the thread is not to linger

    @property
    def waits(self) -> bool:
        """Whether there is anything to flush."""
        return self._count() > 0

    @property
    def runs(self) -> bool:
        """Whether there is a thread to be ended."""
        return self._thread is not None

    def put(self, new: NewMessage) -> None:
        """Take a message. Raises QueueFull when too many wait, and Unavailable when there is no thread to send it."""
        refuse_reentry(self._lock)
        with self._lock:
            if self._count() >= MOST or self._bytes + len(new.body) > MOST_BYTES:
                raise QueueFull(
                    f"{plural(self._count(), 'message')} of this process wait to be sent, which is all that later() takes: the "
                    "engine is slow or can't be reached. Send it with send(), or try again later."
                )
            if self._thread is None:
                self._begin_thread()
            self._waiting.append(Entry(new, self._now_ms()))
            self._bytes += len(new.body)
            self._changed.notify_all()

    def flush(self, seconds: float) -> Flushed:
        """Wait until nothing waits, at most so long."""
        refuse_reentry(self._lock)
        with self._lock:
            self._flushing += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: not self._count(), seconds)
            finally:
                self._flushing -= 1
            return Flushed(self._count(), self._sent, self._lost)

    def close(self, seconds: float = PATIENCE) -> None:
        """Have all sent, give up what could not be sent in so long, and let the thread end."""
        until = time.monotonic() + seconds
        self.flush(seconds)
        with self._lock:
            thread, left = self._thread, self._count()
            unsure = len(self._under_way) + sum(each.unsure is not None for each in self._waiting)
            self._waiting.clear()
            self._under_way = ()
            self._bytes = 0
            self._lost += left
            self._leaves = True
            self._changed.notify_all()
        if left:
            _log.error(
                "%s could not be sent in time: lost, but for %d that may have been sent", plural(left, "message"), unsure
            )
        if thread is not None:
            thread.join(max(LEAST, until - time.monotonic()))

    def _count(self) -> int:
        return len(self._waiting) + len(self._under_way)

    def _begin_thread(self) -> None:
        _known(self)
        thread = threading.Thread(target=self._run, name="bide-later", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            raise Unavailable(f"No thread can be started to send in the background: {error}. Use send().") from error
        self._thread, self._leaves = thread, False
        _busy.add(self)

    def _run(self) -> None:
        engine, pause = self._source.sync(), SOON
        rooms = Rooms(engine, self._most)
        try:
            while (batch := self._next()) is not None:
                done = self._send(engine, rooms, batch)
                self._finish(batch, done)
                pause = self._paused(done.error, pause)
        finally:
            with self._lock:
                self._waiting.extendleft(reversed(self._under_way))  # after a fault: the next thread sends it
                self._under_way = ()
                self._leave()
            with contextlib.suppress(BideError):
                engine.close()

    def _leave(self) -> None:
        """Whoever comes from now on begins another thread."""
        if self._thread is threading.current_thread():
            self._thread = None
            _busy.discard(self)

    def _next(self) -> Sequence[Entry] | None:
        """What goes into the next call. None: there has been nothing for a while."""
        with self._lock:
            self._changed.wait_for(lambda: self._waiting or self._leaves, LINGER)
            if not self._waiting:
                self._leave()
                return None
            self._under_way = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
            return self._under_way

    def _finish(self, batch: Sequence[Entry], done: Done) -> None:
        with self._lock:
            if self._under_way is not batch:  # it was given up meanwhile
                return
            self._waiting.extendleft(reversed(done.back))
            self._waiting.extend(done.last)
            self._under_way = ()
            self._bytes += sum(len(each.new.body) for each in [*done.back, *done.last]) - sum(
                len(each.new.body) for each in batch
            )
            self._sent += done.sent
            self._lost += done.lost
            self._changed.notify_all()

    def _paused(self, error: BideError | None, pause: float) -> float:
        """Wait after a call that failed; the pause after the next one."""
        if error is None:
            return SOON
        if pause == SOON:
            _log.warning("Messages wait to be sent, which is tried again and again: %s", error)
        with self._lock:
            self._changed.wait_for(lambda: not self._waiting, SOON)  # they were given up
            self._changed.wait_for(lambda: not self._waiting or self._flushing, pause - SOON)
        return min(2 * pause, LATEST)

    def _send(self, engine: Engine, rooms: Rooms, batch: Sequence[Entry]) -> Done:
        ready: list[Entry] = []
        dropped = Done()
        for each in batch:
            why = self._hopeless(each)
            if why is None:
                ready.append(each)
            else:
                dropped += lost(each, why)
        try:
            engine.open()
            if not self._most.keys().isdisjoint(each.new.topic for each in ready):
                kept, ready = self._without_room(rooms, ready)
                dropped += kept
            if not ready:
                return dropped
            engine.put([aged(each, self._now_ms()) for each in ready])
        except ConfirmTimeout as error:
            return dropped + self._not_confirmed(len(ready), error)
        except OutcomeUnknown as error:
            return dropped + unknown(ready, error, named=engine.capabilities.idempotent)
        except (BadMessage, Unsupported) as error:
            return dropped + self._refused(engine, rooms, ready, error)
        except BideError as error:
            return dropped + Done(back=ready, error=error)
        except Exception as error:  # of a hook, or a fault: one message must not keep the others
            return dropped + self._refused(engine, rooms, ready, error)
        return dropped + Done(len(ready))

    def _not_confirmed(self, count: int, error: ConfirmTimeout) -> Done:
        """They were sent. To send them again would hold up fresh ones: a failover may lose what was not confirmed."""
        self._unconfirmed += sum(each is None for each in error.answers or [None] * count)
        if time.monotonic() - self._warned >= AGAIN:
            self._warned = time.monotonic()
            _log.warning("%s sent but not confirmed, so far: %s", plural(self._unconfirmed, "message"), error)
        return Done(count)

    def _without_room(self, rooms: Rooms, ready: list[Entry]) -> tuple[Done, list[Entry]]:
        """What has no room in its topic goes last; the rest is to be sent."""
        done, rest = Done(), []
        for each in ready:
            if each.new.topic in self._most:
                try:
                    rooms.take(each.new.topic, 1)
                except QueueFull as error:
                    done += Done(error=error, last=[each])
                    continue
                rooms.done(each.new.topic, 1, 1)  # or may be, soon
            rest.append(each)
        return done, rest

    def _hopeless(self, each: Entry) -> str | None:
        """Why a message is not to be sent any more."""
        if each.unsure is not None and time.monotonic() - each.unsure > SURE:
            return "it may have been sent over nine minutes ago, and would be sent twice"
        life = each.new.expires_in
        if life is not None and late(each, self._now_ms()) >= life:
            return "it has expired"
        return None

    def _refused(self, engine: Engine, rooms: Rooms, batch: Sequence[Entry], error: Exception) -> Done:
        """One by one, as one of them may be why."""
        if len(batch) == 1:
            return lost(batch[0], str(error))
        done = Done()
        for place, each in enumerate(batch):
            done += self._send(engine, rooms, [each])
            if done.error is not None:
                return done + Done(back=batch[place + 1 :])
        return done


_all: WeakSet[Later] = WeakSet()
_busy: set[Later] = set()  # those with a thread
_prepared: list[bool] = []


def _known(later: Later) -> None:
    """See to it that it has its say at the end of the process, and after a fork."""
    _all.add(later)
    if not _prepared:
        _prepared.append(True)
        atexit.register(_end)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forked)


def _end() -> None:
    until = time.monotonic() + PATIENCE
    for each in list(_busy):
        each.close(max(0.0, until - time.monotonic()))


def _forked() -> None:
    _busy.clear()
    for each in list(_all):
        each.begin()
