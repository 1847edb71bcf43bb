# Generated from ../aio/outbox_messages.py by tools/unasync.py; change that file instead.
"""What waits in an outbox, by its id or by its key in the queue: it is moved and shown as if it were there.

A relay holds some of it back for a while: what would overtake an earlier message of its key, which a dead relay or somebody's
transaction has.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from bide.engines.base import MAX_BATCH, End, Move, Ref, Stored
from bide.engines.sync import Engine
from bide.errors import BideError, Unsupported
from bide.queue import outbox
from bide.queue.outbox import Brought, Failures
from bide.queue.relay import Kept, end_of
from bide.queue.run.sync.limits import tend
from bide.types import CancelResult, RescheduleResult, State

Bring: TypeAlias = Callable[[Sequence[Stored], bool, Failures], list[Brought]]
STATES: tuple[State, ...] = ("ready", "leased", "scheduled", "ready")  # the last again: a relay may have given back meanwhile
TRIES = 3  # to take a message from a relay, which may give it back at that moment
LEASE = 30_000  # ms after which another relay hands on what a dead one had taken


class OutboxMessages:
    def __init__(self, store: Engine, target: Engine, bring: Bring) -> None:
        """`bring`: hands them on, whoever has them."""
        self._store = store
        self._target = target
        self._bring = bring

    def each(self) -> Iterator[Stored]:
        """All that is in the outbox, some of it twice."""
        page = self._store.scan(outbox.TOPIC, None, MAX_BATCH)
        if page.after is None:
            for each in page.messages:
                yield each
            return
        # too many for one look, which would see each of them in one state
        while tend(self._store).more:  # of the leases that are over, which are told behind all that is ready
            pass
        for state in STATES:
            after: str | None = None
            while True:
                page = self._store.scan(outbox.TOPIC, state, MAX_BATCH, after)
                for each in page.messages:
                    yield each
                if (after := page.after) is None:
                    break

    def of(self, names: Collection[outbox.Name]) -> list[Stored]:
        """All that wait for these names, in the order in which they were sent."""
        found = {each.id: each for each in self.each() if each.state != "dead" and outbox.name_of(each.body) in names}
        return [found[id] for id in sorted(found)]

    def take_out(self, ids: Sequence[str]) -> list[CancelResult]:
        """Whoever has it: if a relay is handing it on, it does so by an operation that the queue knows, or nothing is known.
        RUNNING, if it was given back and claimed again each time.
        """
        results = dict.fromkeys(ids, CancelResult.RUNNING)
        for _ in range(TRIES):
            if left := [id for id, result in results.items() if result is CancelResult.RUNNING]:
                results |= zip(left, self._take_out(left), strict=True)
        return [results[id] for id in ids]

    def _take_out(self, ids: Sequence[str]) -> list[CancelResult]:
        refs = [Ref(id) for id in ids]
        results = self._store.cancel(refs)
        running = [i for i, result in enumerate(results) if result is CancelResult.RUNNING]
        if running:
            held = self._store.get([refs[i] for i in running])
            tokens = [(i, each.token) for i, each in zip(running, held, strict=True) if each is not None]
            ends = [(i, End(outbox.TOPIC, ids[i], token, "done")) for i, token in tokens if token is not None]
            ended = self._store.settle([end for _, end in ends]) if ends else []
            for (i, _), told in zip(ends, ended, strict=True):
                results[i] = CancelResult.CANCELLED if told == "done" else results[i]
        return results

    def reschedule(self, move: Move, connection: object | None) -> RescheduleResult:
        """What waits is handed on first, and then moved in the queue."""
        self._store.open()
        if connection is not None:
            raise Unsupported("A message that is sent through an outbox is moved after the commit: leave connection= out.")
        which, waiting = self._meant(move.ref)
        if waiting and not self._target.capabilities.idempotent:
            raise Unsupported(
                "This queue's engine can't move messages, nor can its outbox: cancel the message, and send it again."
            )
        for each in waiting:
            if each.state == "dead":
                return RescheduleResult.DEAD
            [sent] = self._bring([each], move.origin != "due", {})
            if isinstance(sent, BideError):
                raise sent
            if sent is None:
                continue
            self.take_out([each.id])
            if which.id is not None:
                which = Ref(sent.id)
        move = replace(move, ref=which)
        [result] = self._target.reschedule([move])
        return result

    def get(self, which: Ref, now: int) -> Stored | None:
        """What is in the queue, or else what waits."""
        self._store.open()
        if which.id is not None:
            return outbox.shown(self._found(which.id), now)
        waiting = self.of([outbox.name(which)])
        [there] = self._target.get([which])
        return there or next((each for each in (outbox.shown(each, now) for each in waiting) if each is not None), None)

    def _meant(self, which: Ref) -> tuple[Ref, Sequence[Stored]]:
        if which.id is not None:
            found = self._found(which.id)
            which = outbox.meant(which, found)
            if which.id is not None:
                return which, [found]
        return which, self.of([outbox.name(which)])

    def find(self, ids: Sequence[str]) -> list[Stored | None]:
        """By the ids that their senders were told."""
        return self._store.get([outbox.private(id) for id in ids])

    def _found(self, id: str) -> Stored:
        [found] = self.find([id])
        if found is None:
            raise outbox.missing([id])
        return found


BRIEFLY, SELDOM = 50, 5_000  # ms until the next try: the pauses grow from BRIEFLY


class Earlier(NamedTuple):
    id: str
    lease_until: int | None


class Stuck(NamedTuple):
    behind: str  # the id of the earlier message
    until: float  # by time.monotonic()
    pause: int  # ms


class Turns:
    def __init__(self, waiting: OutboxMessages, target: Engine) -> None:
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
