# Generated from ../aio/relay.py by tools/unasync.py; change that file instead.
"""A relay of an outbox: one is at work at a time, and hands what is committed to the queue's engine until it is stopped."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Sequence

from bide.engines.base import MAX_BATCH, SWEEP, End, Hold
from bide.engines.gates import Entry, Held
from bide.engines.sync import Engine
from bide.errors import BideError, QueueFull, Unavailable
from bide.logs import Log
from bide.queue import outbox
from bide.queue.event_loops import Affinity
from bide.queue.relay import LATER, SOON, PutOff, put_aside
from bide.queue.sync.handover import Handover, Name
from bide.queue.sync.outbox_messages import LEASE, Turns
from bide.wakeable import Briefly, Signal

LEAD = 5_000  # ms after which another relay takes the place of a dead one
RENEWED = 1.0  # seconds: while it works, its lead is renewed this often
POLL = 1.0  # seconds between two looks whether another relay has ended its work
AT_ONCE = 100  # messages; MAX_BATCH behind many that are held back, if these have at most
LIGHT = 4_096  # bytes each
LOOKS = 1_500  # ms in which what is behind many that are held back is found
ENOUGH = 60_000  # ms without any other, after which a call for what there is ends
ROOM = 5.0  # seconds in which such a call finds out whether there is room for anything
GIVING = 1.0  # seconds in which a relay that ends gives back what it has put off
NAP = 0.005  # seconds between two looks whether the relays of a queue have ended


class Leader:
    """A place at a gate of the outbox's own database. Who works for longer than its lead is still kept from sending anything
    twice by the leases of the messages."""

    def __init__(self, store: Engine) -> None:
        self._store = store
        self._holder = os.urandom(9).hex()
        self._token: str | None = None
        self._asked = 0.0

    def taken(self) -> float:
        """0.0 once this relay is the one at work; else in how many seconds to ask again."""
        now = time.monotonic()
        if self._token is not None and now < self._asked + RENEWED:
            return 0.0
        [entered] = self._store.gates.enter([Entry(outbox.TOPIC, self._holder, LEAD)])
        self._token, self._asked = entered.token, now
        if entered.token is not None:
            return 0.0
        return POLL if entered.free_in is None else min(POLL, entered.free_in / 1000)

    def leave(self) -> None:
        """Let others work. If that can't be told, they take its place when its time is over."""
        if self._token is not None:
            try:
                with contextlib.suppress(BideError):
                    self._store.gates.leave([Held(outbox.TOPIC, self._holder, self._token)])
            finally:
                self._token = None


_log = Log("bide.outbox")


class Relays:
    """Those of one queue that are at work: it may be asked for what is there while it relays what comes."""

    def __init__(self) -> None:
        self._all: dict[Relay, object] = {}  # and the task or thread that each of them is in
        self._closed = False

    def begin(self, relay: "Relay") -> None:
        self._all[relay] = Affinity.caller()
        if self._closed:
            relay.stop()

    def end(self, relay: "Relay") -> None:
        self._all.pop(relay, None)

    def close(self) -> None:
        """Stop them, and all that begin from now on. Raises in the midst of one of them, which could not end meanwhile."""
        self._closed = True
        for relay in list(self._all):
            relay.stop()
        own = Affinity.caller()
        if any(caller == own and not relay.waits for relay, caller in list(self._all.items())):
            raise Unavailable(
                "The queue can't be closed by a hook or a signal handler in the midst of its own relay(), which ends soon now: "
                "close the queue after it."
            )

    def ended(self, until: float) -> None:
        """Until they have seen through what they have claimed, or so long. They give back what they have put off."""
        while any(not each.waits for each in list(self._all)) and time.monotonic() < until:
            Signal().wait(NAP)
        for each in list(self._all):
            if each.waits:  # until the engine is closed, beneath which it could give back nothing
                each.give_back()


