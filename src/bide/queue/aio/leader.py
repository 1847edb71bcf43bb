# unasync: ../sync/leader.py
"""One relay of an outbox is at work at a time. So it sees all that is there, and what is sent with a key stays in order."""

import contextlib
import os
import time

from bide.engines.aio import AsyncEngine
from bide.engines.gates import Entry, Held
from bide.errors import BideError
from bide.queue import outbox

LEAD = 5_000  # ms after which another relay takes the place of a dead one
RENEWED = 1.0  # seconds: while it works, its lead is renewed this often
POLL = 1.0  # seconds between two looks whether another relay has ended its work


class AsyncLeader:
    """A place at a gate of the outbox's own database. Who works for longer than its lead is still kept from sending anything
    twice by the leases of the messages."""

    def __init__(self, store: AsyncEngine) -> None:
        self._store = store
        self._holder = os.urandom(9).hex()
        self._token: str | None = None
        self._asked = 0.0

    async def taken(self) -> float:
        """0.0 once this relay is the one at work; else in how many seconds to ask again."""
        now = time.monotonic()
        if self._token is not None and now < self._asked + RENEWED:
            return 0.0
        [entered] = await self._store.gates.enter([Entry(outbox.TOPIC, self._holder, LEAD)])
        self._token, self._asked = entered.token, now
        if entered.token is not None:
            return 0.0
        return POLL if entered.free_in is None else min(POLL, entered.free_in / 1000)

    async def leave(self) -> None:
        """Let others work. If that can't be told, they take its place when its time is over."""
        if self._token is not None:
            try:
                with contextlib.suppress(BideError):
                    await self._store.gates.leave([Held(outbox.TOPIC, self._holder, self._token)])
            finally:
                self._token = None
