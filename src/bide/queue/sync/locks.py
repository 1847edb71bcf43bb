# Generated from ../aio/locks.py by tools/unasync.py; change that file instead.
"""`queue.lock`: one holder at a time over all processes."""

import contextlib
import os
import time
from types import TracebackType
from typing import Self

from bide.core import options
from bide.core.times import duration_ms, lease_ms
from bide.engines.gates import Entered, Entry, Held
from bide.errors import BadOption, BideError, Locked, LockLost, Unavailable
from bide.logs import Log
from bide.queue.leases import Places
from bide.queue.run.sync.limits import PROGRAM, leave
from bide.queue.sync.session import Session
from bide.queue.tasks.limits import lock_gate
from bide.types import Duration
from bide.wakeable import Signal

FIRST_LOOK = 0.005  # seconds; then half as long again each time, up to
LAST_LOOK = 0.25
ASKS = 3_000  # ms: who has not asked for so long has died, or stands still, and leaves the line
GIVE_UP = 0.2  # seconds for a lock that was asked for in vain to be given back; after that nobody waits for it
TEND = 1.0  # seconds between two looks for holders that have died

_log = Log("bide.lock")


class Lock:
    """One holder at a time. `with queue.lock("order:42") as lock:` waits for nobody unless it is told to.

    A thread renews the lock while it is held. If it can't, for as long as `ttl`, or if somebody else has taken it, then
    `lost` is true, and the end of the block raises LockLost.
    """

    def __init__(self, session: Session, name: str, ttl: Duration, wait: Duration) -> None:
        self.name: str = options.text(name, "name", 256)
        self._session = session
        self._ttl = lease_ms(ttl, "ttl")
        self._wait = duration_ms(wait, "wait") / 1000
        self._holder = PROGRAM + os.urandom(9).hex()
        self._token: str | None = None
        self._places: Places | None = None  # while it is held
        self._lost = False

    @property
    def token(self) -> str:
        """The fencing token: it rises with each holder of the lock, compared as text. Give it to what you write to."""
        if self._token is None:
            raise LockLost(f"The lock {self.name} is not held: its token is there inside of the with block.")
        return self._token

    @property
    def lost(self) -> bool:
        """Whether somebody else may have the lock by now."""
        return self._lost or self._places is None or not self._places.sure

    def check(self) -> None:
        """Raise LockLost if somebody else may have the lock by now."""
        if self.lost:
            raise LockLost(f"The lock {self.name} was lost: it could not be renewed in time, and somebody else may have it.")

    def __enter__(self) -> Self:
        if self._places is not None:
            raise BadOption(f"This lock of {self.name} is held already: make another one with queue.lock(…).")
        opened = self._session.open()
        try:
            self._token, asked = self._taken()
        except Locked:
            if self._wait:  # else it is not in the line
                with contextlib.suppress(BideError):
                    leave(opened.engine, [Held(lock_gate(self.name), self._holder, None)])
            raise
        except Unavailable:  # it took no place, and its place in the line is over when it asks no more
            raise
        except BaseException:  # its answer may have been lost, or it was cancelled
            opened.aside.attempt(self._give_up, GIVE_UP)
            raise
        self._lost = False
        self._places = Places([self._held], self._ttl, self._was_lost, asked=asked)
        opened.heartbeat.add(self._places)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        held, places, lost = self._held, self._places, self.lost
        self._token = self._places = None
        try:
            opened = self._session.open()
            if places is not None:
                opened.heartbeat.remove(places, held)
            leave(opened.engine, [held])
        except BideError as left:
            _log.warning("The lock %s could not be given back, and is free in %g s: %s", self.name, self._ttl / 1000, left)
        if lost and error is None:
            raise LockLost(f"The lock {self.name} was lost before the block ended: somebody else may have done the same.")

    def _enter(self) -> Entered:
        gates = self._session.engine().gates
        waiter = self._holder if self._wait else None
        [entered] = gates.enter([self._entry(waiter)])
        return entered

    def _entry(self, waiter: str | None) -> Entry:
        return Entry(lock_gate(self.name), self._holder, self._ttl, waiter=waiter, asks=ASKS)

    @property
    def _held(self) -> Held:
        return Held(lock_gate(self.name), self._holder, self._token)

    def _taken(self) -> tuple[str, float]:
        """The lock's token, and when it was asked for. Raises Locked when that takes too long."""
        asked = looked = time.monotonic()
        until, pause = asked + self._wait, FIRST_LOOK
        while (token := (entered := self._enter()).token) is None:
            left = until - time.monotonic()
            if left <= 0:
                remaining = None if entered.free_in is None else entered.free_in / 1000
                raise Locked(f"The lock {self.name} is taken" + self._how_long(), self.name, remaining)
            Signal().wait(min(pause, left))
            pause = min(pause * 1.5, LAST_LOOK)
            if time.monotonic() - looked > TEND:
                looked = time.monotonic()
                self._session.open().receiver.tend()
            asked = time.monotonic()
        return token, asked

    def _how_long(self) -> str:
        return f", and was for {self._wait:g} s." if self._wait else ": wait for it with wait=, or try again later."

    def _give_up(self) -> None:
        """Leave the line, or the place that nobody knows of."""
        with contextlib.suppress(BideError):  # it is over with its lease
            engine = self._session.engine()
            [entered] = engine.gates.enter([self._entry(self._holder)])
            leave(engine, [Held(lock_gate(self.name), self._holder, entered.token)])

    def _was_lost(self, held: Held) -> None:
        """Called by the heartbeat's thread."""
        self._lost = True
