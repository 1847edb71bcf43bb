# unasync: ../sync/relay.py
"""A relay of an outbox: it takes its turn, and hands what is committed to the queue's engine until it is stopped."""

import contextlib
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence

from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, SWEEP, Claim, Claimed, End, Hold
from bide.engines.guard.hooks import BadHook
from bide.errors import BadBody, BadMessage, BideError, OutcomeUnknown, QueueFull, Unavailable, Unsupported
from bide.logs import Log
from bide.queue import outbox
from bide.queue.affinity import AsyncAffinity
from bide.queue.aio.leader import LEAD, POLL, AsyncLeader
from bide.queue.aio.turns import LEASE, AsyncTurns
from bide.queue.away import Away, Kept, PutOff, Rests, end_of, refused_end
from bide.types import Sent
from bide.wakeable import AsyncBriefly, AsyncSignal

AT_ONCE = 100  # messages; MAX_BATCH behind many that are held back, if these have at most
LIGHT = 4_096  # bytes each
SOON, LATER = 500, 10_000  # ms until the next try while the queue's engine is away
LOOKS = 1_500  # ms in which what is behind many that are held back is found
ENOUGH = 60_000  # ms without any other, after which a call for what there is ends
GIVING = 1.0  # seconds in which a relay that ends gives back what it has put off
OFTEN = 30  # tries of what this release can't hand on; each next one is LATER by as much again
SURE = 300_000  # ms for which what is not confirmed is tried again: a try after ten minutes would send it a second time
LONGEST = 120_000  # ms between two of these tries
NAP = 0.005  # seconds between two looks whether the relays of a queue have ended

_log = Log("bide.outbox")


class AsyncRelays:
    """Those of one queue that are at work: it may be asked for what is there while it relays what comes."""

    def __init__(self) -> None:
        self._all: dict[AsyncRelay, object] = {}  # and the task or thread that each of them is in
        self._closed = False

    def begin(self, relay: "AsyncRelay") -> None:
        self._all[relay] = AsyncAffinity.caller()
        if self._closed:
            relay.stop()

    def end(self, relay: "AsyncRelay") -> None:
        self._all.pop(relay, None)

    def close(self) -> None:
        """Stop them, and all that begin from now on. Raises in the midst of one of them, which could not end meanwhile."""
        self._closed = True
        for relay in list(self._all):
            relay.stop()
        own = AsyncAffinity.caller()
        if any(caller == own and not relay.waits for relay, caller in list(self._all.items())):
            raise Unavailable(
                "The queue can't be closed by a hook or a signal handler in the midst of its own relay(), which ends soon now: "
                "close the queue after it."
            )

    async def ended(self, until: float) -> None:
        """Until they have seen through what they have claimed, or so long. They give back what they have put off."""
        while any(not each.waits for each in list(self._all)) and time.monotonic() < until:
            await AsyncSignal().wait(NAP)
        for each in list(self._all):
            if each.waits:  # until the engine is closed, beneath which it could give back nothing
                await each.give_back()


