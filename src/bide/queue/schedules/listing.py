"""Schedules as users see them."""

from bide.core.cron import Timing
from bide.engines.base import Stored
from bide.errors import BadOption
from bide.queue.deliveries import planned_of
from bide.queue.schedules.records import ANNOUNCED, Kept, Record
from bide.queue.setup import Setup
from bide.types import ScheduleInfo


def listed(name: str, what: Kept, record: Record, pending: Stored | None) -> ScheduleInfo:
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


def announced(setup: Setup, name: str, what: Kept) -> Timing:
    """When a schedule plans unless an operator has changed it."""
    own = setup.schedules.get(name)
    if what.record is not None:
        return what.record.timing
    if own is not None:
        return own.schedule.timing
    raise BadOption(f"There is no schedule {name}.")