class Relay:
    """One call that hands on, and all that it knows. Any number of them may run: one is at work at a time."""

    def __init__(
        self,
        store: Engine,
        target: Engine,
        name: Name,
        tend: Callable[[], bool],
        turns: Turns,
        relays: Relays,
    ) -> None:
        """`tend`: looks after the outbox, and tells whether
        there is more to do."""
        self._store = store
        self._target = target
        self._tend = tend
        self._turns = turns
        self._relays = relays
        self._handover = Handover(target, name)
        self._lead = Leader(store)
        self._stops = False
        self._end = Signal()
        self.waits: bool = False  # for what is committed next: nothing is on its way
        self._pause = SOON
        self._patience = 0.0  # seconds until something may be due that nobody is told of
        self._upkeep_at = 0.0  # also while each claim finds something: what a dead relay had taken may be in its way
        self._at_once = AT_ONCE
        self._put_off = PutOff()
        self._again_at = -math.inf  # by time.monotonic(): until when all is free again that was released for a moment
        self._total = 0  # messages that it is done with
        self._gave_way = 0.0  # by time.monotonic(): when it last left that to others

    def run(self) -> int:
        """Hand on what comes, until this is stopped or its queue is closed; how many messages that were."""
        try:
            self._relays.begin(self)
            while not self._stops:
                try:
                    if not self._has_turn():
                        continue
                    if self._hand_on():
                        self._pause = SOON
                    else:
                        self._lead.leave()
                        self._wait()
                except BideError as error:  # also one of rights, which may be granted
                    self._lead.leave()
                    self._try_later(error)
        finally:
            self._leave()
        return self._total

    def hand_on_all(self) -> int:
        """Hand on what there is; how many messages that were. Raises at the end, if some had to be put off.

        None, if another relay is at work all the time. It ends early if its queue is closed.
        """
        away, give_up = self._handover.away, math.inf
        try:
            self._relays.begin(self)
            until = time.monotonic() + LEAD / 1000 + POLL
            while not self._has_turn():
                if self._stops or time.monotonic() > until:
                    return 0
            until = time.monotonic() + ENOUGH / 1000  # what is held back comes again
            while not (self._stops or self._lead.taken()):
                some = self._hand_on()
                if some:
                    give_up, until = math.inf, time.monotonic() + ENOUGH / 1000
                elif away.lacks_room:
                    give_up = min(give_up, time.monotonic() + ROOM)
                soon = self._put_off.soon
                if some == 0 and (soon <= give_up < math.inf or soon <= self._again_at):  # there may be room for what is small
                    self._pause_for(max(1, round(1000 * (soon - time.monotonic()))))
                elif some == 0 or time.monotonic() > until:
                    break
        finally:
            self._leave()
        if away.left is not None:
            raise away.left
        return self._total

    def stop(self) -> None:
        """Have it end when what it has claimed is handed on."""
        self._stops = True
        self._end.set()

    def _leave(self) -> None:
        try:
            try:
                self.give_back()
            finally:
                self._lead.leave()
        finally:
            self._relays.end(self)

    def give_back(self) -> None:
        """What this relay has put off, as if the leases had ended: as much as there is time for."""
        until, holds = time.monotonic() + GIVING, self._put_off.shared()
        with contextlib.suppress(BideError, TimeoutError):
            with Briefly(GIVING):
                while holds and time.monotonic() < until:
                    self._store.extend(holds[:MAX_BATCH], 0, brief=True)
                    self._tend()
                    del holds[:MAX_BATCH]

    def _has_turn(self) -> bool:
        """Whether this relay is the one at work now. If not, it has waited for a while or is stopped."""
        if self._stops:
            return False
        self._store.open()
        if self._handover.for_others and time.monotonic() > self._gave_way + LATER / 1000:
            self._handover.for_others, self._gave_way = False, time.monotonic()
            self._lead.leave()
            away = 2 * POLL
        else:
            away = self._lead.taken()
        if away:
            self._pause_for(round(1000 * away))
        return not (away or self._stops)

    def _wait(self) -> None:
        if self._stops:
            return
        self.waits = True
        try:
            self._store.wait([outbox.TOPIC], self._patience)
        finally:
            self.waits = False

    def _try_later(self, error: BideError) -> None:
        if not self._stops:
            _log.warning("Messages stay in the outbox, and are tried again in %.1f s: %s", self._pause / 1000, error)
            self._pause_for(self._pause)
            self._pause = min(2 * self._pause, LATER)

    def _pause_for(self, ms: int) -> None:
        self._end.clear()  # which the last pause has set
        if not self._stops:
            self._end.wait(ms / 1000)

    def _hand_on(self) -> int | None:
        """Hand on a bounded number. Raises when the queue's engine does not take it. None: all that it saw is held back."""
        end = time.monotonic() + LOOKS / 1000
        while True:
            handed_on, held_back = self._hand_on_some()
            if handed_on or held_back < AT_ONCE or self._stops:
                return handed_on
            if time.monotonic() > end:
                self._patience = 0.0
                return None

    def _hand_on_some(self) -> tuple[int, int]:
        """How many were handed on, had expired or were refused; and how many held back."""
        if (now := time.monotonic()) >= self._upkeep_at:
            more = self._tend()
            self._put_off.taken_back(now)
            self._upkeep_at = now if more else self._put_off.upkeep(now + SWEEP)
        claim = self._store.claim([outbox.TOPIC], self._at_once, LEASE)
        self._at_once = AT_ONCE
        self._patience = max(0, self._upkeep_at - now)
        if claim.next_due is not None:
            self._patience = min(self._patience, max(0, claim.next_due - claim.now) / 1000)
        if not claim.messages:
            return 0, 0
        ends: list[End] = []
        try:
            kept = self._handover.away.answering(self._handover.read(claim, ends), ends)
            self._handover.put(self._turns.in_turn(kept, ends, claim.now), ends, claim.now)
        except BideError as error:
            ended = {end.id for end in ends}
            left = [each for each in claim.messages if each.id not in ended]
            full = isinstance(error, QueueFull)
            later = put_aside(left, 2 * self._pause + SOON, apart=full)
            if not self._target.capabilities.idempotent and (full or isinstance(error, Unavailable)):
                never = {each.id for each in left if each.attempt == 1}  # no earlier try, which may have got there
                self._store.settle([end for end in later if end.id in never])  # so they can be cancelled
                later = [end for end in later if end.id not in never]
            self._settle(ends)
            self._settle(later, shared=not full)
            raise
        self._settle(ends)
        if self._handover.again_soon:
            self._again_at = time.monotonic() + SOON / 1000
        held_back = sum(end.verdict == "release" for end in ends)
        if 2 * held_back > len(ends) and sum(len(each.body) for each in claim.messages) <= LIGHT * len(ends):
            self._at_once = MAX_BATCH
        return len(ends) - held_back, held_back

    def _settle(self, ends: Sequence[End], *, shared: bool = True) -> None:
        """What is put off stays leased so long, and keeps its due time: so claims pass over it, and it keeps its place before
        what was sent later with its key.
        """
        if done := [end for end in ends if end.verdict != "release" or not end.delay]:
            self._store.settle(done)
            gone = [end for end in done if end.verdict != "release"]
            self._total += len(gone)
            self._turns.gone(gone)
        for delay in {end.delay for end in ends if end.verdict == "release" and end.delay}:
            put_off = [Hold(end.topic, end.id, end.token) for end in ends if (end.verdict, end.delay) == ("release", delay)]
            self._store.extend(put_off, delay)
            self._put_off.add(put_off, delay, shared=shared)
        self._upkeep_at = self._put_off.upkeep(self._upkeep_at)
        self._patience = min(self._patience, max(0, self._upkeep_at - time.monotonic()))
