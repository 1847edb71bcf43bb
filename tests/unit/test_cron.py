"""Cron expressions: what is one, and when it runs, also where clocks change. Judged by a walk over all minutes."""

import functools
import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest

from bide import BadOption
from bide.core.cron import Cron

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schedules.md"
MINUTE = timedelta(minutes=1)
SPAN = timedelta(days=3)
ROW = re.compile(
    r"\| (?P<zone>\w+/\w+) \| (?P<change>[\d-]+ [\d:]+) → (?P<after>[\d:]+) \| `(?P<fixed>[^`]+)` \| (?P<fixed_runs>[^|]+) "
    r"\| `(?P<star>[^`]+)` \| (?P<star_runs>[^|]+) \|"
)


class Row(NamedTuple):
    zone: str
    change: str
    after: str
    text: str
    runs: tuple[str, ...]


def rows() -> Iterator[Row]:
    for found in ROW.finditer(PAGE.read_text(encoding="utf-8")):
        for kind in ("fixed", "star"):
            runs = found[f"{kind}_runs"].strip()
            each = () if runs == "none" else tuple(runs.split(", "))
            yield Row(found["zone"], found["change"], found["after"], found[kind], each)


ROWS = list(rows())
CHANGES = {(row.zone, row.change) for row in ROWS}


@functools.cache
def when_it_changes(row: Row) -> datetime:
    """The first minute after the change, in UTC: found by looking at every minute of three days."""
    wall = datetime.fromisoformat(row.change)
    zone, at = ZoneInfo(row.zone), wall.replace(tzinfo=UTC) - timedelta(days=2)
    while at.astimezone(zone).utcoffset() == (at - MINUTE).astimezone(zone).utcoffset():
        at += MINUTE
    assert (at - MINUTE).astimezone(zone).replace(tzinfo=None) + MINUTE == wall
    assert f"{at.astimezone(zone):%H:%M}" == row.after
    return at


class Fields(NamedTuple):
    """An expression as sets of numbers, read by nobody."""

    text: str
    minutes: set[int]
    hours: set[int]
    days: set[int]
    months: set[int]
    weekdays: set[int]

    def shows(self, wall: datetime) -> bool:
        _, _, day, _, weekday = self.text.split()
        days = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        on = all(days) if day.startswith("*") or weekday.startswith("*") else any(days)
        return on and wall.month in self.months and wall.hour in self.hours and wall.minute in self.minutes

    @property
    def wall(self) -> bool:
        minute, hour, *_ = self.text.split()
        return not minute.startswith("*") and not hour.startswith("*")


