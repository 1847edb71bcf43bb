# Generated from ../aio/travel.py by tools/unasync.py; change that file instead.
"""Moves a queue's ManualClock from one due time to the next, with the upkeep and the work that real time would have brought."""

from collections import Counter, deque
from collections.abc import Iterable

from bide.blocking import Apart
from bide.clock import ManualClock
from bide.core.times import duration_ms
from bide.engines.base import MAX_BATCH, Ref, Stored
from bide.engines.sync import Engine
from bide.errors import ConfigError
from bide.queue.later import PATIENCE
from bide.queue.run.sync.limits import tend
from bide.queue.run.sync.overdue import OverdueStep
from bide.queue.schedules.records import OWN
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.opened import Opened
from bide.queue.sync.planner import Planner, check
from bide.queue.sync.traveller import DAY, Traveller
from bide.queue.tasks.definition import Definition, Tasks
from bide.queue.travel import Handled, check_travel, raise_all
from bide.queue.travel.invoke import Invoke
from bide.queue.travel.relocate import FollowingClock, Relocatable
from bide.types import Duration, State

MOST_AT_ONCE = 100_000
MOST_OF_ONE = 2_000  # times that a message is handled without time passing: more than it may have attempts
LEASE = 1_000  # ms, of a claim that only asks for the time
MANY = 1_000  # messages of a topic that wait: from here on, that there are as many as before means that they are the same


class Ahead:
    """Knows the next stop, and tells what falls due without a task, each message once and without looking at all of them."""

    def __init__(self, engine: Engine, tasks: Tasks) -> None:
        self._engine = engine
        self._tasks = tasks
        self._waiting: dict[str, set[str]] = {}  # by topic: the ids of what is ready and has no task
        self._coming: deque[Stored] = deque()  # what falls due next of what has no task
        self._busy: int | None = None  # when something may be to do for a task, or a lease ends
        self._beyond: int | None = None  # from here on nobody has looked what falls due

    def fell_due(self) -> list[Handled]:
        """What has become ready since the last look, and has no task, in due order."""
        found: list[Stored] = []
        waiting: dict[str, set[str]] = {}
        for topic, counts in self._engine.stats(but=OWN).topics.items():
            if self._tasks.get(topic) is not None:
                continue
            known = self._waiting.get(topic, set())
            if counts.ready == len(known) >= MANY:
                waiting[topic] = known
                continue
            ready = _all_in(self._engine, topic, "ready") if counts.ready else []
            waiting[topic] = {each.id for each in ready}
            found += [each for each in ready if each.id not in known]
        self._waiting = waiting
        return _told(found)

    def look(self, clock: int) -> None:
        """Find out what falls due next. `clock`: what it shows now."""
        stats = self._engine.stats(but=OWN)
        now = self._engine.claim([], 1, LEASE).now
        if now > clock:
            self._look_from_behind(stats.topics, now, clock)
            return
        stops: list[int] = []
        found: list[Stored] = []
        beyond: list[int] = []
        for topic, counts in stats.topics.items():
            if counts.leased:
                stops += [each.lease_until for each in _all_in(self._engine, topic, "leased") if each.lease_until]
            if counts.next_due is None:
                continue
            if self._tasks.get(topic) is not None:
                stops.append(counts.next_due)
            else:
                soon, rest = self._soon(topic)
                found += soon
                beyond += [rest] if rest is not None else []
        self._busy = min(stops, default=None)
        self._beyond = min(beyond, default=None)
        horizon = self._beyond
        self._coming = deque(
            sorted((each for each in found if horizon is None or each.due < horizon), key=lambda each: (each.due, each.id))
        )

    def _look_from_behind(self, topics: Iterable[str], now: int, clock: int) -> None:
        """The same after the clock was set back: until it has caught up, engine time runs at half its speed.

        Delays and leases end by engine time, and instants go by the clock.
        """
        stops: list[int] = []
        for topic in topics:
            stops += [each.due for each in _all_in(self._engine, topic, "scheduled")]
            stops += [each.lease_until for each in _all_in(self._engine, topic, "leased") if each.lease_until]
        self._busy = min((each if each <= now else min(each, clock + 2 * (each - now)) for each in stops), default=None)
        self._beyond = None
        self._coming.clear()

    def _soon(self, topic: str) -> tuple[list[Stored], int | None]:
        """What falls due next of a topic, and when the rest begins: messages of one due time are not parted."""
        page = self._engine.scan(topic, "scheduled", MAX_BATCH)
        found = list(page.messages)
        while page.after is not None and found[0].due == found[-1].due:
            page = self._engine.scan(topic, "scheduled", MAX_BATCH, page.after)
            found += page.messages
        if page.after is None:
            return found, None
        return [each for each in found if each.due < found[-1].due], found[-1].due

    @property
    def stop(self) -> int | None:
        """When something falls due next, or a lease ends."""
        first = self._coming[0].due if self._coming else self._beyond
        return min((each for each in (first, self._busy) if each is not None), default=None)

    def quiet(self, now: int) -> bool:
        """Whether nothing has happened by then but that messages without a task have fallen due."""
        return all(each is None or now < each for each in (self._busy, self._beyond))

    def passed(self, now: int) -> list[Handled]:
        """Of these messages those that fell due by then, unless somebody has them or they have ended."""
        due = []
        while self._coming and self._coming[0].due <= now:
            due.append(self._coming.popleft())
        found = []
        for begin in range(0, len(due), MAX_BATCH):
            refs = [Ref(id=each.id) for each in due[begin : begin + MAX_BATCH]]
            found += [each for each in self._engine.get(refs) if each is not None and each.state == "ready"]
        for each in found:
            self._waiting.setdefault(each.topic, set()).add(each.id)
        return _told(found)


