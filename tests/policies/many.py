"""Policies of many messages at once: batches, overdue ones, full topics; and of leases that end."""

import asyncio
from typing import Any

from bide import QueueFull, Sent
from bide.engines.base import Claimed, Ref
from bide.queue.tasks.limits import Overdue
from tests.policies.policy import COUNT, TOPIC, Policy, Stage, user_of
from tests.worker.conftest import once


class Batched(Policy):
    most = 4

    def options(self) -> dict[str, Any]:
        return {"batch": self.most, "linger": "5ms"}

    def check(self, stage: Stage) -> None:
        assert max(stage.journal.sizes) <= self.most


class _OverdueOnce(Overdue):
    """All that was sent is overdue when a worker first gets it."""

    def __init__(self, *of: Any) -> None:
        self.until = 0
        self.seen: set[str] = set()

    def takes(self, claimed: Claimed, now: int) -> bool:
        late = claimed.attempt == 1 and claimed.due <= self.until and claimed.id not in self.seen
        if self.rate is not None:
            self.seen.add(claimed.id)
        return late


class Latest(Policy):
    """Of what is overdue, the newest is handled."""

    exclusive = ("catch_up",)

    def options(self) -> dict[str, Any]:
        return {"catch_up": "latest"}

    def made(self, stage: Stage) -> None:
        self.overdue = _OverdueOnce(*stage.task.definition.overdue)
        stage.task.definition.overdue = self.overdue
        self.newest: int | None = None
        self.handled = stage.journal.done

    async def send(self, stage: Stage) -> None:
        found = {n: info for n in stage.alive if (info := await stage.queue.get(stage.sent[n])) is not None}
        self.overdue.until = max(each.due for each in found.values())
        if not stage.calls:  # nobody knows when what waits for others is due
            self.newest = max(found, key=lambda n: (found[n].due, found[n].id))

    def may_drop(self, n: int) -> bool:
        return n != self.newest or self._something_newer_was_handled()

    def check(self, stage: Stage) -> None:
        assert stage.journal.runs or self._something_newer_was_handled(), "all were left out"

    def _something_newer_was_handled(self) -> bool:
        """An instant of a schedule that is due when a worker first looks is newer than all that was sent."""
        return any(-instant >= self.overdue.until for instant in self.handled if instant < 0)


class Spread(Policy):
    """What is overdue is handled at a rate."""

    exclusive = ("catch_up",)

    def options(self) -> dict[str, Any]:
        return {"catch_up": "4/50ms"}

    def made(self, stage: Stage) -> None:
        self.overdue = _OverdueOnce(*stage.task.definition.overdue)
        stage.task.definition.overdue = self.overdue

    async def send(self, stage: Stage) -> None:
        found = [await stage.queue.get(each) for each in stage.sent.values()]
        self.overdue.until = max(each.due for each in found if each is not None)

    def check(self, stage: Stage) -> None:
        granted = [each for each in stage.granted if each.gate.startswith("late ")]
        line: list[int] = []
        for each in sorted(granted, key=lambda each: each.now):
            if line and each.now > max(line):  # all of it have fallen due
                line = []
            line.append(each.at)
            assert len([at for at in line if each.at - 50 < at <= each.at]) <= 4, "too many fall due at once"
        turn = {each.holder: each.at for each in granted}
        for run in {run.n: run for run in reversed(stage.journal.runs)}.values():
            assert run.due >= turn[stage.sent[run.n].id] or run.due <= self.overdue.until, "before its turn"


class Dammed(Policy):
    """The topic is full when all is sent."""

    most = COUNT + 4

    def options(self) -> dict[str, Any]:
        return {"most_pending": self.most}

    async def send(self, stage: Stage) -> None:
        more: list[Sent] = []
        while len(more) <= self.most:
            try:
                more.append(await stage.queue.send(TOPIC, delay="1h"))
            except QueueFull:
                break
        assert 4 <= len(more) <= self.most, "never full"
        assert (await stage.queue.stats(TOPIC)).pending <= self.most
        for each in more:
            assert await stage.queue.cancel(each)


class Lost(Policy):
    """The lease of a handler that hangs ends, and those of all others that are under way then."""

    repeats = True
    sweeps = True

    def worker(self) -> dict[str, Any]:
        return {"lease": "300ms"}

    def made(self, stage: Stage) -> None:
        self.stage = stage
        self.hangs = False
        self.goes_on = asyncio.Event()

    async def work(self, stage: Stage) -> None:
        await once(lambda: self.hangs)
        stage.faults.lose_leases()
        engine = await stage.queue.session.engine()

        async def lost() -> bool:
            await engine.tend(100)
            [found] = await engine.get([Ref(stage.sent[COUNT - 1].id)])
            return found is None or found.state != "leased" or found.attempt > self.attempt

        await once(lost)
        stage.faults.keep_leases()
        if not stage.in_batches:  # a batch goes on while it has any lease
            await once(lambda: not self.hangs)
        self.goes_on.set()
        await stage.probe()  # wakes workers

    async def handle(self, n: int) -> None:
        if n == COUNT - 1 and self.first(n):
            self.attempt = self.stage.journal.of(n)[-1].attempt
            self.hangs = True
            self.stage.journal.ends(n)  # whoever outlives a lease counts for no lock or limit
            try:
                await self.goes_on.wait()
            finally:
                self.hangs = False
                self.stage.journal.running[user_of(n)] += 1
