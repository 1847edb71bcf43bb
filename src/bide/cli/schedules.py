"""`bide schedules`: tasks that are sent by themselves; listed, paused, resumed, changed and run."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import JsonLines, Section
from bide.cli.output import Table, echo, echo_json, note, now_ms, relative
from bide.cli.queues import QueueOptions
from bide.core import formats
from bide.types import ScheduleInfo

if TYPE_CHECKING:
    from bide.queue import Queue

section: Section = Section("Topics")
SILENT = 600_000  # ms: nobody has announced it for so long


@section.command(
    "schedules",
    help="List the schedules, or pause, resume, change or run one.\n\n"
    "Workers announce their schedules when they begin and once a minute. `change` gives a schedule other times than the "
    "application does; without SCHEDULE it takes that back. `run` sends the task once, now.",
    examples=(
        ("bide schedules", "all, with their next instants"),
        ("bide schedules pause report.daily", ""),
        ('bide schedules change report.daily "0 7 * * *"', "at 7:00"),
    ),
    needs="inspect",
)
def schedules(
    options: QueueOptions,
    action: Annotated[
        Literal["pause", "resume", "run", "change"] | None,
        typer.Argument(metavar="ACTION", help="pause, resume, run or change. Default: list all."),
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the schedule.")] = None,
    schedule: Annotated[
        str | None, typer.Argument(metavar="SCHEDULE", help="For change: 5m, or a cron expression in quotes.")
    ] = None,
    *,
    timezone: Annotated[str | None, typer.Option("--timezone", metavar="ZONE", help="For change: Europe/Berlin.")] = None,
    as_json: JsonLines = False,
) -> int:
    if action is not None and name is None:
        raise WrongUsage(f"Name the schedule: bide schedules {action} NAME")
    if action != "change" and (schedule is not None or timezone is not None):
        raise WrongUsage("SCHEDULE and --timezone belong to change: bide schedules change NAME SCHEDULE")
    with options.open() as queue:
        if action is None or name is None:
            _list(queue.schedules(), as_json=as_json)
            return Exit.OK
        did: dict[str, Any] = {"name": name, "action": action}
        did |= _act(queue, action, name, schedule, timezone)
    if as_json:
        echo_json(did)
    else:
        echo(_said(did))
    return Exit.OK


def _act(queue: "Queue", action: str, name: str, schedule: str | None, timezone: str | None) -> dict[str, Any]:
    if action == "run":
        return {"id": queue.run_schedule(name).id}
    if action == "change":
        queue.change_schedule(name, schedule, timezone=timezone)
        return {"schedule": schedule}
    if action == "pause":
        queue.pause_schedule(name)
    else:
        queue.resume_schedule(name)
    return {}


def _said(did: dict[str, Any]) -> str:
    name = did["name"]
    if did["action"] == "run":
        return f"Sent {did['id']}: the task of {name}, due now."
    if did["action"] == "change":
        return f"Changed {name} to {did['schedule']}." if did["schedule"] else f"{name} has its application's times again."
    if did["action"] == "pause":
        return f"Paused {name}; nothing is planned until you resume it."
    return f"Resumed {name}."


def _list(found: list[ScheduleInfo], *, as_json: bool) -> None:
    if as_json:
        for each in found:
            echo_json(formats.schedule(each))
    elif found:
        table = Table("name", "task", "schedule", "timezone", "next", "announced", "state", short=("name", "task"))
        now = now_ms()
        table.add([_row(each, now) for each in found], ["yellow" if each.paused else "" for each in found])
    else:
        note("There are no schedules. Workers announce theirs when they begin.")


def _row(each: ScheduleInfo, now: int) -> tuple[str, ...]:
    silent = now - each.announced > SILENT
    state = "paused" if each.paused else "silent" if silent else "changed" if each.changed else ""
    planned = "" if each.next is None else relative(each.next, now)
    return each.name, each.topic, each.schedule, each.timezone, planned, relative(each.announced, now), state
