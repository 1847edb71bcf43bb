"""Lets messages pass their task's gates before their handlers are called: locks, and limits over all workers.

A message that may not pass holds no place here: it waits aside until it is called, or all of its topic waits. So does one
whose gate is in a part of the engine that does not answer, while other parts do.
"""

import time
from collections.abc import Awaitable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from bide.core.amounts import plural
from bide.engines.aio import AsyncEngine
from bide.engines.gates import Held
from bide.errors import EngineError, OutcomeUnknown
from bide.logs import Log
from bide.queue.batching import Collector, Line, joined
from bide.queue.beats import Places
from bide.queue.heartbeat import Heartbeat
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.limits import Step
from bide.queue.tasks.outcome import RELEASED, Outcome, unread
from bide.queue.tasks.passing import ASIDE, Passage
from bide.worker.handling import Handling
from bide.worker.leaving import Leaving
from bide.worker.retry import Retrying, refused
from bide.worker.slots import Slots

_log = Log("bide.worker")
T = TypeVar("T")
AGAIN = 1.0  # seconds until a topic is asked for again whose own gate is in a part of the engine that does not answer


class Inside(Protocol):
    """Who is told what becomes of a message at its gates."""

    def admitted(self, handling: Handling) -> None: ...
    def refused(self, handling: Handling, became: Outcome) -> None: ...
    def lost_place(self, handling: Handling) -> None: ...
    def room_changed(self) -> None: ...
    def set_aside(self, handling: Handling) -> None: ...
    def gives_way(self, handling: Handling) -> None: ...


