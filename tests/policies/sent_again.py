"""Policies of messages that are sent twice under a key."""

import contextlib
from typing import Any

from bide import QueueFull
from tests.policies.policy import Policy, Stage

TICK = 1  # ms, to which engines round


class Debounced(Policy):
    """Each is sent twice under its key."""

    exclusive = ("if_exists",)

    def sending(self, n: int) -> dict[str, Any]:
        return {"key": f"k{n}", "if_exists": "later"}

    async def send(self, stage: Stage) -> None:
        for n in list(stage.sent):
            again = await stage.send(n, told=2)
            if n in stage.alive:
                assert (again.outcome, again.id) == ("postponed", stage.sent[n].id)
            stage.sent[n] = again

    def check(self, stage: Stage) -> None:
        assert {run.told for run in stage.journal.runs} == {2}


class Bounded(Debounced):
    """The second send would move each further than it may wait."""

    def sending(self, n: int) -> dict[str, Any]:
        return {"key": f"k{n}", "if_exists": "later", "max_wait": "100ms"}

    async def send(self, stage: Stage) -> None:
        first = dict(stage.sent)
        for n in list(stage.sent):
            again = await stage.send(n, told=2, delay=0.1)
            if n in stage.alive:
                assert (again.outcome, again.id) == ("postponed", first[n].id)
                assert again.due <= first[n].due + 100 + TICK, "it waits for too long"
            stage.sent[n] = again


class Merged(Policy):
    """Each holds what two sends have brought."""

    exclusive = ("if_exists",)
    merges = True

    def sending(self, n: int) -> dict[str, Any]:
        return {"key": f"k{n}", "if_exists": "merge"}

    async def send(self, stage: Stage) -> None:
        for n in list(stage.sent):
            again = await stage.send(n, told=2)
            if n in stage.alive:
                assert (again.outcome, again.id) == ("merged", stage.sent[n].id)

    def check(self, stage: Stage) -> None:
        for run in stage.journal.runs:
            assert run.told == [1, 2], "lost, or there twice"


class Unique(Policy):
    """Each is sent once, however often it is sent."""

    def sending(self, n: int) -> dict[str, Any]:
        return {"key": f"k{n}", "unique_for": "1h"}

    async def send(self, stage: Stage) -> None:
        for n in stage.sent:
            await self._again(stage, n)

    async def look(self, stage: Stage) -> None:
        for n in stage.sent:
            with contextlib.suppress(QueueFull):  # told before anybody looks at the key
                await self._again(stage, n)

    async def _again(self, stage: Stage, n: int) -> None:
        again = await stage.send(n, told=2)
        assert (again.outcome, again.id) == ("duplicate", stage.sent[n].id)

    def check(self, stage: Stage) -> None:
        assert {run.told for run in stage.journal.runs} == {1}