class AsyncRelay:
    """One call that hands on, and all that it knows. Any number of them may run: one is at work at a time."""

    def __init__(
        self,
        store: AsyncEngine,
        target: AsyncEngine,
        name: Callable[[Sequence[Kept], Sequence[Sent], int], Awaitable[None]],
        tend: Callable[[], Awaitable[bool]],
        turns: AsyncTurns,
        rests: Rests,
        relays: AsyncRelays,
    ) -> None:
        """`name`: remembers which ids messages have in the queue. `tend`: looks after the outbox, and tells whether
        there is more to do."""
        self._store = store
        self._target = target
        self._name = name
        self._tend = tend
        self._turns = turns
        self._rests = rests
        self._relays = relays
        self._away = Away(rests)
        self._lead = AsyncLeader(store)
        self._stops = False
        self._end = AsyncSignal()
        self.waits: bool = False  # for what is committed next: nothing is on its way
        self._pause = SOON
        self._patience = 0.0  # seconds until something may be due that nobody is told of
        self._upkeep_at = 0.0  # also while each claim finds something: what a dead relay had taken may be in its way
        self._at_once = AT_ONCE
        self._put_off = PutOff()
        self._for_others = False  # whether there was something that this release can't hand on
        self._gave_way = 0.0  # by time.monotonic(): when it last left that to others

    async def run(self) -> int:
        """Hand on what comes, until this is stopped or its queue is closed; how many messages that were."""
        total = 0
        try:
            self._relays.begin(self)
            while not self._stops:
                try:
                    if not await self._has_turn():
                        continue
                    if some := await self._hand_on():
                        total += some
                        self._pause = SOON
                    else:
                        await self._lead.leave()
                        await self._wait()
                except BideError as error:  # also one of rights, which may be granted
                    await self._lead.leave()
                    await self._try_later(error)
        finally:
            await self._leave()
        return total

    async def hand_on_all(self) -> int:
        """Hand on what there is; how many messages that were. Raises at the end, if some had to be put off.

        None, if another relay is at work all the time. It ends early if its queue is closed.
        """
        total = 0
        try:
            self._relays.begin(self)
            until = time.monotonic() + LEAD / 1000 + POLL
            while not await self._has_turn():
                if self._stops or time.monotonic() > until:
                    return 0
            until = time.monotonic() + ENOUGH / 1000  # what is held back comes again
            while not (self._stops or await self._lead.taken()):
                some = await self._hand_on()
                if some:
                    total, until = total + some, time.monotonic() + ENOUGH / 1000
                elif some == 0 or time.monotonic() > until:
                    break
        finally:
            await self._leave()
        if self._away.left is not None:
            raise self._away.left
        return total

    def stop(self) -> None:
        """Have it end when what it has claimed is handed on."""
        self._stops = True
        self._end.set()

    async def _leave(self) -> None:
        try:
            try:
                await self.give_back()
            finally:
                await self._lead.leave()
        finally:
            self._relays.end(self)

    async def give_back(self) -> None:
        """What this relay has put off, as if the leases had ended: as much as there is time for."""
        until, holds = time.monotonic() + GIVING, self._put_off.shared()
        with contextlib.suppress(BideError, TimeoutError):
            async with AsyncBriefly(GIVING):
                while holds and time.monotonic() < until:
                    await self._store.extend(holds[:MAX_BATCH], 0, brief=True)
                    await self._tend()
                    del holds[:MAX_BATCH]

    async def _has_turn(self) -> bool:
        """Whether this relay is the one at work now. If not, it has waited for a while or is stopped."""
        if self._stops:
            return False
        await self._store.open()
        if self._for_others and time.monotonic() > self._gave_way + LATER / 1000:
            self._for_others, self._gave_way = False, time.monotonic()
            await self._lead.leave()
            away = 2 * POLL
        else:
            away = await self._lead.taken()
        if away:
            await self._pause_for(round(1000 * away))
        return not (away or self._stops)

    async def _wait(self) -> None:
        if self._stops:
            return
        self.waits = True
        try:
            await self._store.wait([outbox.TOPIC], self._patience)
        finally:
            self.waits = False

    async def _try_later(self, error: BideError) -> None:
        if not self._stops:
            _log.warning("Messages stay in the outbox, and are tried again in %.1f s: %s", self._pause / 1000, error)
            await self._pause_for(self._pause)
            self._pause = min(2 * self._pause, LATER)

    async def _pause_for(self, ms: int) -> None:
        self._end.clear()  # which the last pause has set
        if not self._stops:
            await self._end.wait(ms / 1000)

    async def _hand_on(self) -> int | None:
        """Hand on a bounded number. Raises when the queue's engine does not take it. None: all that it saw is held back."""
        end = time.monotonic() + LOOKS / 1000
        while True:
            handed_on, held_back = await self._hand_on_some()
            if handed_on or held_back < AT_ONCE or self._stops:
                return handed_on
            if time.monotonic() > end:
                self._patience = 0.0
                return None

    async def _hand_on_some(self) -> tuple[int, int]:
        """How many were handed on, had expired or were refused; and how many held back."""
        if (now := time.monotonic()) >= self._upkeep_at:
            more = await self._tend()
            self._put_off.taken_back(now)
            self._upkeep_at = now if more else self._put_off.upkeep(now + SWEEP)
        claim = await self._store.claim([outbox.TOPIC], self._at_once, LEASE)
        self._at_once = AT_ONCE
        self._patience = max(0, self._upkeep_at - now)
        if claim.next_due is not None:
            self._patience = min(self._patience, max(0, claim.next_due - claim.now) / 1000)
        if not claim.messages:
            return 0, 0
        ends: list[End] = []
        try:
            kept = await self._turns.in_turn(self._away.answering(self._read(claim, ends), ends), ends, claim.now)
            await self._put(kept, ends, claim.now)
        except BideError as error:
            ended = {end.id for end in ends}
            left = [each for each in claim.messages if each.id not in ended]
            later = self._kept_for_later(left, apart=isinstance(error, QueueFull))
            if not self._target.capabilities.idempotent and isinstance(error, QueueFull | Unavailable):
                never = {each.id for each in left if each.attempt == 1}  # no earlier try, which may have got there
                await self._store.settle([end for end in later if end.id in never])  # so they can be cancelled
                later = [end for end in later if end.id not in never]
            await self._settle(ends)
            await self._settle(later, shared=not isinstance(error, QueueFull))
            raise
        await self._settle(ends)
        held_back = sum(end.verdict == "release" for end in ends)
        if 2 * held_back > len(ends) and sum(len(each.body) for each in claim.messages) <= LIGHT * len(ends):
            self._at_once = MAX_BATCH
        return len(ends) - held_back, held_back

    async def _settle(self, ends: Sequence[End], *, shared: bool = True) -> None:
        """What is put off stays leased so long, and keeps its due time: so claims pass over it, and it keeps its place before
        what was sent later with its key.
        """
        if done := [end for end in ends if end.verdict != "release" or not end.delay]:
            await self._store.settle(done)
            self._turns.gone([end for end in done if end.verdict != "release"])
        for delay in {end.delay for end in ends if end.verdict == "release" and end.delay}:
            put_off = [Hold(end.topic, end.id, end.token) for end in ends if (end.verdict, end.delay) == ("release", delay)]
            await self._store.extend(put_off, delay)
            self._put_off.add(put_off, delay, shared=shared)
        self._upkeep_at = self._put_off.upkeep(self._upkeep_at)
        self._patience = min(self._patience, max(0, self._upkeep_at - time.monotonic()))

    def _kept_for_later(self, left: Sequence[Claimed], *, apart: bool) -> list[End]:
        """Until others have been tried. `apart`: the largest one, which may be why a server is full, is tried by itself."""
        largest, pause = max((len(each.body) for each in left), default=0), 2 * self._pause + SOON
        return [end_of(each, "release", pause + LATER * (apart and len(each.body) == largest)) for each in left]

    def _stays(self, claimed: Claimed, error: Unsupported | BadHook) -> End:
        _log.warning("A message stays in the outbox: %s", error)
        self._for_others = True
        return end_of(claimed, "release", LATER * min(claimed.attempt, OFTEN))

    def _read(self, claim: Claim, ends: list[End]) -> list[Kept]:
        """What is to be handed on. The ends of all others are added to the list."""
        kept: list[Kept] = []
        for each in sorted(claim.messages, key=lambda each: each.id):
            try:
                new = outbox.handed_on(each, claim.now, once=self._target.capabilities.idempotent)
            except Unsupported as error:
                ends.append(self._stays(each, error))
            except BadBody as error:
                ends.append(refused_end(each, error))
            else:
                if new is None:
                    ends.append(end_of(each))
                else:
                    kept.append((each, new))
        return kept

    async def _put(self, kept: Sequence[Kept], ends: list[End], now: int, *, single: bool = False) -> None:
        """Together; if that is refused, one by one, and those that can't be sent become dead letters of the outbox.

        What this engine can't take stays, for a relay to another one; and what a hook of this relay has spoilt.
        """
        if not kept:
            return
        left: list[Kept] = []
        try:
            sent: Sequence[Sent] = await self._target.put([new for _, new in kept])
        except OutcomeUnknown as error:
            if isinstance(error.__cause__, BadMessage):  # the one that is refused has taken others along
                await self._put_singly(kept, ends, now)
                return
            kept, sent = self._done(kept, ends, error, now, left)
        except Unavailable as error:
            self._away.put_off(kept, ends, error, LATER)
            return
        except (BadMessage, Unsupported, QueueFull) as error:
            apart = isinstance(error, QueueFull) and self._target.part_of(kept[0][1]) is not None
            if len(kept) > 1 or (apart and not single):  # the part of these is full: others may have room
                await self._put_singly(kept, ends, now, apart=apart)
            elif isinstance(error, Unsupported | BadHook):
                ends.append(self._stays(kept[0][0], error))
            elif isinstance(error, BadMessage):
                ends.append(refused_end(kept[0][0], error))
            else:
                raise
            return
        else:
            self._rests.answered(kept)
        await self._name(kept, sent, now)
        ends += [end_of(claimed) for claimed, _ in kept]
        await self._put_singly(left, ends, now, apart=True)

    def _done(
        self, kept: Sequence[Kept], ends: list[End], error: OutcomeUnknown, now: int, left: list[Kept]
    ) -> tuple[Sequence[Kept], Sequence[Sent]]:
        """What was handed on of a batch, with its answers. The rest is put off, and keeps no others back: nor does what is
        sent to the same parts of the queue's engine, which rest for a while. If one is full, the rest is added to `left`.

        What was not confirmed is sent again, by the same operation, for as long as the queue's engine is sure to know it.
        """
        told = error.done or error.answers
        if not any(told):
            self._away.put_off(kept, ends, error, LATER)
            return [], []
        full = isinstance(error.__cause__, QueueFull) and self._target.capabilities.idempotent
        if not full:
            self._away.tell(error, LATER)
        handed_on: list[Kept] = []
        sent: list[Sent] = []
        answers = error.answers or [None] * len(kept)
        for (claimed, new), answer, done in zip(kept, answers, told, strict=True):
            each = [(claimed, new)]
            if full and done is None:
                left += each
                continue
            age = 0 if claimed.began is None else now - claimed.began
            if done is not None:
                self._rests.answered(each)
            if answer is None:
                self._rests.begin(each, error, LATER)
            if answer is not None or (done is not None and age >= SURE):
                handed_on.append((claimed, new))
                sent.append(done)
            elif done is not None or self._away.answering(each, ends):
                ends.append(end_of(claimed, "release", LATER if done is None else min(max(LATER, age), LONGEST)))
        return handed_on, sent

    async def _put_singly(self, kept: Sequence[Kept], ends: list[End], now: int, *, apart: bool = False) -> None:
        """One that stays, or finds no room, keeps back only later ones of its key. `apart`: a part with no room rests then."""
        full: QueueFull | None = None
        refused, took = list[Claimed](), set[Hashable]()  # and the parts that took any
        room: dict[Hashable, int] = {}  # in parts that are full: for less than so many bytes
        stuck: set[outbox.Name] = set()
        for claimed, new in kept:
            name = outbox.Name(new.topic, new.key)
            if self._away.answering([(claimed, new)], ends):
                if name in stuck:
                    ends.append(end_of(claimed, "release", SOON))
                    continue
                part, size = self._target.part_of(new), len(new.body)
                try:
                    if apart and size >= room.get(part, size + 1):
                        refused.append(claimed)
                    else:
                        await self._put([(claimed, new)], ends, now, single=True)
                        if ends[-1].verdict != "release":
                            took.add(part)
                            continue
                except QueueFull as error:
                    full, room[part] = error, size
                    refused.append(claimed)
            if name.key is not None:
                stuck.add(name)
        if full is None:
            return
        if not apart:
            raise full
        self._away.tell(full, LATER)
        self._rests.begin([each for each in kept if self._target.part_of(each[1]) in room.keys() - took], full, LATER)
        ends += self._kept_for_later(refused, apart=True)
