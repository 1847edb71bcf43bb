# Generated from ../aio/planner.py by tools/unasync.py; change that file instead.
"""Keeps schedules going: announces them, plans each instant from the one before, ends those that nobody announces."""

from collections.abc import Hashable, Iterable, Sequence

from bide.clock import moment
from bide.engines.base import Ref, Stored
from bide.engines.guard.able import others_can
from bide.engines.sync import Engine
from bide.errors import EngineError, Unsupported
from bide.logs import Log
from bide.queue.batching import joined
from bide.queue.schedules.announcements import SILENT, Actions, announced, plan
from bide.queue.schedules.definition import PlannedSchedule
from bide.queue.schedules.records import (
    ANNOUNCED,
    REFS,
    TOPIC,
    Kept,
    called_of,
    in_force,
    kept,
    key_of,
    name_of,
    refs,
    remembered,
)
from bide.queue.setup import Setup
from bide.rounds import Round

_log = Log("bide.schedules")
_PART = 200  # schedules in one call
_LEAST_LEASE = 1_000
_NOTICED = 1_000  # ms: a clock that is set back by less changes nothing soon
NEEDED = ("keys", "cancel", "lookup", "inspect")


def check(setup: Setup) -> None:
    """Refuse a queue's schedules on an engine that can't keep them."""
    if len(setup.schedules):
        check_engine(setup)


def check_engine(setup: Setup) -> None:
    """Refuse an engine that can't keep schedules."""
    can = setup.source.capabilities
    if not all(getattr(can, each) for each in NEEDED):
        raise Unsupported(f"{setup.source.shown} can't keep schedules: leave out @queue.every. {others_can(*NEEDED)}")


def engine_now(engine: Engine) -> int:
    """The engine's time: a claim tells it."""
    return engine.claim([], 1, _LEAST_LEASE).now


