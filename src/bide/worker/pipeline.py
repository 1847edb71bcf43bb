"""The messages of a worker: from the claim that brings them until the engine has answered how they ended."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, repeat
from operator import attrgetter

from bide.engines.base import MAX_BATCH, Ended
from bide.logs import Log
from bide.queue import AsyncDelivery, Delivery
from bide.queue.aio.claims import Reader
from bide.queue.aio.opened import AsyncOpened
from bide.queue.aio.planner import AsyncPlanner
from bide.queue.deliveries import PLANNED, Raised, Read, internals
from bide.queue.run import StepName, first_step
from bide.queue.run.aio.limits import AsyncLimitsStep
from bide.queue.run.aio.overdue import AsyncOverdueStep
from bide.queue.run.aio.schedule import AsyncScheduleStep
from bide.queue.run.call import Handlers, OnDeadStep, raised
from bide.queue.run.message import Handling, Taken, about, name
from bide.queue.run.threads import end_fork
from bide.queue.setup import Setup
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.outcome import DONE, RELEASED, Outcome, spent, unanswered
from bide.queue.workers import Minutes
from bide.worker.batch import Batches
from bide.worker.chores import Announcer
from bide.worker.claim_log import ClaimLog, ClaimNames
from bide.worker.finish import ResultKeeper, Settler
from bide.worker.leased import Common, Leased
from bide.worker.log_lines import EndLog, tell, tell_lost, tell_place_lost
from bide.worker.slices import Going, Left, Slices
from bide.worker.slots import Slots
from bide.worker.steps import Decider, Entrance, PlacesGivenBack

_log = Log("bide.worker")
_topic, _task, _taken, _made, _place, _end = map(attrgetter, ("topic", "task", "taken", "made", "place", "end"))
_at_once = attrgetter("at_once")


class UnderWay:
    def __init__(
        self,
        opened: AsyncOpened,
        *,
        setup: Setup,
        served: Mapping[str, Definition],
        slots: Slots,
        names: ClaimNames | ClaimLog,
        lease_ms: int,
        handlers: Handlers,
        thread_ready: Callable[[], bool],
        stopping: asyncio.Event,
        in_sync: Callable[[AsyncDelivery], Delivery],
        end_log: EndLog,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._heartbeat = opened.heartbeat
        self._subscriptions = setup.subscriptions
        self._served = served
        self.readers: Mapping[str, Reader] = {topic: task.arguments.of_json for topic, task in served.items()}
        self._slots = slots
        self._names = names
        self._handlers = handlers
        self._thread_ready = thread_ready  # whether the machine has a thread to give
        self._stopping = stopping
        self.freed: Callable[[], None] = _nobody  # called whenever a message has left a place
        self._common = Common(opened.heartbeat, opened.receiver.opener, in_sync, lease_ms, self._lost_soon)
        self._claims: dict[Leased, None] = {}
        self.done: int = 0
        self.failed: int = 0
        self.given_back: int = 0  # since it was told to stop
        self.minutes: Minutes = Minutes()
        self._on_dead = OnDeadStep(_log, opened.engine)
        self._end_log = end_log
        gives = handlers, thread_ready, self._on_dead, slots, stopping, self.ended, self.room_changed
        self.batches: Batches = Batches(*gives, end_log=end_log)
        self.settling: Settler = Settler(opened.engine, self._returned, self._settled)
        self.leaving: PlacesGivenBack = PlacesGivenBack(opened.engine, opened.receiver)
        self.keeping: ResultKeeper = ResultKeeper(opened, setup.envelope, self.gives_way)
        slow = [topic for topic, task in served.items() if not handlers.are_quick(task)]
        self.quick: Callable[[Handling], Going | None] = handlers.quick
        self.stopped: Callable[[], bool] = stopping.is_set
        self._slices = Slices(self, slots, slow, self._loop)
        # a process that is killed has used up an attempt of each message that it holds, also of what has not begun
        self._tried_again = all(task.max_attempts > 1 for task in served.values())
        self._aside = 0  # that wait without a place
        limits = AsyncLimitsStep(opened.engine, lease_ms)
        self.entrance: Entrance = Entrance(limits, opened.heartbeat, self.leaving, slots, lease_ms, self)
        planner = AsyncPlanner(opened.engine, setup)
        announced = [each for each in setup.schedules if served.get(each.topic) is each.definition]
        self.planning: Announcer = Announcer(planner, announced)
        self.steps: Mapping[StepName, Decider] = {
            "schedule": Decider(AsyncScheduleStep(opened.engine, setup, planner), self),
            "overdue": Decider(AsyncOverdueStep(opened.engine, setup.envelope), self),
        }

    def __len__(self) -> int:
        return sum(len(taken.handlings) for taken in self._claims)

    def __iter__(self) -> Iterator[Handling]:
        """Any thread may ask."""
        return iter([each for taken in list(self._claims) for each in list(taken.handlings.values())])

    def ids(self) -> set[str]:
        return {each.claimed.id for each in self}

    def drop(self) -> None:
        """Give up what the engine could not be told: leases and places end by themselves."""
        for step in self.steps.values():
            step.drop()
        for part in (self.entrance, self.keeping, self.leaving, self.settling):
            part.drop()

    def begin(self, read: Read, slot: int, until: int, doomed: Outcome | None = None) -> None:
        """Call the handlers of what one claim has brought, whose leases do not end before `until`; or bury all, if `doomed`."""
        taken, served = Leased(self._common, read, slot=slot, until=until), self._served
        if self._end_log.times_each() and taken.at_work is None:
            taken.at_work = time.monotonic()
        lot = taken.lot
        self.minutes.late(read.now - (lot.dues([0])[0] if lot is not None else read.messages[0].due))
        topics = lot.topics if lot is not None else list(map(_topic, read.messages))
        tasks = map(served.__getitem__, topics)
        handlings = list(map(Handling, repeat(taken), range(len(topics)), tasks, topics, read.arguments))
        if lot is None:
            for handling, claimed, body in zip(handlings, read.messages, read.bodies, strict=True):
                handling.known, handling.body = claimed, body
        taken.handlings.update(enumerate(handlings))
        self._claims[taken] = None
        self._heartbeat.add(taken)
        for topic, count in Counter(topics).items():
            self._slots.take(topic, count)
        odd = range(len(topics)) if lot is None or doomed is not None else lot.odd
        if doomed is None and any(each.claimed.attempt > 1 or each.most == 1 for each in map(handlings.__getitem__, odd)):
            self._slices.take_care()
            if self._slots.beyond:  # a kill would use up an attempt of all of them, and for some that would be the last
                self._names.waits(slot)
                for each in handlings:
                    self.give_back(each)
                return
        if odd or not all(map(_at_once, set(map(_task, handlings)))):
            handlings = [
                each for each in handlings if (each.task.at_once and each.place not in odd) or self._at_once(each, doomed)
            ]
        if self._slices.going and len(handlings) == len(topics):
            taken.waits = True
            self._names.waits(slot)
        self._slices.put(handlings)

    def _at_once(self, handling: Handling, doomed: Outcome | None) -> bool:
        """Whether the handler of a message can be called now; else it takes the steps that come before."""
        claimed, task = handling.claimed, handling.task
        if doomed is not None:
            handling.doomed = doomed
            self.refused(handling, doomed)
        elif claimed.attempt > 1 and (over := spent(claimed.attempt, handling.most)) is not None:
            self.refused(handling, over)
        elif task.at_once and not (claimed.headers and PLANNED in claimed.headers):
            return True
        elif (step := first_step(task, claimed, handling.now)) is not None:
            self.steps[step].put(handling)
        else:
            self.goes_on(handling)
        return False

    def goes_on(self, handling: Handling) -> None:
        """No schedule and no catch_up holds a message back: the limits of its task may."""
        if handling.task.limits is None:
            self.admitted(handling)
        else:
            self.entrance.put(handling)

    def admitted(self, handling: Handling) -> None:
        """Nothing holds a message back: call its handler, or gather it for a batch."""
        if handling.aside:  # then there may be more than places, but no more is taken
            handling.aside = False
            self._aside -= 1
            self._slots.take(handling.topic)
        if handling.task.batch is not None and self.batches.takes(handling):
            return
        self._slices.put([handling])

    def refused(self, handling: Handling, became: Outcome) -> None:
        """A message may not pass now."""
        if became.verdict == "dead":
            _log.error("%s is buried: %s", name(handling.delivery), became.error, extra=about(handling.delivery))
            handling.runner = asyncio.Task(self._bury(handling, became), loop=self._loop)
        else:
            self.ended(handling, became, by_itself=False)

    def room_changed(self) -> None:
        """More of a topic may be asked for, or less."""
        self.freed()

    def set_aside(self, handling: Handling) -> None:
        """It needs a part of the engine that does not answer, while others may: it comes again."""
        self.ended(handling, unanswered(handling.claimed, handling.now), by_itself=False)

    def gives_way(self, handling: Handling) -> None:
        """It waits for the answer of a part of the engine that is silent, while others may answer: without a place."""
        if not handling.told and not handling.aside and handling.batch is None and self._aside < MAX_BATCH:
            handling.aside = True
            self._aside += 1
            self._slots.give_back(handling.topic)
            self.freed()

    async def _bury(self, handling: Handling, became: Outcome) -> None:
        told: Outcome | None = handling.doomed or RELEASED
        try:
            told = await self._on_dead.told(handling, became)
        finally:
            handling.runner = None
            self.ended(handling, told, by_itself=handling.ended)

    def lost_place(self, handling: Handling) -> None:
        """A place of a message that runs is lost. Called by the heartbeat's thread."""
        self._loop.call_soon_threadsafe(self._lost_place, handling)

    def _lost_place(self, handling: Handling) -> None:
        if not handling.told:
            handling.stop("place")
            tell_place_lost(handling.delivery)

    @property
    def ahead(self) -> bool:
        """Whether the next messages may be claimed before handlers have been called for what is here."""
        return self._slices.ahead and self._tried_again

    def room(self) -> int:
        """How many more messages are likely to begin soon."""
        return self._slices.room()

    def begins(self, taken: Taken) -> None:
        taken.waits = False
        self._names.begins(taken.slot)

    def gather(self, mean: float | None = None) -> None:
        self.settling.gather(mean)

    def was_long(self, handling: Handling) -> None:
        self._end_log.returned(handling, self._slices.began)

    def give_back(self, handling: Handling) -> None:
        self.ended(handling, RELEASED, by_itself=False)

    def over(self, handling: Handling, error: BaseException | None) -> bool:
        """It has returned, or has raised. Whether nothing is left to do."""
        if os.getpid() != self._handlers.owner:
            end_fork(error)
        if error is not None:
            return False
        if handling.returned():
            if self._end_log.timed:
                handling.ends_work(self._slices.began)
            self.settling.returned.append(handling)
            return True
        if handling.why is not None:
            return False
        handling.runner = None
        handling.ends_work(self._slices.began)
        self.ended(handling, DONE, by_itself=handling.ended)
        return True

    async def handle(self, handling: Handling, left: Left | None = None) -> None:
        """One message, from the call of its handler until its end is on its way to the engine; or what is left of that."""
        runner = handling.runner
        plain = False  # it has returned, and there is nothing else to see to
        became: Outcome | None = RELEASED  # by Ctrl-C, which ends the loop: the message is given back with the rest
        error: BaseException | None = None
        try:
            began = time.monotonic() if left is None else self._slices.began
            if left is not None or self._may_begin(handling):
                try:
                    if isinstance(left, BaseException):
                        raise left
                    await (left or self._handlers.call(handling))
                    if self._handlers.here() and handling.returned():
                        plain = True
                        if time.monotonic() - began >= self._end_log.slow:
                            self._end_log.returned(handling, began)
                        self.settling.has_returned(handling)
                        return
                    if handling.deadline is not None:
                        self._handlers.returned(handling)
                except BaseException as by:
                    error = raised(by, runner)
                handling.ends_work(began)
                became, error = self._handlers.became(handling, error)
                if became is not DONE or handling.task.keep is not None:
                    became = await self._followed(handling, became)
        finally:
            left = None  # what was raised leads back to this frame
            if handling.alarm is not None:
                handling.silence()
            if (
                not plain and asyncio.current_task(self._loop) is runner
            ):  # else the loop has gone, and drops what was left in it
                handling.runner = None  # or the two would hold each other, and wait for the garbage collector
                self.ended(handling, became, by_itself=handling.ended, raised=None if error is None else Raised(error))
        if error is not None:
            tell(handling, became, error, self._end_log.level)
            error = None  # from Python 3.12 on its traceback leads back to this frame

    def _may_begin(self, handling: Handling) -> bool:
        return not (handling.why or self._stopping.is_set()) and (handling.task.is_async or self._thread_ready())

    async def _followed(self, handling: Handling, became: Outcome | None) -> Outcome | None:
        """What becomes of a message once its result is kept, or its task is told that it is to be a dead letter."""
        handling.silence()
        if became is not DONE:
            return await self._on_dead.told(handling, became)
        return became if (keep := handling.task.keep) is None else await self.keeping.keep(handling, keep)

    def ended(self, handling: Handling, became: Outcome | None, *, by_itself: bool, raised: Raised | None = None) -> None:
        """It is decided what becomes of a message: its place is free, and the engine is told if it has to be."""
        if handling.told:  # it went on after its message was given back
            return
        handling.told = True
        if handling.task.at_once:
            self._slots.give_back(handling.topic)
        else:
            self._leave(handling)
        if became is None or by_itself:
            if by_itself:
                verdict = self._end_log.by_itself(handling)
                self.done, self.failed = self.done + (verdict == "done"), self.failed + (verdict in ("retry", "dead"))
            elif self._subscriptions.heard:
                self._subscriptions.ended([internals(handling.delivery).end("release")], ["lost"])
            self._forget([handling])
        else:
            if became is DONE:
                self._end_log.done(handling)
            handling.end = handling.done() if became is DONE else internals(handling.delivery).end(*became, raised=raised)
            self.settling.put(handling)
        self.freed()

    def _returned(self, handlings: Sequence[Handling]) -> None:
        """Handlers of plain tasks have returned: their places are free."""
        for topic, count in Counter(map(_topic, handlings)).items():
            self._slots.give_back(topic, count)
        self.freed()

    def _leave(self, handling: Handling) -> None:
        """Its places at the gates of its task are free, and that in this worker, which a batch gives back for all of it."""
        if handling.places is not None:
            self.leaving.leave(self._heartbeat, handling.places)
            handling.places = None
            self._slots.place_left(handling.topic)
        if handling.aside:
            self._aside -= 1
        elif handling.batch is None:
            self._slots.give_back(handling.topic)

    def _settled(self, batch: Sequence[Handling], answers: Sequence[Ended]) -> None:
        """The engine has answered the ends of deliveries."""
        all_done = answers.count("done") == len(batch) and not any(map(_end, batch))  # as most are, of lots
        self.done += all_done * len(batch)
        self._end_log.settled(batch, answers)
        for handling, answer in () if all_done else zip(batch, answers, strict=True):
            end = handling.end
            if answer == "lost":
                if handling.why != "lost":
                    tell_lost(handling.delivery, "its handler had ended by then")
            elif end is None or end.verdict == "done":
                self.done += 1
            elif end.verdict != "release":
                self.failed += 1
            elif self._stopping.is_set():
                self.given_back += 1
        self._forget(batch)
        self.freed()

    def _forget(self, handlings: Iterable[Handling]) -> None:
        """Nothing is left to be done about these."""
        for taken, some in groupby(handlings, _taken):
            ended = list(some)
            for made in filter(None, map(_made, ended)):
                internals(made).ended = True
            self._heartbeat.end(taken, list(map(_place, ended)))
            self._names.let_go(taken.slot, len(ended))
            if not taken.handlings:
                del self._claims[taken]

    def _lost_soon(self, taken: Leased, place: int) -> None:
        """Called by the heartbeat's thread."""
        self._loop.call_soon_threadsafe(self._lost, taken, place)

    def _lost(self, taken: Leased, place: int) -> None:
        handling = taken.handlings.get(place)
        if handling is not None and not handling.told and not handling.ending:  # else it is its own end that was met
            handling.stop("lost")
            tell_lost(handling.delivery, "its handler is told to stop" if handling.batch is None else "its batch goes on")


def _nobody() -> None:
    """Nothing is claimed yet."""
