"""Messages that are handled together: one call of their handler, and an end for each."""

import asyncio
import time
from collections.abc import Callable, Sequence

from bide.queue.deliveries import Raised
from bide.queue.run.call import Handlers, OnDeadStep, raised, runs
from bide.queue.run.message import Batch, Handling, batches_of
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.outcome import RELEASED, Outcome
from bide.worker.log_lines import EndLog, tell, tell_together
from bide.worker.slots import Slots


class _Open:
    """A batch that others may join."""

    def __init__(self, ending: asyncio.Handle) -> None:
        self.ending: asyncio.Handle = ending
        self.members: list[Handling] = []


class GatheredBatch:
    """Until a batch is full, or its first message has waited for its linger. Leases are renewed meanwhile, as of what runs."""

    def __init__(self, begin: Callable[[Sequence[Handling]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._begin = begin
        self._open: dict[str, _Open] = {}  # by topic

    def put(self, handling: Handling) -> None:
        batch, topic = handling.task.batch, handling.topic
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
        thread_ready: Callable[[], bool],
        on_dead: OnDeadStep,
        slots: Slots,
        stopping: asyncio.Event,
        ended: Callable[..., None],
        freed: Callable[[], None],
        *,
        end_log: EndLog,
    ) -> None:
        """`ended` is told what becomes of a message, and `freed` is called when a place is free."""
        self._loop = asyncio.get_running_loop()
        self._gathering = GatheredBatch(self._begin)
        self._handlers = handlers
        self._thread_ready = thread_ready
        self._on_dead = on_dead
        self._slots = slots
        self._end_log = end_log
        self._stopping = stopping
        self._ended = ended
        self._freed = freed

    def takes(self, handling: Handling) -> bool:
        """Gather a message, unless it can't be read: then it fails by itself."""
        try:
            handling.read()
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
        for each in gathered:
            if each.why is not None:  # its lease was lost meanwhile
                self._ended(each, RELEASED, by_itself=False)
        members = [each for each in gathered if not each.told]
        if members:
            topic = members[0].topic
            self._slots.begin_batch(topic, len(members))
            runner = asyncio.Task(self._run(topic, batches_of(members)), loop=self._loop)
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
            if runs(runner):  # else the loop has gone
                self._slots.end_batch(topic)
                self._freed()

    async def _call(self, batch: Batch) -> None:
        """From the call of the handler until the ends of all messages are on their way to the engine."""
        runner, members = batch.runner, batch.members
        became: list[Outcome | None] = [RELEASED] * len(members)
        errors: list[BaseException | None] = [None] * len(members)
        error: BaseException | None = None
        try:
            if batch.why is None and not self._stopping.is_set() and (batch.task.is_async or self._thread_ready()):
                began = time.monotonic()
                try:
                    await self._handlers.call(batch)
                    self._handlers.returned(batch)
                except BaseException as by:
                    error = raised(by, runner)
                batch.silence()
                batch.ends_work(began)
                for place, (member, why) in enumerate(batch.each(error)):
                    outcome, errors[place] = self._handlers.became(member, why)
                    became[place] = await self._on_dead.told(member, outcome)
        finally:
            batch.silence()
            if runs(runner):
                batch.runner = None
                records = {id(each): Raised(each) for each in errors if each is not None}
                for place, member in enumerate(members):
                    member.runner = None  # or they would hold each other, and wait for the garbage collector
                    self._ended(member, became[place], by_itself=member.ended, raised=records.get(id(errors[place])))
                    member.batch = None
        if error is not None and len(members) > 1:
            tell_together(members, became, errors)
        else:
            for member, outcome, why in zip(members, became, errors, strict=True):
                if why is not None:
                    tell(member, outcome, why, self._end_log.level)
        error = None  # from Python 3.12 on its traceback leads back to this frame
        errors.clear()
