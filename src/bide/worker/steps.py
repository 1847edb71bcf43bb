"""The steps of the road in a worker. What a step has to decide gathers while a call is under way, and is decided together.

A message that may not pass its task's limits holds no place here: it waits aside until it is called, or all of its topic waits.
So does one whose gate is in a part of the engine that does not answer, while other parts do. Whoever is next is called when a
place is given back.
"""

import asyncio
import time
from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

from bide.core.formats import plural
from bide.engines.aio import AsyncEngine
from bide.engines.base import Ref
from bide.engines.gates import Called, Held
from bide.errors import BideError, EngineError
from bide.logs import Log
from bide.queue.aio.receive import AsyncReceiver
from bide.queue.batching import Collector, Line
from bide.queue.heartbeat import Heartbeat
from bide.queue.leases import Places
from bide.queue.run import Message, passage_of
from bide.queue.run.aio.limits import PROGRAM, AsyncLimitsStep, call, called_back, told_of
from bide.queue.run.message import Handling
from bide.queue.run.passage import ASIDE, Passage
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.outcome import RELEASED, Outcome, unread
from bide.worker.engine_trouble import EngineTrouble, refused
from bide.worker.slots import Slots

_log = Log("bide.worker")
EVERY = 2.0  # seconds between two looks for places whose holders have died, where messages wait for them
SOON = (0.02, 0.1, 0.5)  # seconds: a message that is on its way aside is called again
AGAIN = 1.0  # seconds until a topic is asked for again whose own gate is in a part of the engine that does not answer


