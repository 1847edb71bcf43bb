# Generated from ../aio/receiving.py by tools/unasync.py; change that file instead.
"""How messages come in: claim; when there is nothing, tend and sleep until something may be due."""

import contextlib
import functools
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from random import randrange

from bide.engines.base import SWEEP, Claim, End, Ended, Hold
from bide.engines.sync import Engine
from bide.errors import BideError, EngineError, OutcomeUnknown, Unavailable
from bide.ids import requests
from bide.logs import Log
from bide.queue.absence import Absence
from bide.queue.affinity import Affinity
from bide.queue.batching import Batching
from bide.queue.beats import Asked, Beat
from bide.queue.envelope import Envelope
from bide.queue.heartbeat import Heartbeat
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.opening import Opener
from bide.wakeable import Briefly, Signal

_log = Log("bide.intake")
TICK = 0.001  # seconds
NAP = 0.005  # seconds between two looks whether others have ended
SOON = 0.5  # seconds in which a caller that was cancelled gets away, though the engine does not answer
CAUTION = 60.0  # seconds: upkeep is done this often, also when none seems to be needed
TEND = 1.0  # seconds: while there is always something to claim, upkeep is done no more often


class Receiver:
    def __init__(self, engine: Engine, envelope: Envelope, settles: Batching[End, Ended], heartbeat: Heartbeat) -> None:
        self._engine = engine
        self.opener: Opener = Opener(engine, envelope, settles)
        self._heartbeat = heartbeat
        self._tended = 0.0
        self._to_tend = True
        self._new_request = requests()
        self._unanswered: set[str] = set()  # names of claims
        self._absence: Absence | None = None
        self._affinity = Affinity()
        self._claiming: dict[str, object] = {}  # by the names of claims that are under way: who waits for them
        self._closed = False
        self.fresh: dict[int, deque[Delivery]] = {}  # of each listener, by which it is: what nobody has looked at yet

    def take(
        self,
        topics: Sequence[str],
        limit: int,
        lease_ms: int,
        wait: float,
        *,
        linger: float = 0.0,
        asked: Asked | None = None,
    ) -> list[Delivery]:
        """Up to `limit` deliveries; when there is none, sleep up to `wait` seconds for the first, and then for `linger`."""
        found: list[Delivery] = []
        until = time.monotonic() + wait
        try:
            while True:
                claim, taken = self.taken(topics, limit - len(found), lease_ms, asked=asked)
                if taken and not found:
                    until = time.monotonic() + linger
                found += taken
                left = until - time.monotonic()
                if len(found) >= limit or (left <= 0 and (found or not (claim.messages or claim.more))):
                    return found
                if not claim.messages and not claim.more:
                    self._engine.wait(topics, min(left, self.pause(claim)))
        except BaseException:
            if found:  # nobody gets them
                with contextlib.suppress(BideError, TimeoutError):
                    self._try_to_return(found)
            raise

    def taken(
        self, topics: Sequence[str], limit: int, lease_ms: int, *, asked: Asked | None = None
    ) -> tuple[Claim, list[Delivery]]:
        """A claim and its deliveries. They are given back if they don't get to the caller: they would be leased to nobody.

        asked: the caller will keep them. So their leases are renewed from the start: all this may have to wait for a busy
        event loop.
        """
        self._give_back_unanswered()
        request = self._new_request()
        self._claiming[request] = self._affinity.caller()
        try:
            if not self._closed:
                claim, found = self._named(topics, limit, lease_ms, request, asked)
                if not self._was_closed():
                    return claim, found
                if request in self._claiming or request in self._unanswered:
                    self.give_back(deque(found))  # nobody can end them
            raise Unavailable("The queue is closed: make a new one.")
        finally:
            self._claiming.pop(request, None)

    def _was_closed(self) -> bool:
        """Also meanwhile."""
        return self._closed

    def _named(
        self, topics: Sequence[str], limit: int, lease_ms: int, request: str, asked: Asked | None
    ) -> tuple[Claim, list[Delivery]]:
        try:
            if asked is None:
                claim = self.claim(topics, limit, lease_ms, request)
                return claim, self.opener.open(claim)
            with self._heartbeat.asking(Asked(request, lease_ms)) as named:
                claim = self.claim(topics, limit, lease_ms, request, asked=asked)
                return claim, self.opener.open(claim, named)
        except BaseException as error:  # also what a signal handler raises, whatever that is
            self._unanswered.add(request)
            if not isinstance(error, (BideError, GeneratorExit)):  # the engine may well answer now
                with contextlib.suppress(BideError, TimeoutError):
                    self._try_to_give_back()
            raise

    def claim(
        self,
        topics: Sequence[str],
        limit: int,
        lease_ms: int,
        request: str,
        *,
        asked: Asked | None = None,
        upkeep: bool = True,
    ) -> Claim:
        """A claim, with the upkeep that it leads to: at times, and before giving up. Any topic may come first.

        upkeep: False for a caller that also claims with upkeep, at least every SWEEP seconds.
        """
        if len(topics) > 1:
            first = randrange(len(topics))  # round-robin would resonate with callers that alternate groups
            topics = [*topics[first:], *topics[:first]]
        left = upkeep
        if upkeep and time.monotonic() - self._tended > (TEND if self._to_tend else CAUTION):
            left = self._tend()
        claim = self._claim(topics, limit, lease_ms, request, asked)
        if left and self._to_tend and not claim.messages and not claim.more and self._tend():
            claim = self._claim(topics, limit, lease_ms, request, asked)
        return claim

    def pause(self, claim: Claim) -> float:
        """Seconds to sleep after a claim that left nothing: until something is due or upkeep is needed, as far as is known.

        An engine that tells when upkeep is needed sweeps by itself. Whoever keeps leases claims as often as others sweep, to
        hear the engine's time.
        """
        longest = SWEEP
        if claim.upkeep is not None and not self._heartbeat.keeps():
            longest = max(SWEEP, min(CAUTION, (claim.upkeep - claim.now) / 1000))
        if claim.wake is not None:
            return min(longest, max(0.0, claim.wake - time.monotonic()))
        if claim.next_due is None:
            return longest
        # a tick less than it seems, since the claim's now is rounded down and an alarm's time up
        return min(longest, max(0.0, (claim.next_due - claim.now) / 1000 - TICK))

    def _claim(self, topics: Sequence[str], limit: int, lease_ms: int, request: str, asked: Asked | None) -> Claim:
        if asked is None:
            claim = self._engine.claim(topics, limit, lease_ms, request=request)
        else:
            asked.until = self._heartbeat.seen + lease_ms
            began = self._heartbeat.beginning()
            claim = self._engine.claim(topics, limit, lease_ms, request=request)
            asked.until = self._heartbeat.claimed(claim.now, began, lease_ms) if claim.messages else None
        self._heartbeat.hear(claim.now)
        self._to_tend = claim.upkeep is None or claim.upkeep <= claim.now
        if self._absence is not None:
            self._absence.hear(claim.now)
        return claim

    def _give_back_unanswered(self) -> None:
        """Ask for those claims again, which gives what they hold and nothing new, and release it."""
        for request in list(self._unanswered):
            claim = self._engine.claim([], 1, 1, request=request)
            if claim.messages:
                self._engine.settle([End(each.topic, each.id, each.token, "release") for each in claim.messages])
            if not claim.more:  # else a part of the engine did not answer, and may hold some
                self._unanswered.discard(request)

    def _try_to_return(self, found: Sequence[Delivery]) -> None:
        """What does not succeed now comes back when its lease ends."""
        with Briefly(SOON):
            self.give_back(deque(found))

    def _try_to_give_back(self) -> None:
        """What does not succeed now is done with the next claim, or at the end."""
        with Briefly(SOON):
            self._give_back_unanswered()

    def _tend(self) -> bool:
        """A piece of upkeep; True when there may be something to claim now."""
        self._tended = time.monotonic()
        self.renew()
        bounds = (self._heartbeat.none_ended(), self._absence.ended_by() if self._absence is not None else None)
        done = self._engine.tend(ended_by=min((each for each in bounds if each is not None), default=None))
        return bool(done.returned or done.more)

    def notice_absence(self) -> Absence:
        """From now on, for a caller that claims again and again, and gives a pulse meanwhile."""
        self._absence = Absence()
        return self._absence

    def renew(self) -> int:
        """Renew what the heartbeat has not renewed in time, before others' leases are looked at; how many leases."""
        seen, doubtful, asked = self._heartbeat.seen, self._heartbeat.doubtful(), time.monotonic()
        answers: Sequence[bool | None]
        for part in doubtful:
            try:
                if holds := part.holds:
                    answers = self._engine.extend(holds, part.lease_ms, brief=True)
                else:
                    answers = self._engine.gates.keep(part.held, part.lease_ms)
            except OutcomeUnknown as error:  # a part of the engine may not answer; that of others must not wait for it
                if not error.answers:
                    raise
                answers = error.answers
            self._heartbeat.renewed(part, answers, seen, asked)
        return sum(len(part.leases) for part in doubtful)

    def close(self) -> None:
        """Give back what is held, and was handed to nobody; also what claims bring that are under way."""
        self._closed = True
        ours, never, until = self._affinity.caller(), Signal(), time.monotonic() + SWEEP
        while any(each != ours for each in list(self._claiming.values())) and time.monotonic() < until:
            never.clear()  # a wait that ends sets it
            never.wait(NAP)
        for fresh in list(self.fresh.values()):
            self.give_back(fresh)
        self._unanswered.update(self._claiming)  # what hangs, and what this call interrupts: that can't end before
        self._claiming.clear()
        with contextlib.suppress(BideError):
            self._give_back_unanswered()

    def give_back(self, fresh: deque[Delivery]) -> None:
        """Release what nobody has looked at. Its leases are renewed no longer, whatever becomes of that."""
        given = list(fresh)
        fresh.clear()
        for delivery in given:
            delivery.mark_ended()
        if not given:
            return
        try:
            self._engine.settle([delivery.end("release") for delivery in given])
        except EngineError as error:
            _log.warning("%d messages could not be given back and come back when their leases end: %s", len(given), error)

    def asking(self) -> AbstractContextManager[Asked]:
        """While deliveries are asked for, and until they are kept."""
        return self._heartbeat.asking()

    def keep(self, delivery: Delivery, lease_ms: int, until: int, held: set[Hold], freed: Signal) -> None:
        """Renew the lease of a delivery, which does not end before `until`, as long as that is out."""
        hold = delivery.hold

        def lost(hold: Hold) -> None:
            held.discard(hold)
            freed.set()

        def end() -> None:
            self._heartbeat.remove(beat, hold)
            lost(hold)

        beat = Beat([hold], lease_ms, until, lost)
        held.add(hold)
        delivery.on_end(end, functools.partial(self._heartbeat.drop, beat, hold))
        self._heartbeat.add(beat)

    def see_to_leases(self) -> None:
        """Where no thread could be started to renew them, try again."""
        self._heartbeat.see_to_thread()
