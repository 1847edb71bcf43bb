"""Times on the command line: options that are read, and instants that are shown."""

import re
import time
from datetime import datetime

import typer

from bide.cli.exits import WrongUsage
from bide.clock import moment
from bide.core.amounts import span
from bide.core.when import duration_ms
from bide.errors import BadTime

LATE = 10.0  # seconds overdue: a worker that keeps up has no message so late, so it is shown in a colour


def parse_duration(text: str | None, option: str = "--delay") -> str | None:
    """A duration for the queue. A number alone is seconds."""
    if text is None:
        return None
    given = f"{text}s" if re.fullmatch(r"\d{1,15}(\.\d{1,9})?", text, re.ASCII) else text
    try:
        duration_ms(given)
    except BadTime as error:
        if "hundred years" in str(error):
            raise typer.BadParameter("The longest duration is a hundred years: 36525d.", param_hint=option) from None
        raise typer.BadParameter(
            f"{text[:100]!a} is not a duration. Give seconds (90) or text such as 1h30m (ms s m h d w).", param_hint=option
        ) from None
    return given


def parse_time(delay: str | None, at: str | None) -> tuple[str | None, datetime | None]:
    """What --delay and --at say together. At most one of them may be given."""
    if delay is not None and at is not None:
        raise WrongUsage("Give either --delay or --at, not both.")
    return parse_duration(delay), None if at is None else _parse_instant(at)


def _parse_instant(text: str) -> datetime:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text[:100]!a} is not a timestamp. Write it as 2030-01-15T09:00:00+01:00.", param_hint="--at"
        ) from None
    if when.utcoffset() is None:
        raise typer.BadParameter(
            f"{text[:100]!a} has no timezone. Add one: {when.isoformat()}+01:00, or {when.isoformat()}Z for UTC.",
            param_hint="--at",
        )
    return when


def now_ms() -> int:
    """The time of this machine: good enough to tell people how far away an instant is."""
    return time.time_ns() // 1_000_000


def local(ms: int) -> str:
    """An instant in this machine's timezone, to the second, with its offset from UTC."""
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