@functools.cache
def minutes(zone: ZoneInfo, begin: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """Each of them, and what clocks show then."""
    each = (begin + number * MINUTE for number in range((end - begin) // MINUTE + 1))
    return [(at, at.astimezone(zone).replace(tzinfo=None)) for at in each]


def walked(fields: Fields, zone: ZoneInfo, begin: datetime, end: datetime) -> list[datetime]:
    """When it runs after `begin` and up to `end`, by looking at every minute and at what clocks show then."""
    shown = minutes(zone, begin - SPAN, end + SPAN)
    if not fields.wall:
        return [at for at, wall in shown if begin < at <= end and fields.shows(wall)]
    runs: set[datetime] = set()
    first: dict[datetime, datetime] = {}
    for at, wall in shown:
        first.setdefault(wall, at)
    wall = shown[0][1] + timedelta(days=1)
    while wall < shown[-1][1] - timedelta(days=1):
        if fields.shows(wall):
            runs.add(first.get(wall) or min(at for at, other in shown if other > wall))
        wall += MINUTE
    return sorted(at for at in runs if begin < at <= end)


def told(text: str, zone: ZoneInfo, begin: datetime, end: datetime) -> list[datetime]:
    cron, found, at = Cron(text), [], begin
    while (following := cron.after(at, zone)) is not None and following <= end:
        assert following > at
        found.append(following)
        at = following
    return found


def test_the_table_has_twelve_zones_with_both_changes() -> None:
    zones = {zone for zone, _ in CHANGES}
    assert len(zones) >= 12
    assert {"Australia/Lord_Howe", "Pacific/Apia"} <= zones
    for zone in zones:
        assert len([each for each in CHANGES if each[0] == zone]) >= 2


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.zone} {row.change} {row.text}")
def test_what_the_table_in_the_docs_says_is_so(row: Row) -> None:
    change, zone = when_it_changes(row), ZoneInfo(row.zone)
    minute, hour, *_ = row.text.split()
    minutes = set(range(0, 60, 15)) if minute == "*/15" else {int(minute)}
    fields = Fields(row.text, minutes, {int(hour)}, set(range(1, 32)), set(range(1, 13)), set(range(7)))
    begin, end = change - timedelta(hours=8), change + timedelta(hours=12)
    runs = told(row.text, zone, begin, end)
    assert runs == walked(fields, zone, begin, end)
    assert tuple(f"{at:%d %H:%M}" for at in runs) == row.runs


def some(dice: random.Random, low: int, high: int, *, star: float, early: bool = False) -> tuple[str, set[int]]:
    """A field, and the numbers that it means."""
    kind = dice.random()
    if kind < star:
        step = dice.choice([1, 1, 2, 7, 15])
        return ("*" if step == 1 else f"*/{step}"), set(range(low, high + 1, step))
    most = 4 if early else high
    one = dice.randint(low, most)
    other = dice.randint(one, most)
    if kind < 0.7:
        return str(one), {one}
    if kind < 0.85:
        return f"{one}-{other}", set(range(one, other + 1))
    return f"{one},{other}", {one, other}


@pytest.mark.parametrize("seed", range(40))
def test_any_expression_agrees_with_a_walk_over_all_minutes_around_a_change(seed: int) -> None:
    dice = random.Random(seed)
    row = dice.choice(ROWS)
    change, zone = when_it_changes(row), ZoneInfo(row.zone)
    begin, end = change - timedelta(hours=20), change + timedelta(hours=30)
    for _ in range(6):
        parts = [
            some(dice, 0, 59, star=0.4),
            some(dice, 0, 23, star=0.4, early=dice.random() < 0.6),
            some(dice, 1, 31, star=0.7),
            some(dice, 1, 12, star=0.9),
            some(dice, 0, 6, star=0.7),
        ]
        text = " ".join(word for word, _ in parts)
        fields = Fields(text, *(numbers for _, numbers in parts))
        assert told(text, zone, begin, end) == walked(fields, zone, begin, end), f"{text} in {row.zone} at {row.change}"


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("0 9 * * mon-fri", "2026-01-01 09:00"),
        ("0 9 * * sat,7", "2026-01-03 09:00"),
        ("0 9 * * sat-sun", "2026-01-03 09:00"),
        ("0 9 13 * fri", "2026-01-02 09:00"),
        ("0 0 29 2 *", "2028-02-29 00:00"),
        ("59 23 31 DEC *", "2026-12-31 23:59"),
        ("5/20 8-10/2 * * *", "2026-01-01 08:05"),
        ("*/10 * * * *", "2026-01-01 00:10"),
        ("  0   0 1 */3   * ", "2026-04-01 00:00"),
    ],
)
def test_the_first_time_after_new_year(text: str, first: str) -> None:
    found = Cron(text).after(datetime(2026, 1, 1, tzinfo=UTC), UTC)
    assert found == datetime.fromisoformat(first).replace(tzinfo=UTC)


def test_a_day_that_never_comes_is_never() -> None:
    assert Cron("0 0 30 2 *").after(datetime(2026, 1, 1, tzinfo=UTC), UTC) is None


BAD = """
* * * *|* * * * * *|60 * * * *|* 24 * * *|* * 0 * *|* * * 13 *|* * * * 8|*/0 * * * *|5-1 * * * *|a * * * *|* * * foo *|
mon * * * *|1,,2 * * * *|*-5 * * * *|1-2-3 * * * *|-1 * * * *|1.5 * * * *|٣ * * * *|99999 * * * *|@daily|* * L * *|* * * * 1#2|
"""


@pytest.mark.parametrize("text", [each.strip() for each in BAD.split("|")])
def test_what_is_no_expression_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(BadOption, match="Give "):
        Cron(text)
