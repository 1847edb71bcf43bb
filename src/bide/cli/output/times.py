"""Times as people write them and read them."""

import re
import time
from datetime import datetime

import typer

from bide.clock import moment
from bide.core.amounts import span
from bide.core.when import duration_ms
from bide.errors import BadTime

LATE = 10.0  # seconds overdue that a working worker doesn't let come about: painted, so that somebody sees it


def delay_of(text: str | None, option: str = "--delay") -> str | None:
    """A duration that the queue takes; a number alone is seconds."""
    if text is None:
        return None
    given = f"{text}s" if re.fullmatch(r"\d{1,15}(\.\d{1,9})?", text, re.ASCII) else text
    try:
        duration_ms(given)
    except BadTime as error:
        if "hundred years" in str(error):
            raise typer.BadParameter("The longest is a hundred years: 36525d.", param_hint=option) from None
        raise typer.BadParameter(
            f"{text[:100]!a} is no duration. Give seconds (90) or text such as 1h30m (units: ms s m h d w).", param_hint=option
        ) from None
    return given


def at_of(text: str | None) -> datetime | None:
    """An instant, with its timezone."""
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text[:100]!a} is no instant. Write it as 2030-01-15T09:00:00+01:00.", param_hint="--at"
        ) from None
    if when.utcoffset() is None:
        raise typer.BadParameter(
            f"{text[:100]!a} has no timezone, and could mean any of 38 instants. "
            f"Add one: {when.isoformat()}+01:00, or {when.isoformat()}Z for UTC.",
            param_hint="--at",
        )
    return when


def one_time(delay: str | None, at: str | None) -> tuple[str | None, datetime | None]:
    """What --delay and --at say together."""
    if delay is not None and at is not None:
        raise typer.BadParameter("Give one of them: a delay from now, or an instant.", param_hint="--delay / --at")
    return delay_of(delay), at_of(at)


def now_ms() -> int:
    """This machine's idea of the time: good enough to tell people how long something is from now."""
    return time.time_ns() // 1_000_000


def iso(ms: int) -> str:
    """An instant for programs: ISO 8601 in UTC, with its milliseconds."""
    return moment(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local(ms: int) -> str:
    """An instant for people: their own time, to the second that it is in, with what it is ahead of UTC by."""
    return moment(ms).astimezone().isoformat(" ", "seconds").removesuffix(":00")


def relative(ms: int, now: int) -> str:
    """How far away an instant is: "in 14m 3s", "3s ago", "now"."""
    away = span(abs(ms - now) / 1000)
    if not away:
        return "now"
    return f"in {away}" if ms > now else f"{away} ago"


def due(ms: int, now: int) -> str:
    """An instant and how far away it is."""
    return f"{local(ms)}, {relative(ms, now)}"
