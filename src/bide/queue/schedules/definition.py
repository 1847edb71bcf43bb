"""What a queue knows of a schedule: its name, its task, and when it plans."""

import functools
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bide.core import options
from bide.core.cron import Missed, Schedule, Timing, interval
from bide.core.times import duration_ms, instant_ms
from bide.errors import BadOption, ConfigError, MissingExtra
from bide.queue.tasks.definition import Definition
from bide.types import Duration


class PlannedSchedule(NamedTuple):
    """A schedule that is written in this application."""

    schedule: Schedule
    definition: Definition

    @property
    def name(self) -> str:
        return self.schedule.name

    @property
    def topic(self) -> str:
        return self.definition.topic


class Schedules:
    """The schedules of a queue, sync and async, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, PlannedSchedule] = {}

    def add(self, name: str | None, definition: Definition, timing: Timing) -> None:
        name = definition.topic if name is None else options.topic(name)
        other = self._by_name.get(name)
        if other is not None and (other.definition is definition or not definition.place.is_anew(other.definition.place)):
            raise ConfigError(f"There is a schedule {name} already. Give each one a name: every(…, name='{name}.2').")
        if definition.batch is not None:
            raise ConfigError(f"{definition.name}() is given batches, and a schedule sends one message: leave out batch=.")
        if definition.arguments.needed:
            needed = ", ".join(sorted(definition.arguments.needed))
            raise ConfigError(f"{definition.name}() needs {needed}, and a schedule gives no arguments: give them defaults.")
        self._by_name[name] = PlannedSchedule(schedule_of(name, timing), definition)

    def refuse_below(self, function: object) -> None:
        """Refuse a function that has a schedule already: its schedule would send the task below, without the options above."""
        if any(each.definition is getattr(function, "definition", None) for each in self._by_name.values()):
            raise ConfigError("Write @queue.every above @queue.task: what is written above is not said of the task below it.")

    def get(self, name: str) -> PlannedSchedule | None:
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[PlannedSchedule]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)


def read_timing(
    schedule: Duration, timezone: str, start: datetime | None, end: datetime | None, jitter: Duration, missed: Missed
) -> Timing:
    """What `every` was given, checked."""
    if callable(schedule):
        raise ConfigError("Write @queue.every with a schedule in parentheses: @queue.every('5m').")
    if not isinstance(timezone, str):
        raise BadOption(f"timezone is a {type(timezone).__name__}. Give a name, such as 'Europe/Berlin'.")
    text = read_schedule(schedule)
    if timezone != "UTC":
        refuse_timezone(text)
    return Timing(
        text,
        timezone,
        None if start is None else instant_ms(start, "start"),
        None if end is None else instant_ms(end, "end"),
        duration_ms(jitter, "jitter"),
        missed,
    )


def read_schedule(given: Duration) -> str:
    """A schedule as text, which is what is stored and shown. Whether it is one is seen when it is made."""
    if isinstance(given, str):
        text = " ".join(options.text(given, "schedule", 256).split())
        return text if interval(text) is None else text.replace(" ", "")
    ms = duration_ms(given, "schedule")
    return f"{ms}ms" if ms % 1_000 else f"{ms // 1_000}s"


def refuse_timezone(schedule: str) -> None:
    """An interval has no timezone: whoever gives it one expects a time of day."""
    if interval(schedule) is not None:
        raise BadOption(
            f"timezone= is for cron expressions, and {schedule} is an interval, which is the same everywhere. "
            "For a time of day write cron, such as '0 9 * * *'."
        )


@functools.lru_cache(maxsize=1_000)
def schedule_of(name: str, timing: Timing) -> Schedule:
    """Raises ConfigError or BadMessage for a timing that can't be used here."""
    return Schedule(name, timing, zone(timing.timezone))


def zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    try:
        ZoneInfo("Europe/London")
    except ZoneInfoNotFoundError:
        raise MissingExtra('This machine has no data about timezones: pip install "bide[cron]"') from None
    raise BadOption(
        f"timezone is {name[:100]!a}. Give a name of the IANA database, such as 'Europe/Berlin' or 'Asia/Shanghai'."
    )
