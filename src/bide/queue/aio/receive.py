# unasync: ../sync/receive.py
"""How messages come in: claim; when there is nothing, tend and sleep until something may be due. And `queue.listen`."""

import contextlib
import functools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, suppress
from random import randrange

from bide.core.formats import plural
from bide.engines.aio import AsyncEngine
from bide.engines.base import SWEEP, Claim, End, Ended, Hold, Tended
from bide.engines.gates import Called
from bide.errors import ConfigError, EngineError, OutcomeUnknown, Unavailable
from bide.logs import Log
from bide.queue.aio.claims import AsyncFresh, AsyncOpener, AsyncPlace, taken_from
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.batching import AsyncBatching
from bide.queue.deliveries import Cycles
from bide.queue.envelope import Envelope
from bide.queue.events import UNHEARD, Subscriptions
from bide.queue.heartbeat import Heartbeat
from bide.queue.leases import Absence, Asked, Beat
from bide.queue.run.aio.limits import call
from bide.wakeable import AsyncSignal

TICK = 0.001  # seconds
CAUTION = 60.0  # seconds: upkeep is done this often, also when none seems to be needed
ROUNDS = 100  # of upkeep, each of a thousand messages at most
TEND = 1.0  # seconds: while there is always something to claim, upkeep is done no more often
PATIENCE = 12  # sweeps


