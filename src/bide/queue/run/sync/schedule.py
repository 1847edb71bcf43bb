# Generated from ../aio/schedule.py by tools/unasync.py; change that file instead.
"""The step of a planned instant: the next one is planned first, and the schedule says whether the handler is called."""

from collections.abc import Hashable, Mapping, Sequence

from msgspec.structs import replace

from bide.clock import moment
from bide.core.cron import Schedule
from bide.engines.base import Claimed, NewMessage, Ref, Stored
from bide.engines.sync import Engine
from bide.logs import Log
from bide.queue.run import Message
from bide.queue.schedules.records import (
    Instant,
    Kept,
    called_of,
    in_force,
    instant_message,
    instant_of,
    key_of,
    remembered,
    stands_for,
)
from bide.queue.setup import Setup
from bide.queue.sync.planner import Planner
from bide.queue.tasks.outcome import DONE, Outcome

_log = Log("bide.schedules")


class ScheduleStep:
    what: str = "plan the next instants of its schedules"  # in a log

    def __init__(self, engine: Engine, setup: Setup, planner: Planner) -> None:
        self._engine = engine
        self._setup = setup
        self._planner = planner

    def part_of(self, message: Message) -> Hashable:
        """Which part of the engine takes what comes after an instant."""
        claimed = message.claimed
        instant = instant_of(claimed)
        return None if instant is None else self._engine.part_of(Ref(topic=claimed.topic, key=key_of(instant.name)))

    def together(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Those that are decided by one call."""
        return messages

    def decide(self, messages: Sequence[Message]) -> list[Outcome | None]:
        """None: it goes on. DONE: it is late, or its schedule is paused or has ended."""
        now = max(each.now for each in messages)
        calls = self.follow([each.claimed for each in messages], now)
        for each, call in zip(messages, calls, strict=True):
            if not call:
                _log.info("The schedule leaves out message %s of %s", each.claimed.id, each.claimed.topic)
        return [None if call else DONE for call in calls]

    def follow(self, claimed: Sequence[Claimed], now: int) -> list[bool]:
        """Plan what comes after these instants. Returns for each whether its handler is to be called.

        An instant has the schedule's key until the next one is planned. Without it, it has been here before.
        """
        instants = [instant_of(each) for each in claimed]
        names = sorted({each.name for each in instants if each is not None})
        whats = dict(zip(names, self._planner.kept(names), strict=True))
        moved = {
            instant.name: record.topic
            for each, instant in zip(claimed, instants, strict=True)
            if instant is not None and (record := whats[instant.name].record) is not None and record.topic != each.topic
        }
        there = dict(zip(moved, self._planner.pending(list(moved.items())), strict=True))
        answers: list[bool] = []
        puts: list[NewMessage] = []
        for each, instant in zip(claimed, instants, strict=True):
            if instant is None or each.key != key_of(instant.name):
                answers.append(True)
            else:
                answers.append(self._one(each, instant, whats[instant.name], there.get(instant.name), now, puts))
        if puts:
            self._plan(puts, {each.id: each.token for each in claimed})
        return answers

    def _plan(self, puts: Sequence[NewMessage], tokens: Mapping[str, str]) -> None:
        """Put the next instants, once.

        The put of a worker that had an instant before may have come when it had been given back, so that it still had its key:
        nothing was planned, and the engine answers so to each put of that name.
        """
        sent = self._engine.put(puts)
        again = [new for new, answer in zip(puts, sent, strict=True) if answer.id == new.within]
        if again:
            named = [replace(new, operation=f"{new.operation} {tokens[new.within or '']}") for new in again]
            self._engine.put(named)

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
        return None if self._planner.has_watched(now) else in_force(name, None, what)


def _shown(instant: Instant) -> tuple[str, str]:
    return instant.name, moment(instant.planned).isoformat()