class Planner:
    def __init__(self, engine: Engine, setup: Setup, *, alone: bool = False) -> None:
        """`alone`: no worker can be away, as in time travel."""
        self._engine = engine
        self._setup = setup
        self._alone = alone
        self._watching = 0  # since when it has been looking for what nobody announces
        self._looked = 0
        self._last: dict[Ref, Stored | None] = {}  # what was stored when it was last asked for
        self._announced: set[str] = set()
        self._ahead: dict[Ref, int] = {}  # engine time of the clock, where instants are, when it was looked at last

    def now(self) -> int:
        """The engine's time."""
        return engine_now(self._engine)

    def set_back(self) -> bool:
        """Whether the clock was set back since its schedules were announced last, as far as claims have told since."""
        return any(self._engine.ahead(ref) > ahead + _NOTICED for ref, ahead in self._ahead.items())

    def kept(self, names: Sequence[str]) -> list[Kept]:
        """What is stored of each. In a part of the engine that is away it is as it was: nobody can change it there."""
        found: list[Kept] = []
        for first in range(0, len(names), _PART):
            asked = [ref for name in names[first : first + _PART] for ref in refs(name)]
            stored = self._stored(asked)
            found += [kept(stored[place : place + REFS]) for place in range(0, len(stored), REFS)]
        return found

    def _stored(self, asked: Sequence[Ref]) -> list[Stored | None]:
        by_part: dict[Hashable, list[Ref]] = {}
        for ref in asked:
            by_part.setdefault(self._engine.part_of(ref), []).append(ref)
        parts = list(by_part.values())
        told = Round(parts, lambda some: self._engine.get(some, brief=True)).answers()
        for refs_of_part, answer in zip(parts, told, strict=True):
            if not isinstance(answer, Exception):
                self._last.update(zip(refs_of_part, answer, strict=True))
            elif not isinstance(answer, EngineError) or not all(ref in self._last for ref in refs_of_part):
                raise answer
        return [self._last[ref] for ref in asked]

    def pending(self, schedules: Sequence[tuple[str, str]]) -> list[Stored | None]:
        """The messages of the next instants, by name and topic."""
        found: list[Stored | None] = []
        for first in range(0, len(schedules), _PART):
            some = schedules[first : first + _PART]
            found += self._engine.get([Ref(topic=topic, key=key_of(name)) for name, topic in some])
        return found

    def announce(self, schedules: Iterable[PlannedSchedule], *, begins: bool) -> None:
        """Say that these are in use for the next ten minutes, and see that the next instant of each is planned.

        A part of the engine that does not answer holds up only the schedules that need it. `begins` counts until a schedule
        has been announced.
        """
        now = self.now()
        by_parts: dict[Hashable, list[PlannedSchedule]] = {}
        for each in schedules:
            concerned = [*refs(each.name), Ref(topic=each.topic, key=key_of(each.name))]
            by_parts.setdefault(joined(map(self._engine.part_of, concerned)), []).append(each)
        some = [each[first : first + _PART] for each in by_parts.values() for first in range(0, len(each), _PART)]
        told = Round(some, lambda part: self._announce(part, now, begins=begins)).answers()
        for answer in told:
            if isinstance(answer, Exception):
                raise answer

    def restore(self, schedules: Iterable[PlannedSchedule]) -> None:
        """Have the next instants planned of those whose message is gone: somebody may have cancelled it."""
        every = list(schedules)
        found = self.pending([(each.name, each.topic) for each in every])
        if gone := [each for each, pending in zip(every, found, strict=True) if pending is None]:
            self.announce(gone, begins=False)

    def _announce(self, some: Sequence[PlannedSchedule], now: int, *, begins: bool) -> None:
        whats = self.kept([planned.name for planned in some])
        pending = self.pending([(planned.name, planned.topic) for planned in some])
        moved = {
            planned.name: what.record.topic
            for planned, what in zip(some, whats, strict=True)
            if what.record is not None and what.record.topic != planned.topic
        }
        left = dict(zip(moved, self.pending(list(moved.items())), strict=True))
        actions = Actions([], [], [])
        for planned, what, stored in zip(some, whats, pending, strict=True):
            first = begins and planned.name not in self._announced
            ref = Ref(topic=planned.topic, key=key_of(planned.name))
            ahead = self._ahead[ref] = self._engine.ahead(ref)
            before = left.get(planned.name)
            announced(planned, what, stored, now, now - ahead, self._setup.envelope, actions, left=before, begins=first)
        self.act(actions)
        self._announced.update(planned.name for planned in some)

    def replan(self, name: str, topic: str, what: Kept, *, anew: bool) -> None:
        """Have the next instant planned, or none, after an operator has spoken."""
        [pending] = self.pending([(name, topic)])
        actions = Actions([], [], [])
        schedule = in_force(name, self._setup.schedules.get(name), what)
        now = self.now()
        clock = now - self._engine.ahead(Ref(topic=topic, key=key_of(name)))
        if what.paused and pending is not None and not what.has_begun(pending.id, pending.attempt):
            actions.puts.extend(remembered(what, called_of(pending.headers), now))
        plan(schedule, topic, what, pending, clock, self._setup.envelope, actions, anew=anew)
        self.act(actions)

    def act(self, actions: Actions) -> None:
        if actions.moves:
            self._engine.reschedule(actions.moves)
        if actions.cancels:
            self._engine.cancel(actions.cancels)
        if actions.puts:
            self._engine.put(actions.puts)

    def has_watched(self, now: int) -> bool:
        """Whether this has looked for announcements so long that a schedule without one has ended."""
        return self._alone or (now - self._looked <= SILENT and now - self._watching >= ANNOUNCED)

    def sweep(self) -> None:
        """End what nobody has announced for ten minutes, while this has been looking."""
        now = self.now()
        if now - self._looked > SILENT:  # it was not running, as when its machine slept, so others may not have been either
            self._watching = now
        self._looked = now
        if not self.has_watched(now):
            return
        page = self._engine.scan(TOPIC, "ready", _PART)
        for stored in page.messages:
            name, what = name_of(stored), kept([stored, None, None])
            if name is None or what.record is None or self._setup.schedules.get(name) is not None:
                continue
            [pending] = self.pending([(name, what.record.topic)])
            if planned := what.planned(pending):
                self._engine.cancel(planned)
            if all(self._engine.cancel([Ref(id=stored.id)])):
                _log.warning(
                    "The schedule %s has ended: no worker has announced it since %s", name, moment(stored.due - ANNOUNCED)
                )
