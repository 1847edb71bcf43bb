"""Messages that are handled together: one call of their handler, and an end for each."""

import asyncio
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any

from bide.core.amounts import plural
from bide.queue.attempts import Raised
from bide.queue.deliveries import Together
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.failed import failures
from bide.queue.tasks.items import called_alone
from bide.queue.tasks.outcome import RELEASED, Outcome
from bide.raised import readable
from bide.worker.handling import Handlers, Handling, Why
from bide.worker.slots import Slots
from bide.worker.telling import tell, tell_together


class Batch(Handling):
    """To those who call handlers it is as one message."""

    __slots__ = ("_deliveries", "_going", "_items", "_told_to_stop", "failed", "members")

    def __init__(self, members: Sequence[Handling]) -> None:
        first = members[0]
        super().__init__(first.delivery, first.task.telling(self._answered), first.taken)
        self.members: Sequence[Handling] = members
        self._items = [item for each in members for item in (each.delivery.arguments or {}).values()]
        self.failed: dict[int, BaseException] = {}  # what the handler says of single messages, by their places
        self._deliveries: Together[Any] | None = None
        self._going = len(members)  # that are to go on
        self._told_to_stop: set[Why] = set()
        for each in members:
            each.batch = self

    def __str__(self) -> str:
        if len(self.members) == 1:
            return super().__str__()
        return f"A batch of {plural(len(self.members), 'message')} of {self.delivery.topic}"

    def arguments(self) -> dict[str, Any]:
        [name] = self.task.arguments.named
        return {name: list(self._items)}

    def _answered(self, answer: Any) -> None:
        """A generator goes on here, so where its handler runs: not in the event loop, if that is sync."""
        self.failed = failures(answer, self._items, self.task.name)

    def stop(self, why: Why) -> None:
        """Tell the handler to stop, for all of its messages."""
        for each in self.members:
            each.why = each.why or why
        self.expire()
        self._stop(why)

    def begin_by(self, deadline: float) -> None:
        super().begin_by(deadline)
        for each in self.members:
            each.begin_by(deadline)

    def begins_work(self) -> None:
        for each in self.members:
            each.begins_work()

    def was_late(self) -> None:
        super().was_late()
        for each in self.members:
            each.first_told("timeout")

    def one_stops(self, why: Why, *, first: bool) -> None:
        """A message of it is told to stop. Others go on, so its handler does, until it would go on for none."""
        self._going -= first
        if why == "stop" or not self._going:
            self._stop(why)

    def _stop(self, why: Why) -> None:
        self.first_told(why)
        if self.runner is not None and why not in self._told_to_stop and (self.task.is_async or why == "stop"):
            self._told_to_stop.add(why)
            self.runner.cancel()

    def forget_stop(self, runner: "asyncio.Task[None] | None") -> None:
        """It has ended, and what comes after it was not told to stop."""
        for _ in self._told_to_stop:
            if runner is not None:
                runner.uncancel()

    def stick(self) -> None:
        super().stick()
        for each in self.members:
            each.stick()

    def expire(self) -> None:
        for each in self.members:
            each.expire()

    def present(self) -> Any:
        if self._deliveries is None:
            self._deliveries = Together(map(methodcaller("present"), self.members))
        return self._deliveries


class _Open:
    """A batch that others may join."""

    def __init__(self, ending: asyncio.Handle) -> None:
        self.ending: asyncio.Handle = ending
        self.members: list[Handling] = []


