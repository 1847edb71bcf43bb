"""Renews leases from a thread of its own, so that a busy event loop or a long handler can't lose them."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from bide.engines.base import Hold
from bide.engines.registry import Source
from bide.engines.sync import Engine
from bide.errors import BideError, OutcomeUnknown
from bide.logs import Log
from bide.queue.leases import BEATS, Asked, Beat, ClaimBeat, ClaimBegan, Lease, Part, Places, parts

_log = Log("bide.heartbeat")
IDLE = 1.0  # seconds that the thread stays when it holds nothing
LONGEST_PAUSE = 1.0  # seconds, after a breakdown
STEP = 1.0  # seconds by which the engine's clock may run ahead of this machine's without having been set forward


class Heartbeat:
    """The thread begins with the first delivery, or named claim, and ends when there has been none for a while.

    It also knows what the engine's clock may do to the leases: `seen` is the engine's time, when it was told last.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._beats: dict[Beat, None] = {}
        self._mail: SimpleQueue[tuple[Beat, Lease] | None] = SimpleQueue()  # what was dropped; None: look again now
        self._asleep_until = 0.0
        self._thread: threading.Thread | None = None
        self._failed = False  # the last try to begin it
        self._unrenewed: set[Beat | Asked] = set()  # what could not be renewed when it was due last
        self._closed = False
        self._asked: dict[Asked, None] = {}
        self.seen: int = 0
        self._heard = 0.0  # when that was, monotonic
        self.on_beat: Callable[[], None] | None = None  # whoever wants to know that it goes

    def hear(self, now: int) -> None:
        """The engine has told its time."""
        self.seen, self._heard = max(self.seen, now), time.monotonic()

    def beginning(self) -> ClaimBegan:
        """Of a claim, to be given to `claimed`."""
        return ClaimBegan(time.monotonic(), self.seen, self._heard)

    def claimed(self, now: int, began: ClaimBegan, lease_ms: int) -> int:
        """When its leases end at the earliest: of a claim that began then, and was answered with the engine's time.

        It was made since it began, unless the engine's clock was set forward: then it may have been made before that. What
        others heard meanwhile says nothing of it.
        """
        answered = time.monotonic()
        made = now - math.ceil((answered - began.at) * 1000)
        if began.seen and now - began.seen > (answered - began.heard + STEP) * 1000:
            made = began.seen
        return max(made, began.seen) + lease_ms

    @contextmanager
    def asking(self, asked: Asked | None = None) -> Iterator[Asked]:
        """While deliveries are asked for, and until they are added. What a named claim brings is renewed meanwhile."""
        asked = asked or Asked()
        self._asked[asked] = None
        if asked.request is not None:
            asked.put_off(BEATS)
            self._see_to(asked)
        try:
            yield asked
        finally:
            self._asked.pop(asked, None)

    def none_ended(self) -> int | None:
        """The last instant of the engine's time at which surely none of the leases has ended that are kept here."""
        ends = [beat.until for beat in list(self._beats) if not isinstance(beat, Places)]
        ends += [each.until for each in list(self._asked) if each.until is not None]
        return min(ends) - 1 if ends else None

    def doubtful(self) -> list[Part]:
        """Leases that were not renewed in time, as far as is known here, and may have ended.

        As after a pause, after a step of the engine's clock, and while the thread gets no connection.
        """
        with self._lock:
            return parts([beat for beat in self._beats if beat.until <= self.seen or beat.late])

    def renewed(self, part: Part, answers: Sequence[bool | None], seen: int, asked: float) -> None:
        """The engine has answered a renewal that was asked for when its time was `seen`, or later, and a monotonic clock showed
        `asked`. None: it does not know.
        """
        unknown = {beat for (beat, _), held in zip(part.leases, answers, strict=True) if held is None}
        for (beat, hold), held in zip(part.leases, answers, strict=True):
            if beat in unknown:
                beat.put_off(2 * BEATS)
            else:
                beat.renewed(seen + beat.lease_ms)
                if isinstance(beat, Places):
                    beat.renewed_since(asked)
            if beat.extended_beyond(hold, asked + part.lease_ms / 1000):  # meanwhile: this has ended it sooner
                beat.next = time.monotonic()
            if held is False and self.remove(beat, hold):  # else it was ended while its renewal was under way
                beat.lost(hold)

    def add(self, beat: Beat) -> None:
        """Renew these leases until each is removed."""
        with self._lock:
            self._beats[beat] = None
        self._see_to(beat)

    def extended(self, beat: Beat, hold: Hold, lease_ms: int) -> int:
        """Its user extends a lease, which is to last so many milliseconds from now, or as long as it does without that: for how
        many the engine is to extend it. Tell this first, so that no renewal ends it sooner.
        """
        lease_ms = max(lease_ms, beat.lease_ms)
        with self._lock:
            beat.extend(hold, time.monotonic() + lease_ms / 1000)
        return lease_ms

    def keeps(self) -> bool:
        """Whether there are leases that it renews."""
        return bool(self._kept())

    def _see_to(self, new: Beat | Asked) -> None:
        self.see_to_thread()
        if new.next < self._asleep_until:
            self._mail.put(None)

    def _kept(self) -> list[Beat | Asked]:
        return [*self._beats, *(each for each in list(self._asked) if each.request is not None)]

    def see_to_thread(self) -> None:
        """Begin the thread if there is work for it. When the machine has none to give, call this again: leases last a while."""
        with self._lock:
            if self._thread is not None or self._closed or not self._kept():
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

    def remove(self, beat: Beat, hold: Lease) -> bool:
        """Renew this lease no longer. False: it was known to be lost, or removed."""
        with self._lock:
            known = hold in beat.holds
            if known:
                del beat.holds[hold]
                if not beat.holds:
                    self._beats.pop(beat, None)
            return known

    def remove_all(self, kept: Iterable[tuple[Beat, Lease]]) -> None:
        with self._lock:
            for beat, hold in kept:
                beat.holds.pop(hold, None)
                if not beat.holds:
                    self._beats.pop(beat, None)

    def end(self, beat: ClaimBeat, places: Sequence[int]) -> None:
        with self._lock:
            if beat.end(places):
                self._beats.pop(beat, None)

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
            self._asked.clear()
            thread = self._thread
        self._mail.put(None)
        if thread is not None:
            thread.join(patience)

    def _run(self) -> None:
        """Renew until there is nothing to renew. After a breakdown it begins anew: handlers rely on it while they run."""
        breakdowns = 0
        while not self._over():
            engine, opened = self._source.sync(), False
            try:
                while (due := self._sleep()) is not None:
                    if due and not opened:  # most deliveries end before
                        opened = True
                        engine.open()
                    for each in due:
                        if isinstance(each, Asked):
                            self._renew_unanswered(engine, each)
                        else:
                            self._renew(engine, each)
                return
            except BaseException as error:  # SystemExit too: without this thread all leases would be lost
                breakdowns += 1
                unforeseen = None if isinstance(error, BideError) else error
                _log.error("The heartbeat has broken down and begins anew: %s", error, exc_info=unforeseen)
            finally:
                if opened:
                    engine.close()
            self._read(min(LONGEST_PAUSE, 0.025 * 2 ** min(breakdowns, 30)))

    def _over(self) -> bool:
        """Whether there is nothing to do any more; then the next delivery begins a new thread."""
        with self._lock:
            over = self._closed or not self._kept()
            if over:
                self._thread = None
            return over

    def _sleep(self) -> list[Part | Asked] | None:
        """Sleep until something is due to be renewed. None: there is nothing to do any more."""
        with self._lock:
            kept = self._kept()
            self._asleep_until = min((each.next for each in kept), default=time.monotonic() + IDLE)
        self._read(self._asleep_until - time.monotonic())
        if self.on_beat is not None:
            self.on_beat()
        with self._lock:
            idle, kept = not kept, self._kept()
            if self._closed or (idle and not kept):
                self._thread = None
                return None
            now = time.monotonic()
            due = [each for each in kept if each.next <= now]
            unanswered = [each for each in due if isinstance(each, Asked)]
            return [*parts([each for each in due if isinstance(each, Beat)]), *unanswered]

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

    def _dropped(self, beat: Beat, hold: Lease) -> None:
        if isinstance(hold, Hold):
            _log.warning(
                "Message %s of %s was dropped without being ended: it comes back when its lease ends. "
                "Use `with delivery:`, or call ack(), retry(), release() or bury().",
                hold.id,
                hold.topic,
            )
        if self.remove(beat, hold):
            beat.lost(hold)

    def _renew(self, engine: Engine, part: Part) -> None:
        seen, asked = self.seen, time.monotonic()
        answers: Sequence[bool | None]
        failed: BideError | None = None
        try:
            if holds := part.holds:
                answers = engine.extend(holds, part.lease_ms, brief=True)
            else:
                answers = engine.gates.keep(part.held, part.lease_ms, brief=True)
        except BideError as error:
            failed, answers = error, (isinstance(error, OutcomeUnknown) and error.answers) or [None] * len(part.leases)
        unknown = {beat for (beat, _), held in zip(part.leases, answers, strict=True) if held is None}
        self._tell({beat for beat, _ in part.leases} - unknown, unknown, failed)
        self.renewed(part, answers, seen, asked)

    def _renew_unanswered(self, engine: Engine, asked: Asked) -> None:
        """The engine tells what the claim has brought, if it was made by now, and takes nothing new."""
        try:
            found = engine.claim([], 1, asked.lease_ms, request=asked.request)
            if found.messages:
                engine.extend([Hold(each.topic, each.id, each.token) for each in found.messages], asked.lease_ms, brief=True)
        except BideError as error:
            self._tell(set(), {asked}, error)
            asked.put_off(2 * BEATS)
        else:
            self._tell({asked}, set(), None)
            asked.put_off(BEATS)

    def _tell(self, renewed: Set[Beat | Asked], failed: Set[Beat | Asked], error: BideError | None) -> None:
        """Log when leases can't be renewed, and when all can be again; not each try."""
        before, self._unrenewed = self._unrenewed, ((self._unrenewed - renewed) | failed).intersection(self._kept())
        if failed and not before:
            _log.warning("Leases could not be renewed, which is tried again and again: %s", error)
        elif before & renewed and not self._unrenewed:
            _log.warning("All leases are renewed again.")
