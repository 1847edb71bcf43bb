"""Lets messages pass their task's gates before their handlers are called: locks, and limits over all workers.

A message that may not pass holds no place here: it waits aside until it is called, or all of its topic waits.
"""

import time
from collections.abc import Sequence
from typing import Protocol

from bide.engines.aio import AsyncEngine
from bide.errors import EngineError
from bide.logs import Log
from bide.queue.batching import Batches
from bide.queue.beats import Places
from bide.queue.heartbeat import Heartbeat
from bide.queue.tasks.limits import Step
from bide.queue.tasks.outcome import RELEASED, Outcome
from bide.queue.tasks.passing import Passage
from bide.worker.handling import Handling
from bide.worker.leaving import Leaving
from bide.worker.retry import Retrying
from bide.worker.slots import Slots

_log = Log("bide.worker")


class Inside(Protocol):
    """Who is told what becomes of a message at its gates."""

    def admitted(self, handling: Handling) -> None: ...
    def refused(self, handling: Handling, became: Outcome) -> None: ...
    def lost_place(self, handling: Handling) -> None: ...


class Entrance(Batches[Handling]):
    def __init__(
        self, engine: AsyncEngine, heartbeat: Heartbeat, leaving: Leaving, slots: Slots, lease_ms: int, inside: Inside
    ) -> None:
        super().__init__()
        self._engine = engine
        self._heartbeat = heartbeat
        self._leaving = leaving
        self._slots = slots
        self._lease_ms = lease_ms
        self._inside = inside
        self._retrying = Retrying("let messages pass their limits")

    async def one_call(self, batch: list[Handling]) -> None:
        asked = time.monotonic()
        passages = [(each, passage) for each in batch if not each.told and (passage := self._passage(each)) is not None]
        try:
            while going := [(passage, step) for _, passage in passages if (step := passage.step) is not None]:
                await self._step(going, batch[0].delivery.now + round((time.monotonic() - asked) * 1000))
        except EngineError as error:
            self._leaving.put_all(held for _, passage in passages for held in passage.held)
            self.bring_again([handling for handling, _ in passages])
            await self._retrying.lose(error)
            return
        self._retrying.regain()
        for handling, passage in passages:
            self._end(handling, passage, asked)
        self._tell_slots([(handling.delivery.topic, passage) for handling, passage in passages if passage.limits.of_topic])

    def _passage(self, handling: Handling) -> Passage | None:
        """None, when the message does not fit its task: the call of its handler says so."""
        task, delivery = handling.task, handling.delivery
        assert task.limits is not None
        try:
            arguments = delivery.arguments if delivery.arguments is not None else task.arguments.of_message(delivery.body)
            return Passage(task.limits, delivery.claimed, task.arguments.with_defaults(arguments))
        except Exception as error:
            _log.debug("Message %s of %s passes no limits: %s", delivery.id, delivery.topic, error)
            self._inside.admitted(handling)
            return None

    async def _step(self, going: Sequence[tuple[Passage, Step]], now: int) -> None:
        """One step of each, in a call for those that enter and one for those that begin at a rate."""
        entering = [each for each in going if not each[1].window]
        beginning = [each for each in going if each[1].window]
        if entering:
            entries = [passage.entry(step, self._lease_ms) for passage, step in entering]
            for (passage, _), entered in zip(entering, await self._engine.gates.enter(entries), strict=True):
                passage.entered(entered, now)
        if beginning:
            spends = [passage.spend(step) for passage, step in beginning]
            for (passage, _), spent in zip(beginning, await self._engine.gates.spend(spends), strict=True):
                passage.spent(spent)

    def _end(self, handling: Handling, passage: Passage, asked: float) -> None:
        if handling.told or passage.refused is not None:
            self._leaving.put_all(passage.held)
            if passage.refused is not None and not handling.told:
                self._inside.refused(handling, passage.refused)
            return
        if passage.held:
            handling.places = Places(passage.held, self._lease_ms, lambda _: self._inside.lost_place(handling), asked=asked)
            self._heartbeat.add(handling.places)
        self._inside.admitted(handling)

    def _tell_slots(self, passages: Sequence[tuple[str, Passage]]) -> None:
        """How far the limits of whole topics have let their messages pass."""
        for topic in {topic for topic, _ in passages}:
            own = [passage for each, passage in passages if each == topic]
            refused = [each.again for each in own if each.refused is RELEASED]
            self._slots.passed(topic, len(own) - len(refused), max(refused, default=None))