class Gathering:
    """Until a batch is full, or its first message has waited for its linger. Leases are renewed meanwhile, as of what runs."""

    def __init__(self, begin: Callable[[Sequence[Handling]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._begin = begin
        self._open: dict[str, _Open] = {}  # by topic

    def put(self, handling: Handling) -> None:
        batch, topic = handling.task.batch, handling.delivery.claimed.topic
        assert batch is not None
        gathered = self._open.get(topic)
        if gathered is None:
            ending = (
                self._loop.call_later(batch.linger, self._go, topic) if batch.linger else self._loop.call_soon(self._go, topic)
            )
            gathered = self._open[topic] = _Open(ending)
        gathered.members.append(handling)
        if len(gathered.members) >= batch.size:
            self._go(topic)

    def take_back(self) -> list[Handling]:
        """What is gathered and will not be handled."""
        gathered = list(self._open.values())
        self._open.clear()
        for each in gathered:
            each.ending.cancel()
        return [handling for each in gathered for handling in each.members]

    def _go(self, topic: str) -> None:
        gathered = self._open.pop(topic)
        gathered.ending.cancel()
        self._begin(gathered.members)


class Batches:
    """Gathers messages, and calls their handlers."""

    def __init__(
        self,
        handlers: Handlers,
        slots: Slots,
        stopping: asyncio.Event,
        ended: Callable[..., None],
        freed: Callable[[], None],
    ) -> None:
        """`ended` is told what becomes of a message, and `freed` is called when a place is free."""
        self._loop = asyncio.get_running_loop()
        self._gathering = Gathering(self._begin)
        self._handlers = handlers
        self._slots = slots
        self._stopping = stopping
        self._ended = ended
        self._freed = freed

    def takes(self, handling: Handling) -> bool:
        """Gather a message, unless it can't be read: then it fails by itself."""
        try:
            handling.delivery.arguments = handling.arguments()
        except Unread:
            return False
        if self._stopping.is_set():
            self._ended(handling, RELEASED, by_itself=False)
        else:
            self._gathering.put(handling)
        return True

    def give_back(self) -> None:
        """What is gathered will not begin."""
        for each in self._gathering.take_back():
            self._ended(each, RELEASED, by_itself=False)

    def _begin(self, gathered: Sequence[Handling]) -> None:
        """Call the handler. What is on its last attempt is called alone, so that no other takes it along when it fails."""
        for each in gathered:
            if each.why is not None:  # its lease was lost meanwhile
                self._ended(each, RELEASED, by_itself=False)
        members = [each for each in gathered if not each.told]
        together = [each for each in members if not _alone(each)]
        batches = [Batch(together)] if together else []
        batches += [Batch([each]) for each in members if _alone(each)]
        if batches:
            topic = members[0].delivery.claimed.topic
            self._slots.begin_batch(topic, len(members))
            runner = asyncio.Task(self._run(topic, batches), loop=self._loop)
            for each in members:
                each.runner = runner

    async def _run(self, topic: str, batches: Sequence[Batch]) -> None:
        """One after the other."""
        runner = asyncio.current_task(self._loop)
        try:
            for batch in batches:
                batch.runner = runner
                await self._call(batch)
                batch.forget_stop(runner)
        finally:
            if self._runs(runner):  # else the loop has gone
                self._slots.end_batch(topic)
                self._freed()

    async def _call(self, batch: Batch) -> None:
        """From the call of the handler until the ends of all messages are on their way to the engine."""
        runner, members = batch.runner, batch.members
        became: list[Outcome | None] = [RELEASED] * len(members)
        errors: list[BaseException | None] = [None] * len(members)
        error: BaseException | None = None
        try:
            if batch.why is None and not self._stopping.is_set() and self._handlers.ready(batch):
                try:
                    await self._handlers.call(batch)
                    self._handlers.returned(batch)
                except KeyboardInterrupt:
                    raise
                except BaseException as by:
                    # a GeneratorExit that the handler met in an await has closed all coroutines within this one
                    error = readable(by)
                    if isinstance(error, GeneratorExit) and not self._runs(runner):
                        raise
                batch.silence()
                for place, member in enumerate(members):
                    outcome, errors[place] = self._handlers.became(member, batch.failed.get(place) if error is None else error)
                    became[place] = await self._handlers.told_dead(member, outcome)
        finally:
            batch.silence()
            if self._runs(runner):
                batch.runner = None
                raised = {id(each): Raised(each) for each in errors if each is not None}
                for place, member in enumerate(members):
                    member.runner = None  # or they would hold each other, and wait for the garbage collector
                    self._ended(member, became[place], by_itself=member.ended, raised=raised.get(id(errors[place])))
                    member.batch = None
        if error is not None and len(members) > 1:
            tell_together([each.delivery for each in members], became, errors)
        else:
            for member, outcome, why in zip(members, became, errors, strict=True):
                if why is not None:
                    tell(member.delivery, outcome, why)
        error = None  # from Python 3.12 on its traceback leads back to this frame
        errors.clear()

    def _runs(self, runner: "asyncio.Task[None] | None") -> bool:
        return asyncio.current_task(self._loop) is runner


def _alone(handling: Handling) -> bool:
    return called_alone(handling.delivery.attempt, handling.delivery.max_attempts)