class Entrance(Collector[Handling]):
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
        self._interrupted: dict[Handling, list[Held]] = {}  # what is known of their places whose way the engine has broken off

    def part_of(self, entry: Handling) -> Hashable:
        """The parts of the engine that have the gates of its task."""
        gates, limits = self._engine.gates, entry.task.limits
        if limits is None or gates.part_of("") is None:
            return None
        try:
            steps = limits.steps(self._arguments(entry))
        except Exception:  # it does not fit its task, and passes no gate
            return None
        return joined(gates.part_of(step.gate) for step in steps)

    async def one_call(self, line: Line[Handling], batch: list[Handling]) -> None:
        asked = time.monotonic()
        self._give_up(each for each in batch if each.told)
        passages = [(each, passage) for each in batch if not each.told and (passage := self._passage(each)) is not None]
        if not passages:
            return
        try:
            failed = await self._through(passages, batch[0].delivery.now, asked)
        except EngineError as error:
            self._again(line, passages, last=len(passages) == 1 and refused(error), singly=refused(error))
            await self._retrying.lose(error, line.part)
            return
        except Exception:  # nobody foresaw it, and one of them may be the cause
            _log.exception("The engine broke down over the limits of %s", plural(len(passages), "message"))
            self._again(line, passages, singly=True) if len(passages) > 1 else self._put_aside(*passages[0])
            return
        self._retrying.regain(line.part)
        if failed:  # a part of the engine does not answer, and must not hold up what others let pass
            self._again(line, [each for each in passages if each[1] in failed], last=True)
            passages = [each for each in passages if each[1] not in failed]
        # first, or what is given back would seem to make room
        self._tell_slots([(handling.delivery.topic, passage) for handling, passage in passages if passage.limits.of_topic])
        for handling, passage in passages:
            self._end(handling, passage, asked)

    async def _through(self, passages: Sequence[tuple[Handling, Passage]], now: int, asked: float) -> list[Passage]:
        """Returns those of which a part of the engine has not answered."""
        failed: list[Passage] = []
        while going := [
            (passage, step) for _, passage in passages if (step := passage.step) is not None and passage not in failed
        ]:
            failed += await self._step(going, now + round((time.monotonic() - asked) * 1000))
        return failed

    def _again(
        self,
        line: Line[Handling],
        passages: Sequence[tuple[Handling, Passage]],
        *,
        last: bool = False,
        singly: bool = False,
    ) -> None:
        """They go from the start, and keep their places: the same holder enters once.

        If these were given back, that could happen after they were entered again.
        """
        for handling, passage in passages:
            self._interrupted[handling] = [*self._interrupted.get(handling, ()), *passage.held]
        handlings = [handling for handling, _ in passages]
        if last:
            line.bring_last(handlings)
        else:
            line.bring_again(handlings, singly=singly)

    def _give_up(self, handlings: Iterable[Handling]) -> None:
        """They were ended meanwhile."""
        for each in handlings:
            self._leaving.put_all(self._interrupted.pop(each, ()))

    def stalls(self, line: Line[Handling]) -> None:
        """What waits here takes no place from what needs only parts that answer: it comes again.

        What may have been entered stays, without a place: it would meet at its gate what it has left there.
        """
        waiting = [each for each in line.waiting if each not in self._interrupted]
        line.waiting = [each for each in line.waiting if each in self._interrupted]
        for each in [*line.under_way, *line.waiting]:
            self._inside.gives_way(each)
        for topic in {each.delivery.topic for each in waiting if each.task.limits is not None and each.task.limits.of_topic}:
            self._slots.passed(topic, 0, AGAIN)
        for each in waiting:
            self._inside.set_aside(each)

    def _put_aside(self, handling: Handling, passage: Passage) -> None:
        self._give_up([handling])
        self._leaving.put_all(passage.held)
        self._inside.refused(handling, Outcome("release", ASIDE, aside=True))

    def _passage(self, handling: Handling) -> Passage | None:
        """None, when the message does not fit its task: the call of its handler says so, if not the name of a gate."""
        task, delivery = handling.task, handling.delivery
        assert task.limits is not None
        try:
            arguments = self._arguments(handling)
        except Exception as error:
            _log.debug("Message %s of %s passes no limits: %s", delivery.id, delivery.topic, error)
            self._inside.admitted(handling)
            return None
        try:
            return Passage(task.limits, delivery.claimed, arguments)
        except Unread as error:
            self._inside.refused(handling, unread(error, delivery.claimed, delivery.now))
            return None

    @staticmethod
    def _arguments(handling: Handling) -> Mapping[str, Any]:
        """Raises if they don't fit the task."""
        task, delivery = handling.task, handling.delivery
        given = delivery.arguments if delivery.arguments is not None else task.arguments.of_message(delivery.body)
        return task.arguments.with_defaults(given)

    async def _step(self, going: Sequence[tuple[Passage, Step]], now: int) -> list[Passage]:
        """One step of each, in a call for those that enter and one for those that begin at a rate."""
        failed: list[Passage] = []
        entering = [each for each in going if not each[1].window]
        beginning = [each for each in going if each[1].window]
        if entering:
            entries = [passage.entry(step, self._lease_ms) for passage, step in entering]
            for (passage, _), entered in zip(entering, await _answers(self._engine.gates.enter(entries)), strict=True):
                if entered is None:
                    failed.append(passage)
                else:
                    passage.entered(entered, now)
        if beginning:
            spends = [passage.spend(step) for passage, step in beginning]
            for (passage, _), spent in zip(beginning, await _answers(self._engine.gates.spend(spends)), strict=True):
                if spent is None:
                    failed.append(passage)
                else:
                    passage.spent(spent)
        return failed

    def _end(self, handling: Handling, passage: Passage, asked: float) -> None:
        before = self._interrupted.pop(handling, ())
        self._leaving.put_all(each for each in before if each not in passage.held)
        if handling.told or passage.refused is not None:
            self._leaving.put_all(passage.held)
            if passage.refused is not None and not handling.told:
                self._inside.refused(handling, passage.refused)
            return
        if passage.held:
            places = Places(passage.held, self._lease_ms, lambda _: self._inside.lost_place(handling), asked=asked)
            if not places.sure:  # this process stood still, or the engine took as long
                self._leaving.put_all(passage.held)
                self._inside.refused(handling, RELEASED)
                return
            handling.places = places
            self._heartbeat.add(places)
        self._inside.admitted(handling)

    def _tell_slots(self, passages: Sequence[tuple[str, Passage]]) -> None:
        """How far the limits of whole topics have let their messages pass."""
        for topic in {topic for topic, _ in passages}:
            own = [passage for each, passage in passages if each == topic]
            refused = [each.again for each in own if each.refused is RELEASED]
            self._slots.passed(topic, len(own) - len(refused), max(refused, default=None))
        if passages:
            self._inside.room_changed()


async def _answers(call: Awaitable[Sequence[T]]) -> Sequence[T | None]:
    """None where a part of the engine has not answered."""
    try:
        return await call
    except OutcomeUnknown as error:
        if not error.answers:
            raise
        return error.answers
