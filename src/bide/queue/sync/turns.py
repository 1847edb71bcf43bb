# Generated from ../aio/turns.py by tools/unasync.py; change that file instead.
"""What a relay of an outbox holds back for a while, as it would overtake an earlier message of its key, which a dead relay or
somebody's transaction has.
"""

import time
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from bide.engines.base import End
from bide.engines.sync import Engine
from bide.queue import outbox
from bide.queue.away import Kept, end_of
from bide.queue.sync.waiting import Waiting

BRIEFLY, SELDOM = 50, 5_000  # ms until the next try: the pauses grow from BRIEFLY
LEASE = 30_000  # ms after which another relay hands on what a dead one had taken


class Earlier(NamedTuple):
    id: str
    lease_until: int | None


class Stuck(NamedTuple):
    behind: str  # the id of the earlier message
    until: float  # by time.monotonic()
    pause: int  # ms


class Turns:
    def __init__(self, waiting: Waiting, target: Engine) -> None:
        self._waiting = waiting
        self._target = target
        self._seen: set[str] = set()  # the ids of all that waited at the last look
        self._there: dict[outbox.Name, deque[str]] = {}  # the same, in order
        self._gone: set[str] = set()  # which this relay has handed on since then
        self._stuck: dict[outbox.Name, Stuck] = {}  # names that somebody else has an earlier message of

    def gone(self, ends: Sequence[End]) -> None:
        """They are out of the outbox, unless their leases had ended."""
        self._gone |= self._seen.intersection(end.id for end in ends)  # others are not asked for until the next look

    def in_turn(self, kept: Sequence[Kept], ends: list[End], now: int) -> Sequence[Kept]:
        """Without those that would overtake an earlier one of their key, which another relay or somebody's transaction has. The
        ends of these are added to the list.
        """
        own = {claimed.id: outbox.Name(new.topic, new.key) for claimed, new in kept if new.key is not None}
        if not own or not self._target.capabilities.keys:
            return kept
        began = time.monotonic()
        self._stuck = {name: each for name, each in self._stuck.items() if each.until > began - SELDOM / 1000}
        free = {name for name in own.values() if not self._is_known(name, own, began)}
        first: dict[outbox.Name, Earlier] = {}
        if any(not self._is_first(id, name, own) for id, name in own.items() if name in free):
            first = self._look(own)
            for name, earlier in first.items():  # so that what is behind them needs no look of its own
                if name not in free and earlier.lease_until is not None and not self._is_known(name, own, began):
                    self._stick(name, earlier, now)
        there: list[Kept] = []
        for claimed, new in kept:
            name = outbox.Name(new.topic, new.key)
            before = first.get(name)
            if name in free and before is not None and before.id < claimed.id:
                self._stick(name, before, now)
                free.remove(name)
            if name in free or name.key is None:
                self._stuck.pop(name, None)
                there.append((claimed, new))
            else:
                ends.append(end_of(claimed, "release", max(1, _ms(self._stuck[name].until - began))))
        return there

    def _is_first(self, id: str, name: outbox.Name, own: Collection[str]) -> bool:
        """Whether it is, of those of its name, but for its relay's own, as the last look has shown."""
        if id not in self._seen or id in self._gone:  # the latter: it was handed on, and its lease had ended before it could go
            return False
        ids = self._there[name]
        while ids[0] in self._gone:
            ids.popleft()
        return next(each for each in ids if each == id or not (each in own or each in self._gone)) == id

    def _look(self, own: Collection[str]) -> dict[outbox.Name, Earlier]:
        """The first of each name that this relay does not have."""
        found: dict[str, tuple[outbox.Name, int | None]] = {}
        for each in self._waiting.each():
            name = outbox.name_of(each.body)
            if name is not None and name.key is not None and each.state != "dead":
                found[each.id] = name, each.lease_until
        self._seen, self._there, self._gone = set(found), defaultdict(deque), set()
        first: dict[outbox.Name, Earlier] = {}
        for id in sorted(found):
            name, lease_until = found[id]
            self._there[name].append(id)
            if id not in own:
                first.setdefault(name, Earlier(id, lease_until))
        return first

    def _is_known(self, name: outbox.Name, own: Collection[str], now: float) -> bool:
        """Whether the earlier one is with somebody else still, as far as is known without a look."""
        stuck = self._stuck.get(name)
        return stuck is not None and stuck.until > now and stuck.behind not in own

    def _stick(self, name: outbox.Name, earlier: Earlier, now: int) -> None:
        """Look again when whoever has the earlier one loses it, or in a while, which grows as long as nothing changes."""
        before = self._stuck.get(name)
        pause = BRIEFLY
        if before is not None and before.behind == earlier.id:
            left = SELDOM if earlier.lease_until is None else earlier.lease_until - now
            pause = min(2 * before.pause, max(left, BRIEFLY), SELDOM)
        self._stuck[name] = Stuck(earlier.id, time.monotonic() + pause / 1000, pause)


def _ms(seconds: float) -> int:
    return round(1000 * seconds)