class Travel(Relocatable):
    """`queue.testing`: time travel, and another store for your application's queue during a test."""

    def __init__(self, invoke: Invoke) -> None:
        super().__init__(invoke)
        self._session = invoke.session
        self._invoke = invoke

    def advance(self, by: Duration, *, raise_errors: bool = True) -> list[Handled]:
        """Move the clock, and stop at each due time. Returns the messages that were handled or fell due, in order.

        Messages with a task are handled, one after the other, with their retries. Delays between attempts have no jitter here:
        1 s, 2 s, 4 s. Messages that are due at the same time are handled in the order in which they were sent. Messages that
        are due already come first, so `advance(0)` handles exactly these. Waiting receivers are woken at each stop. Leases end
        and messages expire as in real time.

        Errors that handlers raise are raised at the end, except Bury, Retry and Snooze: one error as it is, several as an
        ExceptionGroup. With raise_errors=False they are only in the list. A handler that takes longer than its task's timeout,
        in real time or by the clock that it moves, fails as in a worker.
        """
        clock = self._setup.clock
        if not isinstance(clock, ManualClock):
            raise ConfigError(
                "Time travel needs a clock that can be moved: use the fixture, `with queue.testing.in_memory():`, "
                "or Queue('memory://', clock=ManualClock())."
            )
        handled = self._travel(clock, clock.now_ms + duration_ms(by))
        if raise_errors:
            raise_all(handled)
        return handled

    def _travel(self, clock: ManualClock, until: int) -> list[Handled]:
        if isinstance(clock, FollowingClock):
            clock.check()
        check_travel(self._setup)
        opened = self._session.open()
        engine = opened.engine
        ahead = Ahead(engine, self._setup.tasks)
        self._overdue = OverdueStep(engine, self._setup.envelope)
        check(self._setup)
        planner = Planner(engine, self._setup)
        planner.announce(self._setup.schedules, begins=True)
        self._flush()
        _tend_all(engine)
        ahead.fell_due()  # what is ready now is taken for known
        handled = self._handle_ready(opened, ahead, planner)
        ahead.look(clock.now_ms)
        while (stop := ahead.stop) is not None and stop <= until:
            clock.set_ms(max(stop, clock.now_ms))
            _tend_all(engine)
            now = clock.now_ms
            if ahead.quiet(now):
                handled += ahead.passed(now)
            else:
                handled += self._handle_ready(opened, ahead, planner)
                ahead.look(clock.now_ms)
        clock.set_ms(max(until, clock.now_ms))
        _tend_all(engine)
        return handled

    def _handle_ready(self, opened: Opened, ahead: Ahead, planner: Planner) -> list[Handled]:
        """What is due now: told where no task is for it, handled where one is, until nothing is left."""
        handled = ahead.fell_due()
        engine, receiver = opened.engine, opened.receiver
        handling = Traveller(engine, self._setup, self._invoke, self._overdue)
        found, times = True, Counter[str]()
        while found:
            found = False
            self._flush()
            for topic, task in self._turns(engine):
                size, more = 1 if task.batch is None else task.batch.size, True
                taken: list[Delivery] = []
                while more and len(taken) < size:  # which of the topic's messages it is, the engine says
                    claim, some = receiver.taken([topic], min(size - len(taken), MAX_BATCH), DAY)
                    taken += some
                    more = bool(some) and size > MAX_BATCH
                    found = found or bool(claim.messages) or claim.more
                handled += handling.handle(task, taken)
                times.update([each.id for each in taken])
                if (again := max((times[each.id] for each in taken), default=0)) >= MOST_OF_ONE:
                    raise ConfigError(
                        f"A message of {topic} was handled {again:,} times without time passing, and would be for ever: give "
                        "release(), or Snooze, a delay."
                    )
                if len(handled) >= MOST_AT_ONCE:
                    raise ConfigError(
                        f"{len(handled):,} messages were handled without time passing, so this may never end. "
                        f"Does {handled[-1].topic} snooze for no time, or send itself without a delay?"
                    )
        planner.restore(self._setup.schedules)
        return handled + ahead.fell_due()

    def _flush(self) -> None:
        """See what was sent in the background to the engine: a test has it as if it had been sent at once."""
        later = self._setup.later
        if later.waits:
            Apart(lambda: later.flush(PATIENCE)).done()

    def _turns(self, engine: Engine) -> list[tuple[str, Definition]]:
        """Whose turn it is, once for each message that is ready and has a task: by due time, then in the order of sending."""
        tasks, found = self._setup.tasks, []
        for topic, counts in engine.stats().topics.items():
            task = tasks.get(topic)
            if task is not None and counts.ready and not counts.paused:
                found += [(each.due, each.id, topic, task) for each in _all_in(engine, topic, "ready")]
        return [(topic, task) for _, _, topic, task in sorted(found, key=lambda each: each[:2])]


def _tend_all(engine: Engine) -> None:
    while tend(engine).more:
        pass


def _all_in(engine: Engine, topic: str, state: State) -> list[Stored]:
    page = engine.scan(topic, state, MAX_BATCH)
    found = list(page.messages)
    while page.after is not None:
        page = engine.scan(topic, state, MAX_BATCH, page.after)
        found += page.messages
    return found


def _told(found: list[Stored]) -> list[Handled]:
    return [Handled(each.topic, each.id, "ready") for each in sorted(found, key=lambda each: (each.due, each.id))]
