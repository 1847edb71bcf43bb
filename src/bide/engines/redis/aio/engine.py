# unasync: ../sync/engine.py
"""The Redis engine: each verb is a script on the shard that its messages live in."""

import math
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from random import randrange
from typing import Any, Literal, TypeVar

from msgspec.structs import replace

from bide.core.when import check_delay
from bide.engines.aio import AsyncEngine
from bide.engines.base import (
    MAX_BATCH,
    Capabilities,
    Claim,
    End,
    Ended,
    Hold,
    Move,
    NewMessage,
    Ref,
    Scanned,
    Stored,
    Swept,
    Tended,
    Window,
)
from bide.engines.redis.aio.around import AWAY, AsyncAround, present_first
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.aio.shards import disconnect, one_a_server, shards_of
from bide.engines.redis.aio.wakeup import WAKEUPS, AsyncWakeup
from bide.engines.redis.failures import BRIEF
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.protocol import counting, delivering, listing, sending
from bide.errors import BideError, ConfirmTimeout, OutcomeUnknown, Unavailable
from bide.ids import lane, requests
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats

T = TypeVar("T")
R = TypeVar("R", bound=list[Any])
MOST = 1_000  # sets of topics whose next due time is remembered
UNOPENED = "The Redis engine is not open: open() it first."
PARTS = 3  # of a lease: when there are several shards, a renewal has one of these
NEAR = 0.05  # seconds: a sleep that ends this close to a due time ends to the millisecond


