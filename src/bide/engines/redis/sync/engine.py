# Generated from ../aio/engine.py by tools/unasync.py; change that file instead.
"""The Redis engine: each verb is a script on the shard that its messages live in."""

import contextlib
import math
import time
from collections.abc import Callable, Collection, Sequence
from random import randrange
from typing import Any, Literal, TypeVar

from msgspec.structs import replace

from bide.core.when import check_delay
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
from bide.engines.redis.failures import BRIEF, OtherSpread
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.protocol import counting, delivering, listing, sending
from bide.engines.redis.spread import Generation
from bide.engines.redis.sync.around import AWAY, Around, present_first
from bide.engines.redis.sync.shard import Shard
from bide.engines.redis.sync.shards import Shards
from bide.engines.redis.sync.wakeup import WAKEUPS, Wakeup
from bide.engines.sync import Engine
from bide.errors import BideError, ConfirmTimeout, OutcomeUnknown, Unavailable
from bide.ids import lane, requests
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats

T = TypeVar("T")
R = TypeVar("R", bound=list[Any])
MOST = 1_000  # sets of topics whose next due time is remembered
UNOPENED = "The Redis engine is not open: open() it first."
PARTS = 3  # of a lease: when there are several shards, a renewal has one of these
NEAR = 0.05  # seconds: a sleep that ends this close to a due time ends to the millisecond


