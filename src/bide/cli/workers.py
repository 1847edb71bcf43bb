"""`bide workers`: which processes work for the queue, what they run and how they are."""

from collections.abc import Sequence
from typing import Annotated

import typer

from bide.cli.exits import Exit
from bide.cli.options import JsonLines, Section
from bide.cli.output import LATE, Table, echo_json, note, note_missing, now_ms, relative
from bide.cli.queues import QueueOptions
from bide.core import formats
from bide.types import WorkerInfo

section: Section = Section("Topics")
SILENT = 15_000  # ms: it was killed or stands still, or its engine does not answer
GONE = 600_000  # ms: then only --all lists it
RECENT = 5  # minutes, this one among them
_MINUTE = 60_000  # ms


@section.command(
    "workers",
    help="List the worker processes: which topics they serve, what they run, and what they did in the last five minutes.\n\n"
    "Each process tells of itself every five seconds. One that has not for 15 seconds is silent: it was killed, its "
    "event loop is blocked, or it does not reach the queue. --all also lists those of the last hour that have ended, or are "
    "silent for ten minutes.",
    examples=(
        ("bide workers", ""),
        ("bide workers --all", "also those that have ended, or are gone"),
        ("bide workers --json", "with the minutes of the last hour"),
    ),
    needs="keys",
)
def workers(
    options: QueueOptions,
    *,
    ended: Annotated[
        bool, typer.Option("--all", help="Also those of the last hour that have ended, or are silent for ten minutes.")
    ] = False,
    as_json: JsonLines = False,
) -> int:
    with options.open() as queue:
        known = queue.workers()
        now = now_ms()
    found = [each for each in known if ended or not (each.stopped or now - each.seen > GONE)]
    if as_json:
        for each in found:
            echo_json(formats.worker(each))
    elif found:
        table = Table(
            *("worker", "state", "runs", "done", "failed", "lateness", "topics", "since", "seen", "version"),
            right=("runs", "done", "failed", "lateness"),
            short=("topics",),
            spare=("version", "seen"),
        )
        table.add([_row(each, now) for each in found], [_style(each, now) for each in found])
        _tell_silent([each.name for each in found if state(each, now) == "silent"])
    else:
        note("There are no workers. A worker of an older release does not tell of itself.")
    note_missing(known.missing)
    return Exit.OK


def _tell_silent(names: list[str]) -> None:
    if len(names) == 1:
        note(f"{names[0]} is silent. Is its process there, does its event loop go round, and does it reach the queue?")
    elif names:
        note(f"{len(names)} are silent. Are their processes there, do their event loops go round, do they reach the queue?")


def _row(each: WorkerInfo, now: int) -> tuple[str, ...]:
    return (
        each.name,
        state(each, now),
        f"{sum(each.running.values()):,}",
        *recent([each], now),
        ", ".join(each.topics),
        relative(each.started, now),
        relative(each.seen, now),
        each.version,
    )


def recent(told: Sequence[WorkerInfo], now: int) -> tuple[str, str, str]:
    """What was done in the last five minutes, what has failed, and how late at most; nothing of who has told nothing."""
    minutes = [minute for each in told for minute in each.minutes if minute.begin > now - RECENT * _MINUTE]
    if not told:
        return "", "", ""
    late = max((minute.lateness for minute in minutes), default=None)
    done, failed = sum(minute.done for minute in minutes), sum(minute.failed for minute in minutes)
    return f"{done:,}", f"{failed:,}", "" if late is None else formats.span(late) or "0s"


def is_silent(each: WorkerInfo, now: int) -> bool:
    return now - each.seen > SILENT


def state(each: WorkerInfo, now: int) -> str:
    """In a word."""
    if each.stopped:
        return "stopped"
    return "silent" if is_silent(each, now) else "works"


def _style(each: WorkerInfo, now: int) -> str:
    if each.stopped:
        return "dim"
    if is_silent(each, now):
        return "red"
    late = max((minute.lateness for minute in each.minutes[-1:]), default=0.0)
    return "yellow" if late >= LATE else ""
