"""Takes messages in: as many as there are places for, and then it sleeps until more may be due."""

import asyncio
import contextlib
from collections.abc import Sequence

from msgspec.structs import replace

from bide.engines.base import MAX_BATCH, Claim
from bide.errors import EngineError
from bide.logs import Log
from bide.queue.aio.opened import AsyncOpened
from bide.queue.aio.receive import CAUTION
from bide.queue.leases import Absence, Asked
from bide.queue.tasks.outcome import Outcome
from bide.worker.claim_log import ClaimLog, ClaimNames
from bide.worker.engine_trouble import EngineTrouble
from bide.worker.pipeline import UnderWay
from bide.worker.plan import Plan
from bide.worker.recovery import Killed, burial, in_last_attempt
from bide.worker.slots import Ask, Slots

_log = Log("bide.worker")
TELLING = 10.0  # seconds: how long on_dead of messages that killed earlier processes delays the first claim


class Claimer:
    def __init__(
        self,
        opened: AsyncOpened,
        plan: Plan,
        slots: Slots,
        names: ClaimNames | ClaimLog,
        under_way: UnderWay,
        stopping: asyncio.Event,
    ) -> None:
        self._engine = opened.engine
        self._receiver = opened.receiver
        self.absence: Absence = opened.receiver.notice_absence()
        self._slots = slots
        self._under_way = under_way
        under_way.freed = self.freed
        self._names = names
        self._heartbeat = opened.heartbeat
        self._killed = [*plan.killed]
        self._unsure: list[tuple[int, Asked]] = []  # claims whose answer did not come
        self._lease_ms = plan.lease_ms
        self._stopping = stopping
        self.retrying: EngineTrouble = EngineTrouble("take messages", stopping)
        self._left: list[int] = []  # groups that were not asked for, since there is no room for them
        self._freed = asyncio.Event()
        self._sleep: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Take nothing more; a claim that is under way is seen through, and what it brings is given back."""
        self._stopping.set()
        self._freed.set()
        if self._sleep is not None:
            self._sleep.cancel()

    def freed(self) -> None:
        """There may be room for more."""
        self._freed.set()
        if self._left and self._sleep is not None and self._room_in_left():
            self._sleep.cancel()

    def _room_in_left(self) -> bool:
        return any(self._ask(group).limit for group in self._left)

    def _ask(self, group: int) -> Ask:
        """What there is room for in a group, and a name in the claim log."""
        asked = self._slots.ask(group, self._under_way.room(), ahead=self._under_way.ahead)
        return asked if self._names.room() else Ask(asked.topics, 0)

    async def run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._killed:
                    await self._bury_killed()
                if not self._stopping.is_set():
                    await self._round()
            except EngineError as error:
                await self.retrying.lose(error)
            else:
                if self.retrying.failing_since:
                    self.retrying.regain()

    async def _bury_killed(self) -> None:
        """Bury messages that killed earlier processes before new messages are claimed: one of these may kill this process."""
        if not sum([await self._bury(each) for each in [*self._killed]]):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TELLING):
                while any(each.doomed for each in self._under_way) and not self._stopping.is_set():
                    self._freed.clear()
                    await self._freed.wait()

    async def _bury(self, killed: Killed) -> int:
        """Begin to bury what the claim still holds; how many messages that are. While a part of the engine does not answer, the
        claim is asked for again in the next round.
        """
        asked, readers, here = Asked(killed.request, self._lease_ms), self._under_way.readers, self._under_way.ids()
        with self._heartbeat.asking(asked):
            claim = await self._engine.claim([], 1, self._lease_ms, request=killed.request)
            last = [each for each in claim.messages if in_last_attempt(each) and each.id not in here]
            known = replace(claim, messages=[each for each in last if each.topic in readers])
            found = await self._receiver.opener.read(known, asked, readers)
            if found.messages:
                slot, _ = self._names.begin()
                self._names.hold(slot, len(found.messages))
                self._under_way.begin(found, slot, asked.until or 0, Outcome("dead", 0, killed.reason))
        if unknown := [each for each in last if each.topic not in readers]:
            await self._engine.settle([burial(each, killed.reason, claim.now) for each in unknown])
        if not claim.more:
            self._killed.remove(killed)
        return len(found.messages)

    async def _round(self) -> None:
        """Ask for all that there is room for; sleep if that was all there was."""
        if self._unsure:
            await self.recover()
        groups = self._slots.in_turn()
        drained: set[str] = set()
        timeout, more = CAUTION, False
        self._freed.clear()
        for group in groups:
            topics, room = self._ask(group)
            limit = min(room, MAX_BATCH)
            if not limit or self._under_way.settling.crowded:
                continue
            claim = await self._claim(topics, limit)
            if self._stopping.is_set():
                return
            if claim.more or len(claim.messages) >= limit:
                more = True
            else:
                drained.update(topics)
                timeout = min(timeout, self._receiver.pause(claim))
        if more:
            if not self._under_way.ahead:
                await asyncio.sleep(0)  # let what was begun go its first step: most of it may be done by then
                self._under_way.settling.gather()  # or its places and those of others would be asked for apart from then on
            if any(self._ask(group).limit for group in groups):
                return
        self._left = [group for group in groups if not drained.issuperset(self._slots.groups[group])]
        await self._rest(sorted(drained), timeout)

    async def _claim(self, topics: Sequence[str], limit: int, *, upkeep: bool = True) -> Claim:
        slot, request = self._names.begin(ahead=self._under_way.ahead)
        asked = Asked(request, self._lease_ms)
        self._unsure.append((slot, asked))
        with self._heartbeat.asking(asked):
            claim = await self._receiver.claim(topics, limit, self._lease_ms, request, asked=asked, upkeep=upkeep)
            await self._answered(claim, slot, asked)
        return claim

    async def recover(self) -> None:
        """Ask again for claims whose answer did not come: the engine gives what they hold, and nothing new."""
        while self._unsure:
            slot, asked = self._unsure[-1]
            with self._heartbeat.asking(asked):
                claim = await self._engine.claim([], 1, self._lease_ms, request=asked.request)
                await self._answered(claim, slot, asked)

    async def _answered(self, claim: Claim, slot: int, asked: Asked) -> None:
        self._names.begins(slot)
        found = await self._receiver.opener.read(claim, asked, self._under_way.readers)
        self._unsure.pop()
        self._names.hold(slot, len(found.messages))
        if found.messages:
            self._under_way.begin(found, slot, asked.until or 0)

    async def _full(self, timeout: float) -> None:
        """There is no room for anything, until some is freed, or a topic may be asked for again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._freed.wait()

    async def _rest(self, topics: list[str], timeout: float) -> None:
        """Sleep until something may be due, or a place is free again for what there was no room for."""
        if self._stopping.is_set() or (self._freed.is_set() and self._room_in_left()):
            return
        sleep = self._engine.wait(topics, timeout) if topics else self._full(timeout)
        self._sleep = asyncio.get_running_loop().create_task(sleep)
        try:
            while not (await asyncio.wait({self._sleep}, timeout=self._slots.held_up()))[0]:
                if not await self._held_up():
                    return
            if not self._sleep.cancelled():
                self._sleep.result()
        finally:
            self._sleep.cancel()
            self._sleep = None

    async def _held_up(self) -> bool:
        """Ask for what had reached its limit, and for nothing else. Whether that had as much as there was room for."""
        for group in dict.fromkeys([*self._left, *self._slots.held_back()]):
            topics, room = self._ask(group)
            if room:
                limit = min(room, MAX_BATCH)
                claim = await self._claim(topics, limit, upkeep=False)  # that goes on when the sleep ends
                if self._stopping.is_set() or len(claim.messages) < limit:
                    return False
        return True
