"""What to do about a schedule that is announced, and schedules as users see them."""

from typing import NamedTuple

import msgspec

from bide.core.cron import Schedule, Timing
from bide.engines.base import Move, NewMessage, Ref, Stored
from bide.errors import BadOption
from bide.queue.deliveries import PLANNED, planned_of
from bide.queue.envelope import Envelope
from bide.queue.schedules.definition import PlannedSchedule
from bide.queue.schedules.records import (
    ANNOUNCED,
    TIMING,
    Kept,
    ScheduleRecord,
    announcement,
    called_of,
    in_force,
    instant_message,
    mark_of,
)
from bide.queue.setup import Setup
from bide.types import ScheduleInfo

SILENT = 180_000  # ms: who has announced or looked for nothing for so long is not there; a worker does so every minute


class Actions(NamedTuple):
    """Changes to be made, in this order."""

    moves: list[Move]
    cancels: list[Ref]
    puts: list[NewMessage]


def announced(
    planned: PlannedSchedule,
    what: Kept,
    pending: Stored | None,
    now: int,
    clock: int,
    envelope: Envelope,
    actions: Actions,
    *,
    left: Stored | None,
    begins: bool,
) -> None:
    """Add what there is to do. A worker that `begins` makes its own release's schedule the one in force.

    `pending`: the message of the next instant. `left`: the same in the topic that the task has left, if it has moved. `now`:
    engine time. `clock`: what the server's clock shows.
    """
    own, before = ScheduleRecord(planned.topic, planned.schedule.timing), what.record
    differs = before is not None and before != own
    if differs and not begins and what.until - ANNOUNCED > now - SILENT:
        return  # another release has been started since, and announces its own
    if what.stored is None or differs:
        actions.puts.append(announcement(planned, what))
    else:
        actions.moves.append(Move(Ref(id=what.stored.id), ANNOUNCED))
    actions.cancels.extend(what.planned(left))
    schedule = in_force(planned.name, planned, what._replace(record=own))
    plan(schedule, planned.topic, what, pending, clock, envelope, actions, anew=differs)


def plan(
    schedule: Schedule | None,
    topic: str,
    what: Kept,
    pending: Stored | None,
    clock: int,
    envelope: Envelope,
    actions: Actions,
    *,
    anew: bool,
) -> None:
    """See that the next instant is planned, or that none is. `anew`: also if there is one that is not due yet.

    An instant whose handler may have begun waits for its retry, and gives its key to the next one if there is one.
    One that was planned by another timing is planned anew, too: a worker had looked before an operator or a release spoke.
    So is one that is not the next by the clock, which was ahead when it was planned. One whose jitter is not over stays.
    """
    if schedule is None or what.paused:
        actions.cancels.extend(what.planned(pending))
        return
    if pending is not None and pending.state != "scheduled":
        return
    is_retry = pending is not None and what.has_begun(pending.id, pending.attempt)
    if is_retry:
        pending = None
    called = what.called if pending is None else called_of(pending.headers)
    instant = _waiting(schedule, clock, pending) or schedule.next(clock, called)
    following = instant_message(schedule, topic, instant, clock, envelope, called=called)
    if is_retry:  # merge takes the key of what was delivered, and leaves what is planned meanwhile, as its body is no list
        actions.puts.extend(msgspec.structs.replace(each, if_exists="merge") for each in following)
    elif pending is None:
        actions.puts.extend(following)
    elif anew or _is_of_another(pending, schedule):
        if following:
            actions.puts.append(msgspec.structs.replace(following[0], if_exists="replace"))
        else:
            actions.cancels.append(Ref(id=pending.id))
    elif instant is not None and instant < (planned_of(pending.headers) or 0):
        # named, since another worker may do so too, and this instant be over by then
        operation = f"instead of {pending.id} {pending.headers[PLANNED]}"
        actions.puts.extend(msgspec.structs.replace(each, if_exists="replace", operation=operation) for each in following)


def _waiting(schedule: Schedule, clock: int, pending: Stored | None) -> int | None:
    """The instant that is pending, if only its jitter is not over, and the schedule has it, too."""
    planned = None if pending is None else planned_of(pending.headers)
    if planned is None or planned > clock or schedule.after(planned - 1) != planned:
        return None
    return planned


def _is_of_another(pending: Stored, schedule: Schedule) -> bool:
    mark = mark_of(schedule.timing)
    return pending.headers.get(TIMING, mark) != mark


def listed(name: str, what: Kept, record: ScheduleRecord, pending: Stored | None) -> ScheduleInfo:
    timing = what.timing(record.timing)
    return ScheduleInfo(
        name=name,
        topic=record.topic,
        schedule=timing.schedule,
        timezone=timing.timezone,
        missed=timing.missed,
        next=None if pending is None else planned_of(pending.headers),
        announced=what.until - ANNOUNCED,
        paused=what.paused,
        changed=what.change is not None,
    )


def announced_timing(setup: Setup, name: str, what: Kept) -> Timing:
    """When a schedule plans unless an operator has changed it."""
    own = setup.schedules.get(name)
    if what.record is not None:
        return what.record.timing
    if own is not None:
        return own.schedule.timing
    raise BadOption(f"There is no schedule {name}.")