class AsyncReceiver:
    def __init__(
        self,
        engine: AsyncEngine,
        envelope: Envelope,
        settles: AsyncBatching[End, Ended],
        heartbeat: Heartbeat,
        subscriptions: Subscriptions = UNHEARD,
    ) -> None:
        self._engine = engine
        self.opener: AsyncOpener = AsyncOpener(engine, envelope, settles, subscriptions)
        self._heartbeat = heartbeat
        self._tended = 0.0
        self._to_tend = True
        self._absence: Absence | None = None
        self.calls: Callable[[Sequence[Called]], object] | None = None  # messages whose turn has come, for a worker
        self.fresh: AsyncFresh = AsyncFresh(engine)

    async def take(
        self, topics: Sequence[str], limit: int, lease_ms: int, wait: float, *, linger: float = 0.0
    ) -> list[AsyncDelivery]:
        """Up to `limit` deliveries; when there is none, sleep up to `wait` seconds for the first, and then for `linger`."""
        place = self.fresh.new_place()
        try:
            await self.fill(place, topics, limit, lease_ms, wait, linger=linger)
            return taken_from(place)
        finally:
            self.fresh.leave(place)

    async def taken(self, topics: Sequence[str], limit: int, lease_ms: int) -> tuple[Claim, list[AsyncDelivery]]:
        """A claim and its deliveries."""
        place = self.fresh.new_place()
        try:
            claim = await self.bring(place, topics, limit, lease_ms)
            return claim, taken_from(place)
        finally:
            self.fresh.leave(place)

    async def fill(
        self,
        place: AsyncPlace,
        topics: Sequence[str],
        limit: int,
        lease_ms: int,
        wait: float,
        *,
        linger: float = 0.0,
        asked: Asked | None = None,
    ) -> None:
        """Put what `take` would give into its place."""
        until = time.monotonic() + wait
        empty = not place
        try:
            while True:
                claim = await self.bring(place, topics, limit - len(place), lease_ms, asked=asked)
                if empty and place:
                    empty, until = False, time.monotonic() + linger
                left = until - time.monotonic()
                if len(place) >= limit or (left <= 0 and (place or not (claim.messages or claim.more))):
                    return
                if not claim.messages and not claim.more:
                    await self._engine.wait(topics, min(left, self.pause(claim)))
        except BaseException:
            await self.fresh.try_to_give_back(place)  # nobody gets them
            raise

    async def bring(
        self, place: AsyncPlace, topics: Sequence[str], limit: int, lease_ms: int, *, asked: Asked | None = None
    ) -> Claim:
        """A claim, with its deliveries in their place. They are given back if they don't get there.

        asked: the caller will keep them. So their leases are renewed from the start: all this may have to wait for a busy
        event loop.
        """
        await self.fresh.give_back_unanswered()
        request = self.fresh.begin_claim()
        try:
            if asked is None:
                claim = await self.claim(topics, limit, lease_ms, request)
                place.extend(await self.opener.open(claim))
            else:
                with self._heartbeat.asking(Asked(request, lease_ms)) as named:
                    claim = await self.claim(topics, limit, lease_ms, request, asked=asked)
                    place.extend(await self.opener.open(claim, named))
        except BaseException as error:  # also what a signal handler raises, whatever that is
            await self.fresh.failed(request, error)
            raise
        await self.fresh.came(request, place)
        return claim

    async def claim(
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
            left = _found(await self.tend())
        claim = await self._claim(topics, limit, lease_ms, request, asked)
        if left and self._to_tend and not claim.messages and not claim.more and _found(await self.tend()):
            claim = await self._claim(topics, limit, lease_ms, request, asked)
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

    async def _claim(self, topics: Sequence[str], limit: int, lease_ms: int, request: str, asked: Asked | None) -> Claim:
        if asked is None:
            claim = await self._engine.claim(topics, limit, lease_ms, request=request)
        else:
            asked.until = self._heartbeat.seen + lease_ms
            began = self._heartbeat.beginning()
            claim = await self._engine.claim(topics, limit, lease_ms, request=request)
            asked.until = self._heartbeat.claimed(claim.now, began, lease_ms) if claim.messages else None
        self._heartbeat.hear(claim.now)
        self._to_tend = claim.upkeep is None or claim.upkeep <= claim.now
        if self._absence is not None:
            self._absence.hear(claim.now)
        return claim

    async def take_back(self) -> bool:
        """Take back leases that have ended: nobody may have noticed, while nobody receives. Whether there were any.

        Who may not, or can't now, has its answer without it.
        """
        rounds = 0
        with contextlib.suppress(EngineError, ConfigError):
            while rounds < ROUNDS and _found(await self.tend()):
                rounds += 1
        return rounds > 0

    async def tend(self) -> Tended:
        """A piece of upkeep. Messages whose turn has come at a gate are called. If that fails, a later tend names them."""
        self._tended = time.monotonic()
        await self.renew()
        bounds = (self._heartbeat.none_ended(), self._absence.ended_by() if self._absence is not None else None)
        did = await self._engine.tend(ended_by=min((each for each in bounds if each is not None), default=None))
        if self.calls is not None:
            self.calls(did.called)
        elif did.called:
            with suppress(EngineError):
                await call(self._engine, did.called)
        return did

    def notice_absence(self) -> Absence:
        """From now on, for a caller that claims again and again, and gives a pulse meanwhile."""
        self._absence = Absence()
        return self._absence

    async def renew(self) -> int:
        """Renew what the heartbeat has not renewed in time, before others' leases are looked at; how many leases."""
        seen, doubtful, asked = self._heartbeat.seen, self._heartbeat.doubtful(), time.monotonic()
        answers: Sequence[bool | None]
        renewed = 0
        for part in doubtful:
            try:
                if holds := part.holds:
                    answers = await self._engine.extend(holds, part.lease_ms, brief=True)
                else:
                    answers = await self._engine.gates.keep(part.held, part.lease_ms, brief=True)
            except OutcomeUnknown as error:  # a part of the engine may not answer; that of others must not wait for it
                if not error.answers:
                    raise
                answers = error.answers
            self._heartbeat.renewed(part, answers, seen, asked)
            renewed += answers.count(True)
        return renewed

    def asking(self) -> AbstractContextManager[Asked]:
        """While deliveries are asked for, and until they are kept."""
        return self._heartbeat.asking()

    def keep(self, place: AsyncPlace, lease_ms: int, until: int, held: set[Hold], freed: AsyncSignal) -> None:
        """Renew the leases of these deliveries, which don't end before `until`, as long as they are out."""
        deliveries = [each._internals for each in list(place)]
        if not deliveries:
            return

        def lost(hold: Hold) -> None:
            held.discard(hold)
            freed.set()

        def end(hold: Hold) -> None:
            self._heartbeat.remove(beat, hold)
            held.discard(hold)
            freed.set()

        holds = [each.hold for each in deliveries]
        beat = Beat(holds, lease_ms, until, lost)
        held.update(holds)
        for delivery, hold in zip(deliveries, holds, strict=True):
            delivery.kept = functools.partial(self._heartbeat.extended, beat)
            delivery.on_end = functools.partial(end, hold)
            delivery.on_drop = functools.partial(self._heartbeat.drop, beat, hold)
        self._heartbeat.add(beat)

    def see_to_leases(self) -> None:
        """Where no thread could be started to renew them, try again."""
        self._heartbeat.see_to_thread()


def _found(did: Tended) -> bool:
    """Whether there may be something to claim now."""
    return bool(did.returned or did.called or did.more)


_log = Log("bide.intake")


class AsyncListening:
    """Deliveries, one after the other; at most `limit` are held, and their leases are renewed.

    Nothing here names a delivery while it is out: one that its user drops is gone at once, and its place is free.
    """

    def __init__(self, receiver: AsyncReceiver, topics: Sequence[str], limit: int, lease_ms: int) -> None:
        self._receiver = receiver
        self._topics = topics
        self._limit = limit
        self._lease_ms = lease_ms
        self._held: set[Hold] = set()
        self._freed = AsyncSignal()
        self._cycles = Cycles()
        self._full = 0  # sweeps since there was room
        self._fresh = receiver.fresh.new_place()

    async def next(self) -> AsyncDelivery:
        """The next one that is still held. A close may take some out meanwhile, and then raises Unavailable."""
        while True:
            with suppress(IndexError):
                while (delivery := self._fresh.popleft())._internals.hold not in self._held:
                    pass
                return delivery
            await self._bring()

    async def _bring(self) -> None:
        receiver, held, freed = self._receiver, self._held, self._freed
        freed.clear()
        receiver.fresh.check()
        receiver.see_to_leases()
        if len(held) < self._limit:
            with receiver.asking() as asked:
                room, wait = self._limit - len(held), SWEEP if held else CAUTION
                await receiver.fill(self._fresh, self._topics, room, self._lease_ms, wait, asked=asked)
                receiver.keep(self._fresh, self._lease_ms, asked.until or 0, held, freed)
            self._full = 0
            return
        await freed.wait(SWEEP)
        self._full += 1
        if len(held) == self._limit:
            self._cycles.collect()
        if self._full == PATIENCE:
            many = plural(self._limit, "message")
            _log.warning("listen(%r) has held %s for a minute without an end: see limit=", self._topics[0], many)

    async def close(self) -> None:
        """Give back what nobody has taken."""
        try:
            await self._receiver.fresh.give_back(self._fresh)
        finally:
            self._receiver.fresh.leave(self._fresh)


async def listen(
    opened: Callable[[], Awaitable[AsyncReceiver]], topics: Sequence[str], limit: int, lease_ms: int
) -> AsyncGenerator[AsyncDelivery, None]:
    """Deliveries, one after the other, until the queue is closed."""
    receiver = await opened()
    listening = AsyncListening(receiver, topics, limit, lease_ms)
    try:
        while True:
            yield await listening.next()
    except Unavailable:
        if not receiver.fresh.closed:
            raise
    finally:
        await listening.close()
