# unasync: ../sync/planning.py
"""Keeps schedules going: announces them, plans each instant from the one before, ends those that nobody announces."""

from collections.abc import Hashable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from bide.clock import moment
from bide.core.schedule import Schedule
from bide.engines.aio import AsyncEngine
from bide.engines.base import Claimed, NewMessage, Ref, Stored
from bide.engines.guard.able import others_can
from bide.errors import EngineError, Unsupported
from bide.logs import Log
from bide.queue.batching import joined
from bide.queue.schedules.announcing import SILENT, Actions, announced, plan
from bide.queue.schedules.definition import Planned
from bide.queue.schedules.records import (
    ANNOUNCED,
    REFS,
    TOPIC,
    Instant,
    Kept,
    called_of,
    in_force,
    instant_message,
    instant_of,
    kept,
    key_of,
    name_of,
    refs,
    remembered,
    stands_for,
)
from bide.queue.setup import Setup
from bide.rounds import AsyncRound

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


class AsyncPlanner:
    def __init__(self, engine: AsyncEngine, setup: Setup, *, alone: bool = False) -> None:
        """`alone`: no worker can be away, as in time travel."""
        self._engine = engine
        self._setup = setup
        self._alone = alone
        self._watching = 0  # since when it has been looking for what nobody announces
        self._looked = 0
        self._last: dict[Ref, Stored | None] = {}  # what was stored when it was last asked for
        self._announced: set[str] = set()
        self._ahead: dict[Ref, int] = {}  # engine time of the clock, where instants are, when it was looked at last

    async def now(self) -> int:
        """The engine's time."""
        return (await self._engine.claim([], 1, _LEAST_LEASE)).now

    def set_back(self) -> bool:
        """Whether the clock was set back since its schedules were announced last, as far as claims have told since."""
        return any(self._engine.ahead(ref) > ahead + _NOTICED for ref, ahead in self._ahead.items())

    async def kept(self, names: Sequence[str]) -> list[Kept]:
        """What is stored of each. In a part of the engine that is away it is as it was: nobody can change it there."""
        found: list[Kept] = []
        for first in range(0, len(names), _PART):
            asked = [ref for name in names[first : first + _PART] for ref in refs(name)]
            stored = await self._stored(asked)
            found += [kept(stored[place : place + REFS]) for place in range(0, len(stored), REFS)]
        return found

    async def _stored(self, asked: Sequence[Ref]) -> list[Stored | None]:
        by_part: dict[Hashable, list[Ref]] = {}
        for ref in asked:
            by_part.setdefault(self._engine.part_of(ref), []).append(ref)
        parts = list(by_part.values())
        told = await AsyncRound(parts, lambda some: self._engine.get(some, brief=True)).answers()
        for refs_of_part, answer in zip(parts, told, strict=True):
            if not isinstance(answer, Exception):
                self._last.update(zip(refs_of_part, answer, strict=True))
            elif not isinstance(answer, EngineError) or not all(ref in self._last for ref in refs_of_part):
                raise answer
        return [self._last[ref] for ref in asked]

    async def pending(self, schedules: Sequence[tuple[str, str]]) -> list[Stored | None]:
        """The messages of the next instants, by name and topic."""
        found: list[Stored | None] = []
        for first in range(0, len(schedules), _PART):
            some = schedules[first : first + _PART]
            found += await self._engine.get([Ref(topic=topic, key=key_of(name)) for name, topic in some])
        return found

    def part_of(self, claimed: Claimed) -> Hashable:
        """Which part of the engine takes what comes after an instant."""
        instant = instant_of(claimed)
        return None if instant is None else self._engine.part_of(Ref(topic=claimed.topic, key=key_of(instant.name)))

    async def announce(self, schedules: Iterable[Planned], *, begins: bool) -> None:
        """Say that these are in use for the next ten minutes, and see that the next instant of each is planned.

        A part of the engine that does not answer holds up only the schedules that need it. `begins` counts until a schedule
        has been announced.
        """
        now = await self.now()
        by_parts: dict[Hashable, list[Planned]] = {}
        for each in schedules:
            concerned = [*refs(each.name), Ref(topic=each.topic, key=key_of(each.name))]
            by_parts.setdefault(joined(map(self._engine.part_of, concerned)), []).append(each)
        some = [each[first : first + _PART] for each in by_parts.values() for first in range(0, len(each), _PART)]
        told = await AsyncRound(some, lambda part: self._announce(part, now, begins=begins)).answers()
        for answer in told:
            if isinstance(answer, Exception):
                raise answer

    async def restore(self, schedules: Iterable[Planned]) -> None:
        """Have the next instants planned of those whose message is gone: somebody may have cancelled it."""
        every = list(schedules)
        found = await self.pending([(each.name, each.topic) for each in every])
        if gone := [each for each, pending in zip(every, found, strict=True) if pending is None]:
            await self.announce(gone, begins=False)

    async def _announce(self, some: Sequence[Planned], now: int, *, begins: bool) -> None:
        whats = await self.kept([planned.name for planned in some])
        pending = await self.pending([(planned.name, planned.topic) for planned in some])
        moved = {
            planned.name: what.record.topic
            for planned, what in zip(some, whats, strict=True)
            if what.record is not None and what.record.topic != planned.topic
        }
        left = dict(zip(moved, await self.pending(list(moved.items())), strict=True))
        actions = Actions([], [], [])
        for planned, what, stored in zip(some, whats, pending, strict=True):
            first = begins and planned.name not in self._announced
            ref = Ref(topic=planned.topic, key=key_of(planned.name))
            ahead = self._ahead[ref] = self._engine.ahead(ref)
            before = left.get(planned.name)
            announced(planned, what, stored, now, now - ahead, self._setup.envelope, actions, left=before, begins=first)
        await self.act(actions)
        self._announced.update(planned.name for planned in some)

    async def replan(self, name: str, topic: str, what: Kept, *, anew: bool) -> None:
        """Have the next instant planned, or none, after an operator has spoken."""
        [pending] = await self.pending([(name, topic)])
        actions = Actions([], [], [])
        schedule = in_force(name, self._setup.schedules.get(name), what)
        now = await self.now()
        clock = now - self._engine.ahead(Ref(topic=topic, key=key_of(name)))
        if what.paused and pending is not None and not what.has_begun(pending.id, pending.attempt):
            actions.puts.extend(remembered(what, called_of(pending.headers), now))
        plan(schedule, topic, what, pending, clock, self._setup.envelope, actions, anew=anew)
        await self.act(actions)

    async def act(self, actions: Actions) -> None:
        if actions.moves:
            await self._engine.reschedule(actions.moves)
        if actions.cancels:
            await self._engine.cancel(actions.cancels)
        if actions.puts:
            await self._engine.put(actions.puts)

    async def follow(self, claimed: Sequence[Claimed], now: int) -> list[bool]:
        """Plan what comes after these instants. Returns for each whether its handler is to be called.

        An instant has the schedule's key until the next one is planned. Without it, it has been here before.
        """
        instants = [instant_of(each) for each in claimed]
        names = sorted({each.name for each in instants if each is not None})
        whats = dict(zip(names, await self.kept(names), strict=True))
        moved = {
            instant.name: record.topic
            for each, instant in zip(claimed, instants, strict=True)
            if instant is not None and (record := whats[instant.name].record) is not None and record.topic != each.topic
        }
        there = dict(zip(moved, await self.pending(list(moved.items())), strict=True))
        answers: list[bool] = []
        puts: list[NewMessage] = []
        for each, instant in zip(claimed, instants, strict=True):
            if instant is None or each.key != key_of(instant.name):
                answers.append(True)
            else:
                answers.append(self._one(each, instant, whats[instant.name], there.get(instant.name), now, puts))
        if puts:
            await self._plan(puts, {each.id: each.token for each in claimed})
        return answers

    async def _plan(self, puts: Sequence[NewMessage], tokens: Mapping[str, str]) -> None:
        """Put the next instants, once.

        The put of a worker that had an instant before may have come when it had been given back, so that it still had its key:
        nothing was planned, and the engine answers so to each put of that name.
        """
        sent = await self._engine.put(puts)
        again = [new for new, answer in zip(puts, sent, strict=True) if answer.id == new.within]
        if again:
            named = [replace(new, operation=f"{new.operation} {tokens[new.within or '']}") for new in again]
            await self._engine.put(named)

    def _one(
        self, claimed: Claimed, instant: Instant, what: Kept, there: Stored | None, now: int, puts: list[NewMessage]
    ) -> bool:
        """`there`: the message of the next instant, where the task has moved to."""
        called = called_of(claimed.headers)
        has_begun = what.has_begun(claimed.id, claimed.attempt - 1)
        if what.paused:
            puts += [] if has_begun else remembered(what, called, now)
            return has_begun
        if what.record is not None and what.record.topic != claimed.topic:
            return has_begun or not stands_for(there, instant)  # the next instant is planned there
        schedule = self._followed(instant.name, what, now)
        if schedule is None:
            if not has_begun:
                _log.warning("The schedule %s has ended: no worker announces it. Instant: %s", *_shown(instant))
            return has_begun
        clock = now - self._engine.ahead(Ref(topic=claimed.topic, key=claimed.key))
        step = schedule.step(instant.planned, clock, called)
        call = step.call or has_begun
        if call:
            called = schedule.with_call(called, instant.planned)
        envelope = self._setup.envelope
        following = instant_message(schedule, claimed.topic, step.next, clock, envelope, after=claimed, called=called)
        puts += following or remembered(what, called, now, begun=claimed.id if call else "")
        if step.dropped:
            _log.warning("The schedule %s is over 1,000 instants late, and drops those from %s on", *_shown(instant))
        return call

    def _followed(self, name: str, what: Kept, now: int) -> Schedule | None:
        own = self._setup.schedules.get(name)
        if what.until > now:
            return in_force(name, own, what)
        if own is not None:
            return in_force(name, own, what._replace(record=None))
        return None if self._has_watched(now) else in_force(name, None, what)

    def _has_watched(self, now: int) -> bool:
        """Whether this has looked for announcements so long that a schedule without one has ended."""
        return self._alone or (now - self._looked <= SILENT and now - self._watching >= ANNOUNCED)

    async def sweep(self) -> None:
        """End what nobody has announced for ten minutes, while this has been looking."""
        now = await self.now()
        if now - self._looked > SILENT:  # it was not running, as when its machine slept, so others may not have been either
            self._watching = now
        self._looked = now
        if not self._has_watched(now):
            return
        page = await self._engine.scan(TOPIC, "ready", _PART)
        for stored in page.messages:
            name, what = name_of(stored), kept([stored, None, None])
            if name is None or what.record is None or self._setup.schedules.get(name) is not None:
                continue
            [pending] = await self.pending([(name, what.record.topic)])
            if planned := what.planned(pending):
                await self._engine.cancel(planned)
            if all(await self._engine.cancel([Ref(id=stored.id)])):
                _log.warning(
                    "The schedule %s has ended: no worker has announced it since %s", name, moment(stored.due - ANNOUNCED)
                )


def _shown(instant: Instant) -> tuple[str, str]:
    return instant.name, moment(instant.planned).isoformat()
