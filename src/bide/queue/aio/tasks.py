# unasync: ../sync/tasks.py
"""The verbs that say what a topic is for, tasks and rules, and those for schedules."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Unpack, overload

from bide.core import options
from bide.core.backoff import USUAL, Backoff
from bide.core.cron import Missed
from bide.engines.base import MAX_BATCH, Stored
from bide.errors import BadOption, ConfigError
from bide.queue import workers
from bide.queue.aio.planner import AsyncPlanner, check_engine
from bide.queue.aio.session import AsyncSession
from bide.queue.bound import Bound, P, R
from bide.queue.schedules.announcements import announced_timing, listed
from bide.queue.schedules.definition import read_schedule, read_timing, refuse_timezone, schedule_of
from bide.queue.schedules.records import (
    TOPIC,
    WORKERS,
    Change,
    Kept,
    change_mark,
    changed_ref,
    name_of,
    pause_mark,
    paused_ref,
)
from bide.queue.task import A, AsyncBatchTask, AsyncKeepingTask, AsyncTask, T
from bide.queue.tasks.definition import Definition, TaskOptions, Unknown
from bide.queue.tasks.failures import Errors, OnDead
from bide.queue.tasks.habits import TASKS, instead
from bide.queue.tasks.limits import CatchUp, OnConflict
from bide.queue.topic_rules import rule
from bide.types import Duration, ScheduleInfo, Sent, State, WorkerInfos


class AsyncTaskVerbs:
    """What AsyncQueue can do with the code of an application."""

    session: AsyncSession

    @overload
    def task(
        self, topic: str | None = None, *, batch: None = None, keep: None = None, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], AsyncTask[P, R]]: ...
    @overload
    def task(
        self, topic: str | None = None, *, batch: None = None, keep: Duration, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], AsyncKeepingTask[P, R]]: ...
    @overload
    def task(
        self, topic: str | None = None, *, batch: int, linger: Duration = 0, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[[list[T]], A]], AsyncBatchTask[T, A]]: ...
    def task(
        self,
        topic: str | None = None,
        *,
        aliases: Sequence[str] = (),
        max_attempts: int = options.MAX_ATTEMPTS,
        backoff: Backoff = USUAL,
        timeout: Duration | None = None,
        unknown: Unknown = "retry",
        retry_for: Errors | None = None,
        no_retry_for: Errors = (),
        on_dead: OnDead | None = None,
        concurrency: int | None = None,
        rate: str | None = None,
        per: str | None = None,
        lock: str | None = None,
        on_conflict: OnConflict = "wait",
        lock_wait: Duration = "10m",
        lock_delay: Duration = "5s",
        expires_in: Duration | None = None,
        most_pending: int | None = None,
        catch_up: CatchUp = "all",
        keep: Duration | None = None,
        batch: int | None = None,
        linger: Duration = 0,
        **others: object,
    ) -> Callable[[Callable[..., Any]], AsyncTask[..., Any] | AsyncBatchTask[Any, Any]]:
        """Make a function the handler of a topic: `@queue.task("order.cancel")`.

        A worker calls it with the arguments that were sent. The function may be sync or async.

        - topic: "module.function" by default.
        - aliases: other topics that it handles too, such as an earlier name.
        - backoff: the delays between attempts, such as exponential("1s", cap="10m"), or a function from the number of the
          failed attempt to a delay.
        - timeout: how long an attempt may take; unlimited by default.
        - unknown: what to do with arguments that the function does not know. "retry": the attempt fails, because another worker
          may run a newer release. "ignore": drop these arguments.
        - retry_for: errors that are worth another attempt; all by default. no_retry_for: errors that are not. A message that
          fails with any other becomes a dead letter at once.
        - on_dead: called with the delivery and the reason, before its message becomes a dead letter.
        - concurrency: how many of its messages run at once, over all workers. rate: how many begin, such as "100/m".
        - per: count these for each value of arguments, such as "{user}".
        - lock: run under the lock of this name, such as "order:{order}", which tasks and `queue.lock` share.
        - on_conflict: what to do with a message whose lock is held. "wait": call it when the lock is free, and bury it after
          `lock_wait`. "defer": try again after `lock_delay`. "error": bury it at once. None of these counts as an attempt.
        - expires_in: drop its messages if no worker received them this long after their due time. The shorter one of this and
          the send's own counts. `missed` of a schedule decides for what it plans.
        - most_pending: how many messages of each of its topics may be scheduled or ready. A send beyond that raises QueueFull.
        - catch_up: what to do with a message that is over a minute late, as after an outage. "all": call it. "latest": leave it
          out if a newer one is due too, or of each value of `per`. "10/s": give it a new time, so that no more fall due then.
        - batch: call the function once for up to this many messages. It takes one list; each message is an item of it. It
          returns a Failed for each item that failed.
        - linger: how long the first message of a batch waits for others. By default a batch is what is due already.
        - keep: keep what the function returns for this long, for `sent.result` and for messages that depend on it.

        Raises ConfigError for a function that can't be a task, and for a topic that has another function.
        """

        if callable(topic):
            raise ConfigError("Write @queue.task() with parentheses, or with a topic: @queue.task('order.cancel').")
        for other in others:
            raise ConfigError(f"{other} is no option of a task.{instead(other, TASKS)}")

        def decorate(function: Callable[..., Any]) -> AsyncTask[..., Any] | AsyncBatchTask[Any, Any]:
            self.session.setup.schedules.refuse_below(function)
            definition = Definition(
                function,
                topic=topic,
                aliases=aliases,
                max_attempts=max_attempts,
                backoff=backoff,
                timeout=timeout,
                unknown=unknown,
                retry_for=retry_for,
                no_retry_for=no_retry_for,
                on_dead=on_dead,
                concurrency=concurrency,
                rate=rate,
                per=per,
                lock=lock,
                on_conflict=on_conflict,
                lock_wait=lock_wait,
                lock_delay=lock_delay,
                expires_in=expires_in,
                most_pending=most_pending,
                catch_up=catch_up,
                batch=batch,
                linger=linger,
                keep=keep,
            )
            kind = AsyncBatchTask if batch is not None else AsyncTask if keep is None else AsyncKeepingTask
            return kind(self.session, self.session.setup.tasks.add(definition))

        return decorate

    def topic(self, name: str, *, expires_in: Duration | None = None, most_pending: int | None = None) -> None:
        """Say rules for what this program sends to a topic, such as one whose task is part of another program.

        - expires_in: drop a message if nobody received it this long after its due time. The shortest one of this, the task's
          and the send's own counts.
        - most_pending: raise QueueFull for a send when so many messages are scheduled or ready. The lower one of this and the
          task's counts. Each program counts now and then, so several together may go beyond: see the page on overload.

        The last call for a topic counts, for this queue, its `.sync` and its `.aio`. Nothing is stored.
        """
        self.session.setup.tasks.rules.say(options.topic(name), rule(expires_in, most_pending))


PENDING: tuple[State, ...] = (
    "ready",
    "scheduled",
)  # in this order: what is announced meanwhile goes from one to the other


class AsyncScheduleVerbs:
    """What AsyncQueue can do with schedules."""

    session: AsyncSession

    def every(
        self,
        schedule: Duration,
        *,
        name: str | None = None,
        timezone: str = "UTC",
        start: datetime | None = None,
        end: datetime | None = None,
        jitter: Duration = 0,
        missed: Missed = "once",
        **task_options: Any,
    ) -> Callable[[Callable[P, R]], AsyncTask[P, R]]:
        """Make a function a task that is sent by itself: `@queue.every("5m")`, `@queue.every("0 9 * * mon-fri")`.

        Workers plan each instant once, however many there are. The function takes no arguments, or only ones with defaults;
        `current().planned_at` tells the instant. It may be a task already, and may have several schedules.

        - schedule: an interval, or the five fields of cron: minute, hour, day of month, month, day of week. Intervals count
          from `start`, or else from 1970 in UTC.
        - name: of the schedule; by default that of the task's topic.
        - timezone: an IANA name such as "Asia/Shanghai", for cron.
        - start, end: nothing is planned before and after these.
        - jitter: deliver each message up to this much later. The planned instants stay.
        - missed: what to do with an instant whose handling begins over a minute late, or when the next one has passed. "once":
          call the function once for all of them. "skip": leave them out. "all": call it for each, up to the latest 1,000.
        - task_options: as for `task`, and `topic`.

        Raises BadOption for a schedule that can't be used, and ConfigError for a name that is taken.
        """
        timing = read_timing(schedule, timezone, start, end, jitter, missed)
        of_task = set(Definition.__init__.__kwdefaults__ or ())
        if unknown := set(task_options) - of_task:
            there = sorted({*of_task, *(AsyncScheduleVerbs.every.__kwdefaults__ or ())})
            raise BadOption(f"{min(unknown)} is no option of a schedule or a task. There is: {', '.join(there)}.")
        setup = self.session.setup

        def decorate(function: Callable[P, R]) -> AsyncTask[P, R]:
            given: object = function
            if not isinstance(given, Bound):
                definition = Definition(function, **task_options)
                setup.schedules.add(name, definition, timing)
                return AsyncTask(self.session, setup.tasks.add(definition))
            if task_options:
                raise ConfigError(f"{given.topic} is a task already: give {', '.join(task_options)} where it is made.")
            setup.schedules.add(name, given.definition, timing)
            return AsyncTask(self.session, given.definition)

        return decorate

    async def schedules(self) -> list[ScheduleInfo]:
        """List the schedules that workers announce, by name, whichever application they are of."""
        planner = await self._planner()
        records: dict[str, Stored] = {}
        for state in PENDING:
            after: str | None = None
            while True:
                page = await (await self.session.engine()).scan(TOPIC, state, MAX_BATCH, after)
                records |= {found: each for each in page.messages if (found := name_of(each)) is not None}
                after = page.after
                if after is None:
                    break
        names = sorted(records)
        known = [(each, what, what.record) for each, what in zip(names, await planner.kept(names), strict=True)]
        there = [(each, what, record) for each, what, record in known if record is not None]
        pending = await planner.pending([(each, record.topic) for each, _, record in there])
        return [listed(each, what, record, next_) for (each, what, record), next_ in zip(there, pending, strict=True)]

    async def workers(self) -> WorkerInfos:
        """List the worker processes that have told of themselves in the last hour, by name, also those that have ended."""
        workers.check(self.session.setup)
        engine = await self.session.engine()
        ahead = await self.session.now() - self.session.setup.now_ms()
        found: list[Stored] = []
        missing: set[str] = set()
        after: str | None = None
        while True:
            page = await engine.scan(WORKERS, "scheduled", MAX_BATCH, after)
            found += page.messages
            missing.update(page.missing)
            after = page.after
            if after is None:
                return WorkerInfos(workers.known(found, ahead), sorted(missing))

    async def pause_schedule(self, name: str) -> None:
        """Plan nothing more for a schedule until it is resumed. What its handler has begun goes on.

        Raises BadOption for a schedule that is not there; so do the other verbs.
        """
        planner = await self._planner()
        topic, what = await self._known(planner, name)
        await (await self.session.engine()).put([pause_mark(name)])
        await planner.replan(name, topic, what._replace(paused=True), anew=False)

    async def resume_schedule(self, name: str) -> None:
        """Plan a schedule again, from its next instant on."""
        planner = await self._planner()
        topic, what = await self._known(planner, name)
        await (await self.session.engine()).cancel([paused_ref(name)])
        await planner.replan(name, topic, what._replace(paused=False), anew=False)

    async def change_schedule(self, name: str, schedule: Duration | None, *, timezone: str | None = None) -> None:
        """Give a schedule other times than its application does, until you change it again. None: the application's own.

        An instant that is due already is not taken back. Raises BadOption for a schedule that can't be used.
        """
        planner = await self._planner()
        topic, what = await self._known(planner, name)
        engine = await self.session.engine()
        if schedule is None:
            if timezone is not None:
                raise BadOption("timezone= belongs to a schedule: give both, or neither for the application's own.")
            await engine.cancel([changed_ref(name)])
            change = None
        else:
            zone = timezone if timezone is not None else announced_timing(self.session.setup, name, what).timezone
            change = Change(read_schedule(schedule), zone)
            if timezone is not None:
                refuse_timezone(change.schedule)
            schedule_of(name, what._replace(change=change).timing(announced_timing(self.session.setup, name, what)))
            await engine.put([change_mark(name, change)])
        await planner.replan(name, topic, what._replace(change=change), anew=True)

    async def run_schedule(self, name: str) -> Sent:
        """Send the task of a schedule now, beside its plan, also if it is paused."""
        topic, _ = await self._known(await self._planner(), name)
        return await self.session.put(self.session.setup.envelope.message(topic, {}))

    async def _planner(self) -> AsyncPlanner:
        check_engine(self.session.setup)
        return AsyncPlanner(await self.session.engine(), self.session.setup)

    async def _known(self, planner: AsyncPlanner, name: str) -> tuple[str, Kept]:
        """The topic of a schedule, and what is stored about it."""
        [what] = await planner.kept([options.topic(name)])
        own = self.session.setup.schedules.get(name)
        if what.record is not None:
            return what.record.topic, what
        if own is not None:
            return own.topic, what
        there = ", ".join(each.name for each in await self.schedules()) or "none"
        raise BadOption(f"There is no schedule {name}. There is: {there}. Workers announce theirs when they begin.")
