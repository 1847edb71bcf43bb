# Generated from ../aio/engine.py by tools/unasync.py; change that file instead.
"""The Redis engine: each verb is a script on the shard that its messages live in."""

import math
import time
from collections.abc import Collection, Hashable, Sequence
from random import randrange

from msgspec.structs import replace

from bide.core.times import check_delay
from bide.engines.base import (
    MAX_BATCH,
    Capabilities,
    Claim,
    Condition,
    End,
    Ended,
    Hold,
    Move,
    NewMessage,
    Ref,
    Scanned,
    Seen,
    Stored,
    Swept,
    Tended,
    Window,
)
from bide.engines.gates.sync import Gates
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.presence import HASTE
from bide.engines.redis.protocol import claims, sends
from bide.engines.redis.sync.around import Around
from bide.engines.redis.sync.batches import ShardBatches
from bide.engines.redis.sync.gates import RedisGates
from bide.engines.redis.sync.looks import Looks
from bide.engines.redis.sync.results import RedisResults
from bide.engines.redis.sync.sends import ShardSends
from bide.engines.redis.sync.shard import Shard
from bide.engines.redis.sync.shards import Shards
from bide.engines.redis.sync.wakeup import WAKEUPS, Wakeup
from bide.engines.results.sync import Results
from bide.engines.sync import Engine
from bide.errors import Unavailable
from bide.ids import lane, requests
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats

MOST = 1_000  # sets of topics whose next due time is remembered
UNOPENED = "The Redis engine is not open: open() it first."
NEAR = 0.05  # seconds: a sleep that ends this close to a due time ends to the millisecond


