"""Policies of what comes of a message, and of what messages come of: results, dependencies and schedules."""

from itertools import pairwise
from typing import Any

import pytest

from bide import NoResult, Sent
from tests.policies.policy import COUNT, TOPIC, Policy, Stage, answer, now_ms
from tests.worker.conftest import once


class Kept(Policy):
    """Each has a result."""

    def options(self) -> dict[str, Any]:
        return {"keep": "1h"}

    async def look(self, stage: Stage) -> None:
        for n, sent in stage.sent.items():
            if stage.journal.done[n]:
                assert await stage.queue.result(sent, timeout=0) == answer(n)
            else:
                with pytest.raises(NoResult):
                    await stage.queue.result(sent, timeout=0)


class Depending(Policy):
    """Each waits for a message of another task."""

    calls = True

    def made(self, stage: Stage) -> None:
        self.done: dict[int, float] = {}

        @stage.queue.task("part", keep="1h")
        async def part(n: int) -> None:
            self.done[n] = now_ms()

        self._part = part
        self._parts: dict[int, Sent] = {}

    async def begin(self, stage: Stage) -> None:
        for n in range(COUNT):
            self._parts[n] = await self._part.send(n=n)

    def sending(self, n: int) -> dict[str, Any]:
        return {"depends_on": [self._parts[n]], "deadline": "1h"}

    def check(self, stage: Stage) -> None:
        for run in stage.journal.runs:
            assert run.n in stage.moved or run.at >= self.done[run.n], "before what it waits for"


class Scheduled(Policy):
    """Beside what is sent, the task is sent by itself."""

    exclusive = ("schedule",)
    step = 100
    least = 4

    def made(self, stage: Stage) -> None:
        stage.queue.every("100ms", missed="all")(stage.task)

    def over(self, stage: Stage) -> bool:
        return sum(n < 0 for n in stage.journal.done) >= self.least

    async def end(self, stage: Stage) -> None:
        await stage.queue.pause_schedule(TOPIC)

    def check(self, stage: Stage) -> None:
        assert {after - before for before, after in pairwise(planned(stage))} == {self.step}, "an instant is missing"


class ScheduledNowAndThen(Scheduled):
    """The schedule is paused for a while."""

    least = 2

    def made(self, stage: Stage) -> None:
        super().made(stage)
        self.since = self.until = 0.0

    def over(self, stage: Stage) -> bool:
        return bool(self.until) and any(-n > self.until for n in stage.journal.done)

    async def work(self, stage: Stage) -> None:
        await once(lambda: len(planned(stage)) >= self.least)
        await stage.queue.pause_schedule(TOPIC)
        self.since = now_ms()
        await once(lambda: now_ms() > self.since + 1.5 * self.step)
        await stage.probe()
        until = now_ms()
        await stage.queue.resume_schedule(TOPIC)
        self.until = until

    def check(self, stage: Stage) -> None:
        found = planned(stage)
        assert not [each for each in found if self.since < each < self.until], "planned while it was paused"
        for part in ([at for at in found if at <= self.since], [at for at in found if at >= self.until]):
            assert {after - before for before, after in pairwise(part)} <= {self.step}, "an instant is missing"


def planned(stage: Stage) -> list[int]:
    """The instants whose handler has begun."""
    return sorted({-run.n for run in stage.journal.instants})
