"""What is stored about schedules: planned instants in their task's topic, and the rest in a topic of bide's own.

That topic holds, under the schedule's name, what its workers have announced; it falls due when none of them has done so for ten
minutes. It also holds what operators have said: that a schedule is paused, or that it has other times. All are messages that
nobody receives.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from bide.clock import moment
from bide.core.cron import Called, Schedule, Timing
from bide.core.options import OWN_TOPICS
from bide.core.times import MAX_DELAY_MS
from bide.engines.base import Claimed, NewMessage, Ref, Stored
from bide.errors import BadMessage, ConfigError
from bide.logs import Log
from bide.queue.deliveries import PLANNED, planned_of
from bide.queue.envelope import Envelope
from bide.queue.schedules.definition import PlannedSchedule, schedule_of

T = TypeVar("T")
_log = Log("bide.schedules")
OWN = OWN_TOPICS
TOPIC, MOVING, WORKERS = OWN
NAME = "bide-schedule"
TIMING = "bide-timing"  # of what an instant was planned by, as a short text
CALLED = "bide-called"  # for which instants before this the handler was called, without a gap: the first and the last
BEGUN = "bide-begun"  # the id of an instant whose handler has begun, and which no other has followed
_DAY = 86_400_000
ANNOUNCED = 600_000  # ms that an announcement counts
_FOR_GOOD = MAX_DELAY_MS - 25 * _DAY  # ms until a mark falls due
REFS = 3  # that tell what is kept of a schedule


class ScheduleRecord(msgspec.Struct, frozen=True):
    """What workers announce."""

    topic: str
    timing: Timing


class Change(msgspec.Struct, frozen=True):
    """What an operator has said in place of the application."""

    schedule: str
    timezone: str


class Kept(NamedTuple):
    """What is stored of one schedule."""

    record: ScheduleRecord | None
    stored: Stored | None  # the message that holds the record
    paused: bool
    change: Change | None

    @property
    def called(self) -> Called | None:
        """What was called before the schedule was paused, or came to its end."""
        return None if self.stored is None else called_of(self.stored.headers)

    @property
    def begun(self) -> str:
        return "" if self.stored is None else self.stored.headers.get(BEGUN, "")

    def has_begun(self, id: str, attempts: int) -> bool:
        """Whether the handler of an instant may have begun, after so many attempts or with one that a worker has given back.

        It has the schedule's key all the same where no other instant has followed it.
        """
        return attempts > 0 or id == self.begun

    def planned(self, instant: Stored | None) -> list[Ref]:
        """The message of an instant whose handler has not begun, to be cancelled."""
        return [] if instant is None or self.has_begun(instant.id, instant.attempt) else [Ref(id=instant.id)]

    @property
    def until(self) -> int:
        """When the announcement ends."""
        return 0 if self.stored is None else self.stored.due

    def timing(self, announced: Timing) -> Timing:
        """As announced, but for what an operator has changed."""
        change = self.change
        if change is None:
            return announced
        return msgspec.structs.replace(announced, schedule=change.schedule, timezone=change.timezone)


class Instant(NamedTuple):
    """What the headers of a message say: that it is an instant of a schedule."""

    name: str
    planned: int


def key_of(name: str) -> str:
    """The key of the next instant, in its task's topic."""
    return f"every {name}"


def paused_ref(name: str) -> Ref:
    return Ref(topic=TOPIC, key=f"paused {name}")


def changed_ref(name: str) -> Ref:
    return Ref(topic=TOPIC, key=f"changed {name}")


def refs(name: str) -> list[Ref]:
    return [Ref(topic=TOPIC, key=name), paused_ref(name), changed_ref(name)]


def kept(found: Sequence[Stored | None]) -> Kept:
    """From what these refs have brought."""
    stored, paused, changed = found
    record = None if stored is None else _decoded(stored.body, ScheduleRecord)
    change = None if changed is None else _decoded(changed.body, Change)
    return Kept(record, None if record is None else stored, paused is not None, change)


def name_of(stored: Stored) -> str | None:
    """Whose announcement this is; None for what operators have said."""
    return None if stored.key is None or " " in stored.key else stored.key