class Redis(Engine):
    _around: Around  # while it is open
    _sends: ShardSends  # the same
    _batches: ShardBatches  # the same

    def __init__(self, namespace: Namespace, capabilities: Capabilities) -> None:
        self.capabilities: Capabilities = capabilities
        self.gates: Gates = RedisGates(namespace, self._opened)
        self.results: Results = RedisResults(self._divided)
        self._namespace = namespace
        self._shards: Shards | None = None
        self._wakeup: Wakeup | None = None
        self._turn = randrange(2**16)
        self._me = lane()[:8]  # the owner of an alarm
        self._new_request = requests()  # one an engine, as a forked child shares the source
        self._woken = True  # there may be wake tokens of what is claimed already
        self._alarms: dict[frozenset[str], float] = {}  # by topics: when to claim again, monotonic

    def open(self) -> None:
        if self._shards is None:
            shards = Shards(self._namespace)
            try:
                shards.open()
                shards.greet()
                wakeup = WAKEUPS[self._namespace.address.wake](self._namespace.address, shards)
                wakeup.prepare()
            except BaseException:
                shards.disconnect()
                raise
            self._shards = shards
            self._around, self._sends = Around(self._me, shards), ShardSends(self._namespace, shards)
            self._batches = ShardBatches(self._namespace, shards)
            self._wakeup = wakeup
            if shards.only is None:
                self.capabilities = replace(self.capabilities, together=1)

    def close(self) -> None:
        wakeup, self._wakeup = self._wakeup, None
        shards, self._shards = self._shards, None
        if shards is None:
            return
        topics, away = sorted(set().union(*self._alarms)), set()
        try:
            if wakeup is not None:
                wakeup.close()
            self._around.close()
            for shard in shards if topics else ():  # a server that is away is not waited for
                if shard.connections not in away and not shard.silent and not shard.leave(self._me, topics):
                    away.add(shard.connections)
        finally:
            shards.disconnect()

    def abandon(self) -> None:
        shards, self._shards = self._shards, None
        if shards is not None:
            shards.abandon()

    def part_of(self, item: NewMessage | Ref | End) -> Hashable:
        """The shards that know of it, if there are several."""
        if self._shards is None or self._shards.only is not None:
            return None
        if isinstance(item, End):
            return (self._namespace.shard_of_id(item),)
        return self._namespace.shards_of_ref(item) if isinstance(item, Ref) else self._sends.shards_of(item)

    def ahead(self, ref: Ref) -> int:
        numbers = self._namespace.shards_of_ref(ref)
        return max((shard.ahead + shard.behind for shard in self._opened() if shard.number in numbers), default=0)

    def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, brief: bool = False, now: int | None = None
    ) -> list[Sent]:
        shards = self._opened()
        return self._sends.put(messages, now, brief=brief and len({shard.place for shard in shards}) > 1)

    def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        spread, only = self._namespace.spread, self._opened().only
        named = request if request is not None else self._new_request()
        woken = self._woken
        if only is not None:
            in_turn = topics if len(topics) <= 1 else claims.turned(topics, self._next())
            claim = only.claim(self._me, in_turn, limit, lease, named, now, woken=woken)
        else:
            claim = self._around.claim(topics, limit, lease, named, now, self._next(), again=request is not None, woken=woken)
        if self._namespace.spread is not spread:  # there are other shards, too
            claim = replace(claim, more=True)
        self._woken = bool(claim.messages)  # then others were sent with them, or left behind
        if len(self._alarms) >= MOST:
            self._alarms.clear()
        wait = math.inf if claim.next_due is None else (claim.next_due - claim.now) / 1000
        self._alarms[frozenset(topics)] = time.monotonic() + wait
        return claim

    def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        return self._divided().by_shard(ends, self._namespace.shard_of_id, lambda shard, some: shard.settle(some, now))

    def extend(self, holds: Sequence[Hold], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        if brief and len(self._opened()) > 1:
            return self._divided().renew(holds, lease, now)
        return self._divided().by_shard(holds, self._namespace.shard_of_id, lambda shard, some: shard.extend(some, lease, now))

    def cancel(
        self,
        refs: Sequence[Ref],
        *,
        seen: Sequence[Seen] | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[CancelResult]:
        if seen is not None:
            both, only = list(zip(refs, seen, strict=True)), self._opened().only
            if only is not None:  # what has gone to another shard meanwhile is gone
                return only.cancel_seen(both, now)
            sends.check_together(refs)
            return self._divided().by_ref(both, refs, lambda shard, some: shard.cancel_seen(some, now), CancelResult.GONE)
        return self._divided().by_ref(refs, refs, lambda shard, some: shard.cancel(some, now), CancelResult.GONE)

    def reschedule(
        self,
        moves: Sequence[Move],
        *,
        condition: Condition | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[RescheduleResult]:
        refs, shards = [move.ref for move in moves], self._opened()
        if condition is not None and shards.only is None:
            sends.check_together([Ref(id=condition.id), *refs])
        clock = max(shard.clock.known for shard in shards)
        for move in moves if shards.only is None or len(moves) > sends.PART else ():  # before the first part is done
            check_delay(move.delay, move.at, max(clock, now or 0))
        return self._divided().by_ref(
            moves, refs, lambda shard, some: shard.reschedule(some, condition, now), RescheduleResult.GONE
        )

    def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        self._opened()
        return self._around.tend(budget, ended_by, now, self._next())

    def wait(self, topics: Sequence[str], timeout: float) -> None:
        if self._wakeup is None:
            raise Unavailable(UNOPENED)
        alarm = self._alarms.get(frozenset(topics), 0.0)
        if self._wakeup.wait(topics, timeout, sharp=alarm < time.monotonic() + timeout + NEAR):
            self._woken = True

    def get(self, refs: Sequence[Ref], *, brief: bool = False, now: int | None = None) -> list[Stored | None]:
        patience = HASTE if brief and len(self._opened()) > 1 else None

        def get(shard: Shard, some: Sequence[Ref]) -> list[Stored | None]:
            if patience is not None and shard.is_out_of_sight():
                raise shard.absence()
            return shard.get(some, now, patience)

        return self._divided().by_ref(refs, refs, get, None)

    def scan(self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None) -> Scanned:
        return Looks(self._namespace, self._opened()).scan(topic, state, limit, after, now)

    def stats(
        self, topic: str | None = None, *, but: Collection[str] = (), window: Window | None = None, now: int | None = None
    ) -> Stats:
        return Looks(self._namespace, self._opened()).stats(topic, but, window, now)

    def requeue(
        self,
        topic: str,
        ids: Sequence[str] | None = None,
        *,
        delay: int = 0,
        over: int = 0,
        limit: int = MAX_BATCH,
        now: int | None = None,
    ) -> Swept:
        self._opened()

        def requeue(shard: Shard, done: int, patience: float | None) -> Swept:
            places = sends.DueSpan(done, limit, delay, over)
            return shard.requeue(topic, ids, places, now, patience=patience)

        return self._around.sweep(ids, requeue)

    def purge(
        self, topic: str, state: State, ids: Sequence[str] | None = None, *, limit: int = MAX_BATCH, now: int | None = None
    ) -> Swept:
        self._opened()

        def purge(shard: Shard, done: int, patience: float | None) -> Swept:
            if ids is None:
                return shard.purge(topic, state, limit - done, now, patience=patience)
            return shard.purge_dead(topic, ids, limit - done, now, patience=patience)

        return self._around.sweep(ids, purge)

    def pause(self, topic: str, paused: bool) -> None:
        self._opened()
        self._around.pause(topic, paused)

    def _next(self) -> int:
        self._turn += 1
        return self._turn

    def _divided(self) -> ShardBatches:
        if self._shards is None:
            raise Unavailable(UNOPENED)
        return self._batches

    def _opened(self) -> Shards:
        if self._shards is None:
            raise Unavailable(UNOPENED)
        return self._shards
