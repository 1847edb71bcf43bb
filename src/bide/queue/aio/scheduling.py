# unasync: ../sync/scheduling.py
"""The queue's verbs for schedules: writing, listing, pausing, changing and running them."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from bide.core import options
from bide.core.cron import Missed
from bide.engines.base import MAX_BATCH, Stored
from bide.errors import BadOption, ConfigError
from bide.queue.aio.planning import AsyncPlanner, check_engine
from bide.queue.aio.session import AsyncSession
from bide.queue.bound import Bound, P, R
from bide.queue.schedules.definition import read_schedule, read_timing, refuse_timezone, schedule_of
from bide.queue.schedules.listing import announced, listed
from bide.queue.schedules.records import TOPIC, Change, Kept, change_mark, changed_ref, name_of, pause_mark, paused_ref
from bide.queue.task import AsyncTask
from bide.queue.tasks.definition import Definition
from bide.types import Duration, ScheduleInfo, Sent, State

PENDING: tuple[State, ...] = ("ready", "scheduled")  # in this order: what is announced meanwhile goes from one to the other


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
            zone = timezone if timezone is not None else announced(self.session.setup, name, what).timezone
            change = Change(read_schedule(schedule), zone)
            if timezone is not None:
                refuse_timezone(change.schedule)
            schedule_of(name, what._replace(change=change).timing(announced(self.session.setup, name, what)))
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