class Redis(Engine):
    _around: Around  # while it is open

    def __init__(self, namespace: Namespace, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
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
            shards, wake = Shards(self._namespace), self._namespace.address.wake
            try:
                shards.open()
                for shard in shards.one_a_server():
                    shard.greet()
                for shard in shards if wake == "expiry" else ():
                    shard.ask_for_expiry()
            except BaseException:
                shards.disconnect()
                raise
            self._shards = shards
            self._around = Around(self._me, shards)
            self._wakeup = WAKEUPS[wake](self._namespace.address, shards)

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
                if shard.connections not in away and not shard.leave(self._me, topics):
                    away.add(shard.connections)
        finally:
            shards.disconnect()

    def abandon(self) -> None:
        shards, self._shards = self._shards, None
        if shards is not None:
            shards.abandon()

    def put(self, messages: Sequence[NewMessage], *, connection: object | None = None, now: int | None = None) -> list[Sent]:
        only = self._opened().only
        if only is not None and len(messages) == 1:  # the short way, that most sends take
            with contextlib.suppress(OtherSpread):
                return only.put(messages, now)
        while True:
            with contextlib.suppress(OtherSpread):  # messages go to other shards now
                return self._put(messages, now)

    def _put(self, messages: Sequence[NewMessage], now: int | None) -> list[Sent]:
        shards, (*old, current) = self._opened(), self._namespace.generations
        parts = self._parts(messages, current)
        if len(parts) > 1 or (old and any(map(_has_name, messages))):
            return self._put_apart(messages, now)
        [(number, _)] = parts
        shard = shards[number]
        if any(map(_has_name, messages)):
            return shard.put(messages, now)
        while any(not shards[other].silent for other in current.numbers if other != shard.number):
            try:
                return shard.put(messages, now, patience=BRIEF)
            except Unavailable:  # it has done nothing, so another one may do it
                if not shard.silent:
                    raise
                shard = shards[self._any_shard(current)]
        return shard.put(messages, now)

    def _put_apart(self, messages: Sequence[NewMessage], now: int | None) -> list[Sent]:
        """Send in several parts. Each message has an operation, so all can be sent again if one part fails.

        While some shards empty themselves, they are asked first what they know of a message with a name.
        """
        shards, name = self._opened(), lane()
        named_before = list(map(_has_name, messages))
        named = [new if new.operation else replace(new, operation=f"{name}#{i}") for i, new in enumerate(messages)]
        for shard, indexes in self._parts(named, self._namespace.generations[-1]):  # before the first part is taken
            for i in indexes:
                check_delay(named[i].delay, named[i].at, max(shards[shard].clock.known, now or 0))
        answers: dict[int, Sent] = {}
        while len(answers) < len(named):
            try:
                with contextlib.suppress(OtherSpread):  # what is left may go to others
                    self._put_left(named, named_before, answers, now)
            except BideError as error:
                if not answers and not isinstance(error, OutcomeUnknown):
                    raise
                told = f"{error} This was one part of several, and others of the batch were taken."
                kind = type(error) if isinstance(error, OutcomeUnknown) else OutcomeUnknown
                raise kind(told if answers else str(error), operations=[new.operation or "" for new in named]) from None
        return [answers[i] for i in range(len(named))]

    def _put_left(
        self, messages: Sequence[NewMessage], ask_old: Sequence[bool], answers: dict[int, Sent], now: int | None
    ) -> None:
        """What has no answer yet."""
        shards, (*old, current) = self._opened(), self._namespace.generations
        for generation in (*old, current):
            left = [i for i in range(len(messages)) if i not in answers and (generation is current or ask_old[i])]
            for shard, at in self._parts([messages[i] for i in left], generation):
                some = [messages[left[k]] for k in at]
                told = (shards[shard].put if generation is current else shards[shard].put_known)(some, now)
                answers.update({left[k]: sent for k, sent in zip(at, told, strict=True) if sent is not None})

    def _parts(self, messages: Sequence[NewMessage], generation: Generation) -> list[tuple[int, list[int]]]:
        any_shard = self._any_shard(generation)
        return sending.put_parts(messages, lambda new: self._namespace.shard_of(new, any_shard, generation))

    def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        shards = self._opened()
        named = request if request is not None else self._new_request()
        woken = self._woken
        if shards.only is not None:
            in_turn = topics if len(topics) <= 1 else delivering.turned(topics, self._next())
            claim = shards.only.claim(self._me, in_turn, limit, lease, named, now, woken=woken)
        else:
            claim = self._around.claim(topics, limit, lease, named, now, self._next(), again=request is not None, woken=woken)
        self._woken = bool(claim.messages)  # then others were sent with them, or left behind
        if len(self._alarms) >= MOST:
            self._alarms.clear()
        wait = math.inf if claim.next_due is None else (claim.next_due - claim.now) / 1000
        self._alarms[frozenset(topics)] = time.monotonic() + wait
        return claim

    def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        only = self._opened().only
        if only is not None and len(ends) <= sending.PART:  # the short way, that most take
            return only.settle(ends, now)
        return self._spread(
            ends, self._namespace.shard_of_id, lambda shard, some: shard.settle(some, now), wait_for="the only part"
        )

    def extend(self, holds: Sequence[Hold], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        shards = self._opened()
        if len(shards) == 1 or not brief:
            return self._spread(holds, self._namespace.shard_of_id, lambda shard, some: shard.extend(some, lease, now))
        patience = min(lease / 1000 / PARTS, shards.live[0].connections.server.retry_for)
        try:
            return self._spread(
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

    def cancel(self, refs: Sequence[Ref], *, connection: object | None = None, now: int | None = None) -> list[CancelResult]:
        return self._by_ref(refs, refs, lambda shard, some: shard.cancel(some, now), CancelResult.GONE)

    def reschedule(
        self, moves: Sequence[Move], *, connection: object | None = None, now: int | None = None
    ) -> list[RescheduleResult]:
        refs, shards = [move.ref for move in moves], self._opened()
        for move in moves if shards.only is None or len(moves) > sending.PART else ():  # before the first part is done
            shard = shards[self._namespace.shard_of_ref(move.ref, self._namespace.generations[-1])]
            check_delay(move.delay, move.at, max(shard.clock.known, now or 0))
        return self._by_ref(moves, refs, lambda shard, some: shard.reschedule(some, now), RescheduleResult.GONE)

    def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
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
                did += shard.tend(min(spare, sending.PART), ended_by, now, patience=patience)
            except BideError as error:  # one shard that fails keeps the others from nothing
                failed.append(error)
        if len(failed) == len(shards):
            raise failed[0]
        return did

    def wait(self, topics: Sequence[str], timeout: float) -> None:
        if self._wakeup is None:
            raise Unavailable(UNOPENED)
        alarm = self._alarms.get(frozenset(topics), 0.0)
        if self._wakeup.wait(topics, timeout, sharp=alarm < time.monotonic() + timeout + NEAR):
            self._woken = True

    def get(self, refs: Sequence[Ref], *, now: int | None = None) -> list[Stored | None]:
        return self._by_ref(refs, refs, lambda shard, some: shard.get(some, now), None)

    def scan(self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None) -> Scanned:
        shards = self._opened()
        page = listing.Listing(topic, state, limit, after, [shard.number for shard in shards])
        while searches := page.searches():
            for search in searches:
                shards[search.shard].find(search, now)
            chosen = page.choose(searches)
            page.show(self._spread(chosen, lambda each: each.shard, lambda shard, some: shard.show(topic, some, now)))
        return page.page()

    def stats(
        self, topic: str | None = None, *, but: Collection[str] = (), window: Window | None = None, now: int | None = None
    ) -> Stats:
        parts = window.parts if window else 0
        told: dict[str, list[Stats]] = {}
        for shard in self._opened():
            for name, one in shard.stats(topic, but, window, now).items():
                told.setdefault(name, []).append(one)
        topics = {} if topic is not None else {name: counting.together(each, {}, 0) for name, each in told.items()}
        return counting.together([one for each in told.values() for one in each], topics, parts)

    def requeue(
        self, topic: str, ids: Sequence[str] | None = None, *, delay: int = 0, limit: int = MAX_BATCH, now: int | None = None
    ) -> Swept:
        count, more, keyless = 0, False, 0
        for shard in self._opened():
            one = shard.requeue(topic, ids, delay, limit - count, now)
            count, more, keyless = count + one.count, more or one.more, keyless + one.keyless
        return Swept(count, more, keyless)

    def purge(self, topic: str, state: State, *, limit: int = MAX_BATCH, now: int | None = None) -> Swept:
        count, more = 0, False
        for shard in self._opened():
            one = shard.purge(topic, state, limit - count, now)
            count, more = count + one.count, more or one.more
        return Swept(count, more)

    def pause(self, topic: str, paused: bool) -> None:
        done: set[int] = set()
        while left := [shard for shard in self._opened() if shard.number not in done]:  # there may be others meanwhile
            left[0].pause(topic, paused)
            done.add(left[0].number)

    def _by_ref(
        self,
        items: Sequence[T],
        refs: Sequence[Ref],
        call: Callable[[Shard, Sequence[T]], R],
        gone: object,
    ) -> list[Any]:
        """The shard of an id knows; by a key, those that empty themselves are asked first, as they get nothing new."""
        answers: list[Any] = [gone] * len(items)
        left, asked = list(range(len(items))), list[Generation]()
        while left and (rest := [each for each in self._namespace.generations if each not in asked]):
            generation = rest[0]
            asked.append(generation)
            got = self._spread(
                left,
                lambda i, generation=generation: self._namespace.shard_of_ref(refs[i], generation),  # type: ignore[misc]
                lambda shard, some: call(shard, [items[i] for i in some]),
            )
            for i, answer in zip(left, got, strict=True):
                answers[i] = answer
            left = [i for i in left if answers[i] == gone and refs[i].id is None]
        return answers

    def _spread(
        self,
        items: Sequence[T],
        shard_of: Callable[[T], int],
        call: Callable[[Shard, Sequence[T]], R],
        *,
        wait_for: Literal["all", "the only part", "nobody"] = "all",
    ) -> list[Any]:
        """Ask each shard for its part of a batch, in pieces if that is long. The answers are in the order of the batch.

        When one fails and another was done, it is OutcomeUnknown, with the answers of the others. `wait_for`: a shard that did
        not answer lately is asked last, or not at all.
        """
        shards = self._opened()
        if shards.only is not None and len(items) <= sending.PART:
            return call(shards.only, items)
        answers: dict[int, Any] = {}
        untried: list[int] = []
        failed: BideError | None = None
        parts = [(shards[shard], indexes) for shard, indexes in sending.parts(items, shard_of)]
        for shard, indexes in sorted(parts, key=lambda part: part[0].silent):
            try:
                if (wait_for == "nobody" or (wait_for == "the only part" and answers)) and shard.is_away():
                    untried += indexes
                    continue
                got = call(shard, [items[i] for i in indexes])
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

    def _any_shard(self, generation: Generation) -> int:
        """For what may be on any: the next one by turns, of those that answer."""
        shards, first = self._opened(), self._next()
        numbers = [generation.numbers[(first + turn) % generation.size] for turn in range(generation.size)]
        return next((number for number in numbers if not shards[number].silent), numbers[0])

    def _next(self) -> int:
        self._turn += 1
        return self._turn

    def _opened(self) -> Shards:
        if self._shards is None:
            raise Unavailable(UNOPENED)
        return self._shards


def _has_name(new: NewMessage) -> bool:
    """Whether a shard may know of it already."""
    return new.key is not None or new.operation is not None