def announcement(planned: PlannedSchedule, before: Kept) -> NewMessage:
    body = msgspec.json.encode(ScheduleRecord(planned.topic, planned.schedule.timing))
    headers = _headers(before.called, before.begun)
    return NewMessage(TOPIC, body, ANNOUNCED, key=planned.name, if_exists="replace", headers=headers)


def remembered(what: Kept, called: Called | None, now: int, *, begun: str = "") -> list[NewMessage]:
    """The announcement once more, to be put, with what was called: no message of a next instant tells it."""
    if what.stored is None or called is None:
        return []
    headers = _headers(called, begun)
    left = max(what.until - now, 1)
    return [NewMessage(TOPIC, what.stored.body, left, key=what.stored.key, if_exists="replace", headers=headers)]


def pause_mark(name: str) -> NewMessage:
    return NewMessage(TOPIC, b"{}", _FOR_GOOD, key=paused_ref(name).key)


def change_mark(name: str, change: Change) -> NewMessage:
    return NewMessage(TOPIC, msgspec.json.encode(change), _FOR_GOOD, key=changed_ref(name).key, if_exists="replace")


def instant_message(
    schedule: Schedule,
    topic: str,
    planned: int | None,
    clock: int,
    envelope: Envelope,
    *,
    after: Claimed | None = None,
    called: Called | None = None,
) -> list[NewMessage]:
    """The message of a planned instant, to be put; none, if there is no such instant. `called`: what was called before it."""
    if planned is None or planned - clock > _FOR_GOOD:
        return []
    instant = moment(planned).isoformat(timespec="milliseconds")
    headers = {NAME: schedule.name, PLANNED: instant, TIMING: mark_of(schedule.timing)} | _headers(called)
    # with the id, as an instant comes again if the clock was ahead when it came first
    options = {} if after is None else {"operation": f"after {after.id} {after.headers[PLANNED]}", "within": after.id}
    new = envelope.message(topic, {}, key=key_of(schedule.name), headers=headers)
    # late instants are for `missed` to decide: an instant that expired would end the chain
    return [msgspec.structs.replace(new, at=schedule.due(planned), expires_in=None, **options)]


def mark_of(timing: Timing) -> str:
    """A short text that tells it from other timings."""
    return f"{zlib.crc32(msgspec.json.encode(timing)):08x}"


def _headers(called: Called | None, begun: str = "") -> dict[str, str]:
    return ({} if called is None else {CALLED: f"{called.first} {called.last}"}) | ({BEGUN: begun} if begun else {})


def called_of(headers: Mapping[str, str]) -> Called | None:
    """What was called before an instant, or before there was none, as far as its message tells."""
    times = headers.get(CALLED, "").split()
    return Called(*map(int, times)) if len(times) == 2 and all(map(str.isdecimal, times)) else None


def instant_of(claimed: Claimed) -> Instant | None:
    """None for a message that no schedule has planned."""
    name, planned = claimed.headers.get(NAME), planned_of(claimed.headers)
    return None if name is None or planned is None else Instant(name, planned)


def stands_for(pending: Stored | None, instant: Instant) -> bool:
    """Whether the message of the next instant also brings this one, or tells that it was called."""
    if pending is None:
        return False
    called = called_of(pending.headers)
    was_called = called is not None and called.first <= instant.planned <= called.last
    return was_called or (planned_of(pending.headers) or 0) <= instant.planned


def in_force(name: str, own: PlannedSchedule | None, what: Kept) -> Schedule | None:
    """The schedule as it is to be followed now: as announced, or as it is written here; None when it has ended."""
    known = [] if what.record is None else [what.record.timing]
    known += [] if own is None else [own.schedule.timing]
    for timing in (*map(what.timing, known), *known):
        try:
            return schedule_of(name, timing)
        except (BadMessage, ConfigError) as error:
            _log.error("The schedule %s can't be used here as %a: %s", name, timing.schedule, error)
    return None


def _decoded(body: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError:
        return None  # somebody else's message