class AsyncRedis(AsyncEngine):
    def __init__(self, namespace: Namespace, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self._namespace = namespace
        self._shards: list[AsyncShard] = []
        self._wakeup: AsyncWakeup | None = None
        self._turn = randrange(2**16)
        self._me = lane()[:8]  # the owner of an alarm
        self._new_request = requests()  # one an engine, as a forked child shares the source
        self._woken = True  # there may be wake tokens of what is claimed already
        self._alarms: dict[frozenset[str], float] = {}  # by topics: when to claim again, monotonic
        self._around = AsyncAround(self._me, [])

    async def open(self) -> None:
        if not self._shards:
            shards, wake = await shards_of(self._namespace), self._namespace.address.wake
            try:
                for shard in one_a_server(shards):
                    await shard.greet()
                for shard in shards if wake == "expiry" else ():
                    await shard.ask_for_expiry()
            except BaseException:
                await disconnect(shards)
                raise
            self._shards = shards
            self._around = AsyncAround(self._me, shards)
            self._wakeup = WAKEUPS[wake](self._namespace.address, shards)

    async def close(self) -> None:
        wakeup, self._wakeup = self._wakeup, None
        shards, self._shards = self._shards, []
        topics, away = sorted(set().union(*self._alarms)), set()
        try:
            if wakeup is not None:
                await wakeup.close()
            await self._around.close()
            for shard in shards if topics else ():  # a server that is away is not waited for
                if shard.connections not in away and not await shard.leave(self._me, topics):
                    away.add(shard.connections)
        finally:
            await disconnect(shards)

    def abandon(self) -> None:
        shards, self._shards = self._shards, []
        for shard in one_a_server(shards):
            shard.connections.abandon()

    async def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, now: int | None = None
    ) -> list[Sent]:
        shards = self._shards
        if len(shards) == 1 and len(messages) == 1:  # the short way, that most sends take
            return await shards[0].put(messages, now)
        any_shard = self._any_shard()
        parts = sending.put_parts(messages, lambda new: self._namespace.shard_of(new, any_shard))
        if len(parts) > 1:
            return await self._put_apart(shards, messages, any_shard, now)
        [(shard, _)] = parts
        if any(new.key is not None or new.operation is not None for new in messages):
            return await shards[shard].put(messages, now)
        while any(not other.silent for other in shards if other is not shards[shard]):
            try:
                return await shards[shard].put(messages, now, patience=BRIEF)
            except Unavailable:  # it has done nothing, so another one may do it
                if not shards[shard].silent:
                    raise
                shard = self._any_shard()
        return await shards[shard].put(messages, now)

    async def _put_apart(
        self, shards: Sequence[AsyncShard], messages: Sequence[NewMessage], any_shard: int, now: int | None
    ) -> list[Sent]:
        """Send a batch in several parts. Each message has an operation, so all can be sent again if one part fails."""
        name = lane()
        named = [new if new.operation else replace(new, operation=f"{name}#{i}") for i, new in enumerate(messages)]
        parts = sending.put_parts(named, lambda new: self._namespace.shard_of(new, any_shard))
        for shard, indexes in parts:  # before the first part is taken
            for i in indexes:
                check_delay(named[i].delay, named[i].at, max(shards[shard].clock.known, now or 0))
        answers: dict[int, Sent] = {}
        for shard, indexes in parts:
            try:
                got = await shards[shard].put([named[i] for i in indexes], now)
            except BideError as error:
                if not answers and not isinstance(error, OutcomeUnknown):
                    raise
                told = f"{error} This was one part of several, and others of the batch were taken."
                raise OutcomeUnknown(told, operations=[new.operation or "" for new in named]) from None
            answers.update(zip(indexes, got, strict=True))
        return [answers[i] for i in range(len(messages))]

    async def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        shards = self._shards or self._opened()
        named = request if request is not None else self._new_request()
        woken = self._woken
        if len(shards) == 1:
            in_turn = topics if len(topics) <= 1 else delivering.turned(topics, self._next())
            claim = await shards[0].claim(self._me, in_turn, limit, lease, named, now, woken=woken)
        else:
            claim = await self._around.claim(
                topics, limit, lease, named, now, self._next(), again=request is not None, woken=woken
            )
        self._woken = bool(claim.messages)  # then others were sent with them, or left behind
        if len(self._alarms) >= MOST:
            self._alarms.clear()
        wait = math.inf if claim.next_due is None else (claim.next_due - claim.now) / 1000
        self._alarms[frozenset(topics)] = time.monotonic() + wait
        return claim

    async def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        shards = self._shards
        if len(shards) == 1 and len(ends) <= sending.PART:  # the short way, that most take
            return await shards[0].settle(ends, now)
        return await self._spread(
            ends, self._namespace.shard_of_id, lambda shard, some: shard.settle(some, now), wait_for="the only part"
        )

    async def extend(self, holds: Sequence[Hold], lease: int, *, now: int | None = None) -> list[bool]:
        shards = self._opened()
        if len(shards) == 1:
            return await self._spread(holds, self._namespace.shard_of_id, lambda shard, some: shard.extend(some, lease, now))
        # leases of other shards, and those of later calls, must not run out meanwhile
        patience = min(lease / 1000 / PARTS, shards[0].connections.server.retry_for)
        try:
            return await self._spread(
                holds,
                self._namespace.shard_of_id,
                lambda shard, some: shard.extend(some, lease, now, patience=patience),
                wait_for="nobody",
            )
        except (Unavailable, OutcomeUnknown) as error:
            told = isinstance(error, ConfirmTimeout) or (isinstance(error, OutcomeUnknown) and error.answers)
            if told or all(shard.silent for shard in shards):
                raise
            raise OutcomeUnknown(str(error), answers=[None] * len(holds)) from error

    async def cancel(
        self, refs: Sequence[Ref], *, connection: object | None = None, now: int | None = None
    ) -> list[CancelResult]:
        return await self._spread(refs, self._namespace.shard_of_ref, lambda shard, some: shard.cancel(some, now))

    async def reschedule(
        self, moves: Sequence[Move], *, connection: object | None = None, now: int | None = None
    ) -> list[RescheduleResult]:
        for move in moves if len(self._shards) > 1 or len(moves) > sending.PART else ():  # before the first part is done
            shard = self._opened()[self._namespace.shard_of_ref(move.ref)]
            check_delay(move.delay, move.at, max(shard.clock.known, now or 0))
        return await self._spread(
            moves, lambda move: self._namespace.shard_of_ref(move.ref), lambda shard, some: shard.reschedule(some, now)
        )

    async def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        shards = self._opened()
        first = self._next() % len(shards)
        did = Tended()
        failed: list[BideError] = []
        for turn, shard in enumerate(present_first([*shards[first:], *shards[:first]])):
            spare = budget - did.returned - did.expired - did.dropped
            if spare <= 0:
                return did + Tended(more=True)
            if shard.silent and len(failed) < turn:  # others did; it is for claims to find out when it is back
                continue
            patience = None if turn == len(failed) == len(shards) - 1 else BRIEF
            try:
                did += await shard.tend(min(spare, sending.PART), ended_by, now, patience=patience)
            except BideError as error:  # one shard that fails keeps the others from nothing
                failed.append(error)
        if len(failed) == len(shards):
            raise failed[0]
        return did

    async def wait(self, topics: Sequence[str], timeout: float) -> None:
        if self._wakeup is None:
            raise Unavailable(UNOPENED)
        alarm = self._alarms.get(frozenset(topics), 0.0)
        if await self._wakeup.wait(topics, timeout, sharp=alarm < time.monotonic() + timeout + NEAR):
            self._woken = True

    async def get(self, refs: Sequence[Ref], *, now: int | None = None) -> list[Stored | None]:
        return await self._spread(refs, self._namespace.shard_of_ref, lambda shard, some: shard.get(some, now))

    async def scan(
        self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None
    ) -> Scanned:
        shards = self._opened()
        page = listing.Listing(topic, state, limit, after, len(shards))
        while searches := page.searches():
            for search in searches:
                await shards[search.shard].find(search, now)
            chosen = page.choose(searches)
            page.show(await self._spread(chosen, lambda each: each.shard, lambda shard, some: shard.show(topic, some, now)))
        return page.page()

    async def stats(
        self, topic: str | None = None, *, but: Collection[str] = (), window: Window | None = None, now: int | None = None
    ) -> Stats:
        parts = window.parts if window else 0
        told: dict[str, list[Stats]] = {}
        for shard in self._opened():
            for name, one in (await shard.stats(topic, but, window, now)).items():
                told.setdefault(name, []).append(one)
        topics = {} if topic is not None else {name: counting.together(each, {}, 0) for name, each in told.items()}
        return counting.together([one for each in told.values() for one in each], topics, parts)

    async def requeue(
        self, topic: str, ids: Sequence[str] | None = None, *, delay: int = 0, limit: int = MAX_BATCH, now: int | None = None
    ) -> Swept:
        count, more, keyless = 0, False, 0
        for shard in self._opened():
            one = await shard.requeue(topic, ids, delay, limit - count, now)
            count, more, keyless = count + one.count, more or one.more, keyless + one.keyless
        return Swept(count, more, keyless)

    async def purge(self, topic: str, state: State, *, limit: int = MAX_BATCH, now: int | None = None) -> Swept:
        count, more = 0, False
        for shard in self._opened():
            one = await shard.purge(topic, state, limit - count, now)
            count, more = count + one.count, more or one.more
        return Swept(count, more)

    async def pause(self, topic: str, paused: bool) -> None:
        for shard in self._opened():
            await shard.pause(topic, paused)

    async def _spread(
        self,
        items: Sequence[T],
        shard_of: Callable[[T], int],
        call: Callable[[AsyncShard, Sequence[T]], Awaitable[R]],
        *,
        wait_for: Literal["all", "the only part", "nobody"] = "all",
    ) -> list[Any]:
        """Ask each shard for its part of a batch, in pieces if that is long. The answers are in the order of the batch.

        When one fails and another was done, it is OutcomeUnknown, with the answers of the others. `wait_for`: a shard that did
        not answer lately is asked last, or not at all.
        """
        shards = self._opened()
        if len(shards) == 1 and len(items) <= sending.PART:
            return await call(shards[0], items)
        answers: dict[int, Any] = {}
        untried: list[int] = []
        failed: BideError | None = None
        parts = [(shards[shard], indexes) for shard, indexes in sending.parts(items, shard_of)]
        for shard, indexes in sorted(parts, key=lambda part: part[0].silent):
            try:
                if (wait_for == "nobody" or (wait_for == "the only part" and answers)) and await shard.is_away():
                    untried += indexes
                    continue
                got = await call(shard, [items[i] for i in indexes])
            except BideError as error:
                failed = failed or error
            else:
                answers.update(zip(indexes, got, strict=True))
        if len(answers) == len(items):
            return [answers[i] for i in range(len(items))]
        if not answers:
            raise failed or Unavailable(AWAY)
        told = f"{failed or AWAY} This was one part of several, and others of the batch were done."
        raise OutcomeUnknown(told, answers=[answers.get(i) for i in range(len(items))], untried=untried) from failed

    def _any_shard(self) -> int:
        """For what may be on any: the next one by turns, of those that answer."""
        shards, first = self._opened(), self._next()
        places = ((first + turn) % len(shards) for turn in range(len(shards)))
        return next((place for place in places if not shards[place].silent), first % len(shards))

    def _next(self) -> int:
        self._turn += 1
        return self._turn

    def _opened(self) -> list[AsyncShard]:
        if not self._shards:
            raise Unavailable(UNOPENED)
        return self._shards