class PlacesGivenBack(Collector[Held]):
    def __init__(self, engine: AsyncEngine, receiver: AsyncReceiver) -> None:
        super().__init__()
        self._engine = engine
        self._receiver = receiver
        self._retrying = EngineTrouble("give places back")
        self._calling = CallsOfWaiting(engine, self)
        receiver.calls = self._call

    def leave(self, heartbeat: Heartbeat, places: Places) -> None:
        """They are renewed no longer."""
        held = places.held
        heartbeat.remove_all((places, each) for each in held)
        self.put_all(held)

    def put_all(self, held: Iterable[Held]) -> None:
        for each in held:
            self.put(each)

    def part_of(self, entry: Held) -> Hashable:
        return self._engine.gates.part_of(entry.gate)

    async def one_call(self, line: Line[Held], batch: list[Held]) -> None:
        try:
            left = await self._engine.gates.leave(batch)
        except EngineError as error:
            line.bring_again(batch)
            await self._retrying.lose(error, line.part)
            return
        self._retrying.regain(line.part)
        self._call(left.called)

    def _call(self, called: Sequence[Called]) -> None:
        for each in called:
            if not each.waiter.startswith(PROGRAM):
                self._calling.put(each)

    async def look(self) -> None:
        """For ever: pass on what others have left behind, also while all slots are taken and nothing is claimed."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                while (await self._receiver.tend()).more:
                    pass
            except BideError as error:
                _log.debug("Could not look for places that were left behind: %s", error)
            except Exception:  # of an engine that somebody has plugged in: the next look may do
                _log.exception("The engine broke down over a look for places that were left behind")

    async def emptied(self) -> None:
        while self.busy or self._calling.busy:  # the turn of a message that is gone is given back in its turn
            await super().emptied()
            await self._calling.emptied()

    def drop(self) -> None:
        super().drop()
        self._calling.drop()


class CallsOfWaiting(Collector[Called]):
    """Messages whose turn has come, which wait aside: each is in a part of the engine that need not be that of the gate."""

    def __init__(self, engine: AsyncEngine, leaving: PlacesGivenBack) -> None:
        super().__init__()
        self._engine = engine
        self._leaving = leaving
        self._retrying = EngineTrouble("call messages whose turn has come")
        self._calls: set[asyncio.Task[None]] = set()

    def part_of(self, entry: Called) -> Hashable:
        return self._engine.part_of(Ref(entry.waiter))

    async def one_call(self, line: Line[Called], batch: list[Called]) -> None:
        try:
            results = await self._engine.reschedule(called_back(batch))
        except EngineError as error:
            line.bring_again(batch)
            await self._retrying.lose(error, line.part)
            return
        self._retrying.regain(line.part)
        running, gone = told_of(batch, results)
        self._leaving.put_all(gone)
        if running:
            calls = asyncio.get_running_loop().create_task(self._call_again(running))
            self._calls.add(calls)
            calls.add_done_callback(self._calls.discard)

    async def _call_again(self, running: Sequence[Called]) -> None:
        """Messages that were on their way aside when their turn came. If this fails, upkeep names them again."""
        try:
            for wait in SOON:
                await asyncio.sleep(wait)
                running = await call(self._engine, running)
                if not running:
                    return
        except BideError as error:
            _log.debug("Messages could not be called, and upkeep will name them again: %s", error)

    def drop(self) -> None:
        super().drop()
        for each in self._calls:
            each.cancel()


class Step(Protocol):
    """One of queue/run."""

    what: str

    def part_of(self, message: Message) -> Hashable: ...
    def together(self, messages: Sequence[Message]) -> Sequence[Message]: ...
    async def decide(self, messages: Sequence[Message]) -> list[Outcome | None]: ...


class Decided(Protocol):
    """Who is told what a step has decided of a message."""

    def goes_on(self, handling: Handling) -> None: ...
    def refused(self, handling: Handling, became: Outcome) -> None: ...
    def set_aside(self, handling: Handling) -> None: ...


class Decider(Collector[Handling]):
    def __init__(self, step: Step, decided: Decided) -> None:
        super().__init__()
        self._step = step
        self._decided = decided
        self._retrying = EngineTrouble(step.what)

    def part_of(self, entry: Handling) -> Hashable:
        return self._step.part_of(entry)

    def stalls(self, line: Line[Handling]) -> None:
        stalled, line.waiting = [*line.under_way, *line.waiting], []
        for each in stalled:
            self._decided.set_aside(each)

    async def one_call(self, line: Line[Handling], batch: list[Handling]) -> None:
        left = [each for each in batch if not each.told]
        if not left:
            return
        asked = {id(each) for each in self._step.together(left)}
        some = [each for each in left if id(each) in asked]
        try:
            answers = await self._step.decide(some)
        except EngineError as error:
            line.bring_again(left)
            await self._retrying.lose(error, line.part)
            return
        self._retrying.regain(line.part)
        line.waiting[:0] = [each for each in left if id(each) not in asked]
        for handling, became in zip(some, answers, strict=True):
            if handling.told:
                continue
            if became is None:
                self._decided.goes_on(handling)
            else:
                self._decided.refused(handling, became)


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
        self, step: AsyncLimitsStep, heartbeat: Heartbeat, leaving: PlacesGivenBack, slots: Slots, lease_ms: int, inside: Inside
    ) -> None:
        super().__init__()
        self._step = step
        self._heartbeat = heartbeat
        self._leaving = leaving
        self._slots = slots
        self._lease_ms = lease_ms
        self._inside = inside
        self._retrying = EngineTrouble("let messages pass their limits")
        self._interrupted: dict[Handling, list[Held]] = {}  # what is known of their places whose way the engine has broken off

    def part_of(self, entry: Handling) -> Hashable:
        return self._step.part_of(entry)

    async def one_call(self, line: Line[Handling], batch: list[Handling]) -> None:
        asked = time.monotonic()
        self._give_up(each for each in batch if each.told)
        passages = [(each, passage) for each in batch if not each.told and (passage := self._passage(each)) is not None]
        if not passages:
            return
        try:
            claimed = batch[0].now
            going = [passage for _, passage in passages]
            failed = await self._step.through(going, lambda: claimed + round((time.monotonic() - asked) * 1000))
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
        """None for what passes no gate: it is decided what becomes of it."""
        try:
            passage = passage_of(handling)
        except Unread as error:
            self._inside.refused(handling, unread(error, handling.claimed, handling.now))
            return None
        if passage is None:
            self._inside.admitted(handling)
        return passage

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
