# unasync: ../sync/engine.py
"""The Redis engine: each verb is a script on the shard that its messages live in."""

import contextlib
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
from bide.engines.redis.aio.sends import AsyncSends
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.aio.shards import AsyncShards
from bide.engines.redis.aio.wakeup import WAKEUPS, AsyncWakeup
from bide.engines.redis.failures import BRIEF, OtherSpread
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.protocol import counting, delivering, listing, sending
from bide.engines.redis.spread import Generation
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
    _around: AsyncAround  # while it is open
    _sends: AsyncSends  # the same

    def __init__(self, namespace: Namespace, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self._namespace = namespace
        self._shards: AsyncShards | None = None
        self._wakeup: AsyncWakeup | None = None
        self._turn = randrange(2**16)
        self._me = lane()[:8]  # the owner of an alarm
        self._new_request = requests()  # one an engine, as a forked child shares the source
        self._woken = True  # there may be wake tokens of what is claimed already
        self._alarms: dict[frozenset[str], float] = {}  # by topics: when to claim again, monotonic

    async def open(self) -> None:
        if self._shards is None:
            shards = AsyncShards(self._namespace)
            try:
                await shards.open()
                for shard in shards.one_a_server():
                    await shard.greet()
                wakeup = WAKEUPS[self._namespace.address.wake](self._namespace.address, shards)
                await wakeup.prepare()
            except BaseException:
                await shards.disconnect()
                raise
            self._shards = shards
            self._around, self._sends = AsyncAround(self._me, shards), AsyncSends(self._namespace, shards)
            self._wakeup = wakeup

    async def close(self) -> None:
        wakeup, self._wakeup = self._wakeup, None
        shards, self._shards = self._shards, None
        if shards is None:
            return
        topics, away = sorted(set().union(*self._alarms)), set()
        try:
            if wakeup is not None:
                await wakeup.close()
            await self._around.close()
            for shard in shards if topics else ():  # a server that is away is not waited for
                if shard.connections not in away and not await shard.leave(self._me, topics):
                    away.add(shard.connections)
        finally:
            await shards.disconnect()

    def abandon(self) -> None:
        shards, self._shards = self._shards, None
        if shards is not None:
            shards.abandon()

    async def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, now: int | None = None
    ) -> list[Sent]:
        self._opened()
        return await self._sends.put(messages, now)

    async def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        spread, only = self._namespace.spread, self._opened().only
        named = request if request is not None else self._new_request()
        woken = self._woken
        if only is not None:
            in_turn = topics if len(topics) <= 1 else delivering.turned(topics, self._next())
            claim = await only.claim(self._me, in_turn, limit, lease, named, now, woken=woken)
        else:
            claim = await self._around.claim(
                topics, limit, lease, named, now, self._next(), again=request is not None, woken=woken
            )
        if self._namespace.spread is not spread:  # there are other shards, too
            claim = replace(claim, more=True)
        self._woken = bool(claim.messages)  # then others were sent with them, or left behind
        if len(self._alarms) >= MOST:
            self._alarms.clear()
        wait = math.inf if claim.next_due is None else (claim.next_due - claim.now) / 1000
        self._alarms[frozenset(topics)] = time.monotonic() + wait
        return claim

    async def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        return await self._by_shard(
            ends, self._namespace.shard_of_id, lambda shard, some: shard.settle(some, now), wait_for="the only part"
        )

    async def extend(self, holds: Sequence[Hold], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        shards = self._opened()
        if len(shards) == 1 or not brief:
            return await self._by_shard(holds, self._namespace.shard_of_id, lambda shard, some: shard.extend(some, lease, now))
        patience = min(lease / 1000 / PARTS, shards.live[0].connections.server.retry_for)
        try:
            return await self._by_shard(
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
        return await self._by_ref(refs, refs, lambda shard, some: shard.cancel(some, now), CancelResult.GONE)

    async def reschedule(
        self, moves: Sequence[Move], *, connection: object | None = None, now: int | None = None
    ) -> list[RescheduleResult]:
        refs, shards = [move.ref for move in moves], self._opened()
        clock = max(shard.clock.known for shard in shards)
        for move in moves if shards.only is None or len(moves) > sending.PART else ():  # before the first part is done
            check_delay(move.delay, move.at, max(clock, now or 0))
        return await self._by_ref(moves, refs, lambda shard, some: shard.reschedule(some, now), RescheduleResult.GONE)

    async def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        shards = self._opened()
        first = self._next() % len(shards)
        did = Tended()
        failed: list[BideError] = []
        for turn, shard in enumerate(present_first([*shards.live[first:], *shards.live[:first]])):
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
        return await self._by_ref(refs, refs, lambda shard, some: shard.get(some, now), None)

    async def scan(
        self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None
    ) -> Scanned:
        while True:
            with contextlib.suppress(OtherSpread):
                shards, spread = self._opened(), self._namespace.spread
                numbers = [shard.number for shard in shards]
                page = listing.Listing(topic, state, limit, after, numbers, self._namespace.highest)
                while searches := page.searches():
                    for search in searches:
                        await shards[search.shard].find(search, now)
                    chosen = page.choose(searches)
                    page.show(
                        await self._by_shard(chosen, lambda each: each.shard, lambda shard, some: shard.show(topic, some, now))
                    )
                if self._namespace.spread is spread:  # else there are other shards, too
                    return page.page()

    async def stats(
        self, topic: str | None = None, *, but: Collection[str] = (), window: Window | None = None, now: int | None = None
    ) -> Stats:
        parts = window.parts if window else 0
        told: dict[str, list[Stats]] = {}
        done = set[AsyncShard]()
        while shard := self._next_of(done):
            for name, one in (await shard.stats(topic, but, window, now)).items():
                told.setdefault(name, []).append(one)
        topics = {} if topic is not None else {name: counting.together(each, {}, 0) for name, each in told.items()}
        return counting.together([one for each in told.values() for one in each], topics, parts)

    async def requeue(
        self,
        topic: str,
        ids: Sequence[str] | None = None,
        *,
        delay: int = 0,
        over: int = 0,
        limit: int = MAX_BATCH,
        now: int | None = None,
    ) -> Swept:
        count, more, keyless, done = 0, False, 0, set[AsyncShard]()
        while shard := self._next_of(done):
            one = await shard.requeue(topic, ids, sending.Places(count, limit, delay, over), now)
            count, more, keyless = count + one.count, more or one.more, keyless + one.keyless
        return Swept(count, more, keyless)

    async def purge(
        self, topic: str, state: State, ids: Sequence[str] | None = None, *, limit: int = MAX_BATCH, now: int | None = None
    ) -> Swept:
        count, more, done = 0, False, set[AsyncShard]()
        while shard := self._next_of(done):
            if ids is None:
                one = await shard.purge(topic, state, limit - count, now)
            else:
                one = await shard.purge_dead(topic, ids, limit - count, now)
            count, more = count + one.count, more or one.more
        return Swept(count, more)

    async def pause(self, topic: str, paused: bool) -> None:
        done = set[AsyncShard]()
        while shard := self._next_of(done):
            await shard.pause(topic, paused)

    async def _by_ref(
        self,
        items: Sequence[T],
        refs: Sequence[Ref],
        call: Callable[[AsyncShard, Sequence[T]], Awaitable[R]],
        gone: object,
    ) -> list[Any]:
        """The shard of an id knows; by a key, those that empty themselves are asked first, as they get nothing new."""
        answers: list[Any] = [gone] * len(items)
        left, asked = list(range(len(items))), list[Generation]()
        while left and (rest := [each for each in self._namespace.generations if each not in asked]):
            generation = rest[0]
            asked.append(generation)
            got = await self._by_shard(
                left,
                lambda i, generation=generation: self._namespace.shard_of_ref(refs[i], generation),  # type: ignore[misc]
                lambda shard, some: call(shard, [items[i] for i in some]),
            )
            for i, answer in zip(left, got, strict=True):
                answers[i] = answer
            left = [i for i in left if answers[i] == gone and refs[i].id is None]
        return answers

    async def _by_shard(
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
        spread, only = self._namespace.spread, self._opened().only
        if only is not None and len(items) <= sending.PART:  # the short way, that most take
            told = await call(only, items)
            if self._namespace.spread is spread:
                return told
            # it was the only one no more, and knows nothing of what others have
            others = [i for i, item in enumerate(items) if shard_of(item) != only.number]
            found = await self._by_shard([items[i] for i in others], shard_of, call) if others else []
            for i, answer in zip(others, found, strict=True):
                told[i] = answer
            return told
        answers: dict[int, Any] = {}
        untried: list[int] = []
        failures: list[BideError] = []
        parts = await self._shards_of(items, shard_of)
        for shard, indexes in sorted(parts, key=lambda part: part[0].silent):
            try:
                if (wait_for == "nobody" or (wait_for == "the only part" and answers)) and await shard.is_away():
                    untried += indexes
                    continue
                got = await call(shard, [items[i] for i in indexes])
            except BideError as error:
                failures.append(error)
            else:
                answers.update(zip(indexes, got, strict=True))
        if len(answers) == len(items):
            return [answers[i] for i in range(len(items))]
        failed = next(iter(failures), None)
        done = [isinstance(error, ConfirmTimeout) for error in failures]
        if not answers and (not any(done) or (all(done) and not untried)):
            raise failed or Unavailable(AWAY)
        rest = "were done" if answers else "may not have been done"
        why = f"{failed or AWAY} This was one part of several, and others of the batch {rest}."
        raise OutcomeUnknown(why, answers=[answers.get(i) for i in range(len(items))], untried=untried) from failed

    async def _shards_of(self, items: Sequence[T], shard_of: Callable[[T], int]) -> list[tuple[AsyncShard, list[int]]]:
        """Which of a batch go where. A shard that is not known may be new; if it is not, any other says that it has nothing."""
        parts = list(sending.parts(items, shard_of))
        if not all(number in self._namespace.live for number, _ in parts):
            await self._opened().anchor.tell_time()
        shards = {shard.number: shard for shard in self._opened()}
        any_shard = next(iter(shards.values()))
        return [(shards.get(number, any_shard), indexes) for number, indexes in parts]

    def _next_of(self, done: set[AsyncShard]) -> AsyncShard | None:
        """The next shard that is not yet among those, of which it is one then. There may be others meanwhile."""
        left = next((shard for shard in self._opened() if shard not in done), None)
        if left is not None:
            done.add(left)
        return left

    def _next(self) -> int:
        self._turn += 1
        return self._turn

    def _opened(self) -> AsyncShards:
        if self._shards is None:
            raise Unavailable(UNOPENED)
        return self._shards
