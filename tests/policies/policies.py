"""Policies of when a message is handled, how often, and beside how many."""

import asyncio
from typing import Any

from bide import Bury, CancelResult, RescheduleResult, Sent, Snooze
from tests.policies.policy import COUNT, TOPIC, Policy, Stage, now_ms
from tests.worker.conftest import once


class Delayed(Policy):
    def sending(self, n: int) -> dict[str, Any]:
        return {"delay": 0.02 + n / 400}

    def check(self, stage: Stage) -> None:
        for run in stage.journal.runs:
            assert run.at >= stage.sent[run.n].due, "early"


class Prioritized(Policy):
    def sending(self, n: int) -> dict[str, Any]:
        return {"priority": ("high", "normal", "low")[n % 3]}


class Expiring(Policy):
    """Some have expired when the topic is resumed."""

    async def begin(self, stage: Stage) -> None:
        await stage.queue.pause(TOPIC)

    def sending(self, n: int) -> dict[str, Any]:
        return {"expires_in": "1ms" if self.drops(n) else "1h"}

    async def work(self, stage: Stage) -> None:
        for n in filter(self.drops, stage.sent):

            async def expired(sent: Sent = stage.sent[n]) -> bool:
                found = await stage.queue.get(sent)
                return found is None or now_ms() > found.due + 5

            await once(expired)
        await stage.queue.resume(TOPIC)

    def drops(self, n: int) -> bool:
        return n % 4 == 0


class Paused(Policy):
    """For as long as a message of another topic takes."""

    async def work(self, stage: Stage) -> None:
        await once(lambda: len(stage.journal.runs) >= 3 or stage.over)
        await stage.queue.pause(TOPIC)

        async def at_rest() -> bool:
            return not (await stage.queue.stats(TOPIC)).leased

        await once(at_rest)
        begun = len(stage.journal.runs)
        await stage.probe()
        assert len(stage.journal.runs) == begun, "a paused topic hands out messages"
        await stage.queue.resume(TOPIC)


class Cancelled(Policy):
    async def send(self, stage: Stage) -> None:
        for n in filter(self.drops, stage.sent):
            assert await stage.queue.cancel(stage.sent[n]) in (CancelResult.CANCELLED, CancelResult.GONE)

    def drops(self, n: int) -> bool:
        return n % 4 == 1


class Rescheduled(Policy):
    async def send(self, stage: Stage) -> None:
        self.due: dict[int, float] = {}
        for n in range(2, COUNT, 4):
            self.due[n] = now_ms() + 60
            stage.moved.add(n)
            moved = await stage.queue.reschedule(stage.sent[n], delay=0.06)
            assert moved is RescheduleResult.MOVED or n not in stage.alive

    def check(self, stage: Stage) -> None:
        for run in stage.journal.runs:
            assert stage.calls or run.at >= self.due.get(run.n, 0), "early"


class Failing(Policy):
    def options(self) -> dict[str, Any]:
        return {"backoff": lambda attempt: 0.005}

    async def handle(self, n: int) -> None:
        if self.first(n):
            raise ValueError("the first time")

    def again(self, n: int) -> int:
        return 1


class Snoozing(Policy):
    async def handle(self, n: int) -> None:
        if self.first(n):
            raise Snooze("10ms")


class Overtime(Policy):
    """Each handler hangs once, until its timeout. Others reach theirs when the machine stands still meanwhile."""

    def options(self) -> dict[str, Any]:
        return {"timeout": "300ms", "backoff": lambda attempt: 0.005, "max_attempts": 10}

    def made(self, stage: Stage) -> None:
        self.cut = stage.journal.cut

    async def handle(self, n: int) -> None:
        if self.first(n):
            await asyncio.sleep(60)

    def again(self, n: int) -> int:
        return self.cut[n]

    def check(self, stage: Stage) -> None:
        assert all(self.cut[n] for n in stage.journal.done), "it went on after its timeout"


class Requeued(Policy):
    """Each is buried once, and comes back."""

    repeats = True

    async def handle(self, n: int) -> None:
        if self.first(n):
            raise Bury("not yet")

    async def work(self, stage: Stage) -> None:
        while not stage.over:
            await stage.queue.requeue(TOPIC)
            await asyncio.sleep(0.005)


class Locked(Policy):
    exclusive = ("lock",)

    def options(self) -> dict[str, Any]:
        return {"lock": "user {user}"}

    def check(self, stage: Stage) -> None:
        assert max(stage.journal.most.values()) == 1, "two hold one lock"


class Deferred(Locked):
    def options(self) -> dict[str, Any]:
        return {"lock": "user {user}", "on_conflict": "defer", "lock_delay": "10ms"}


class Limited(Policy):
    exclusive = ("limit",)

    def options(self) -> dict[str, Any]:
        return {"concurrency": 2}

    def check(self, stage: Stage) -> None:
        assert stage.journal.most_at_once <= 2, "too many at once"


class LimitedPer(Limited):
    def options(self) -> dict[str, Any]:
        return {"concurrency": 1, "per": "{user}"}

    def check(self, stage: Stage) -> None:
        assert max(stage.journal.most.values()) == 1, "too many at once"


class Rated(Policy):
    exclusive = ("limit",)
    window = 50

    def options(self) -> dict[str, Any]:
        return {"rate": "4/50ms"}

    def check(self, stage: Stage) -> None:
        granted = sorted(each.at for each in stage.granted if each.gate.startswith("rate "))
        for first, fifth in zip(granted, granted[4:], strict=False):
            assert fifth - first >= self.window, "too many in a window"
        for nth, run in enumerate(sorted(run.at for run in stage.journal.runs)):
            assert run + 1 >= granted[nth], "begun before its time"


class Stopped(Policy):
    """The first worker ends with what it runs."""

    repeats = True

    async def work(self, stage: Stage) -> None:
        await once(lambda: len(stage.journal.runs) >= 2 or stage.over)
        await stage.workers[0].stop()
