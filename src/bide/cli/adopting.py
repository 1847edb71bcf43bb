"""A run of `bide adopt`, whatever its source is: the dry run, the progress, signals, and what is told at the end."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from bide.cli.exits import Exit, WrongUsage
from bide.cli.output import due, echo, echo_json, note, now_ms
from bide.cli.progress import progress
from bide.cli.queues import QueueOptions, first_line
from bide.core.amounts import plural
from bide.errors import BideError

if TYPE_CHECKING:
    from bide.adopt.adopting import Adoption, Doubt
    from bide.adopt.source import Found, Source
    from bide.queue import Queue

PAUSE = 1.0  # seconds between two looks with --follow
SHOWN = 10  # due times of a dry run
LOOKED_AT = 1_000  # entries of a dry run that are read


class Run(NamedTuple):
    """What the command line says about a run."""

    url: str  # of the source; may hold a password, so it is never shown
    dry_run: bool = False
    follow: bool = False
    doubt: "Doubt" = "stop"
    as_json: bool = False


def source_url(url: str | None, file: str | None) -> str:
    """The URL of the source, from --source or --source-file."""
    if url is not None and file is None:
        return url
    if file is not None and url is None:
        return first_line(file, "--source-file")
    raise WrongUsage("Say which server has the waiting messages: --source URL, or --source-file FILE with the URL in it.")


def adopt(options: QueueOptions, opened: "Callable[[int], Source]", run: Run) -> int:
    """Run an adoption. `opened` makes the source, for a queue that can keep a message for so many milliseconds at most."""
    with options.open(create=not run.dry_run) as queue:
        source = opened(queue.capabilities.max_delay)
        try:
            return look(source, as_json=run.as_json) if run.dry_run else _move(source, queue, run)
        finally:
            source.close()


def look(source: "Source", *, as_json: bool) -> int:
    count, seen, held = source.count(), source.peek(LOOKED_AT), source.held()
    first = sorted(seen.found, key=lambda each: each.message.at or 0)[:SHOWN]
    reasons = {each.reason: each.entry for each in seen.refused}
    if as_json:
        refused = [{"entry": each.entry, "reason": each.reason} for each in seen.refused]
        messages = [{"topic": each.message.topic, "key": each.message.key, "due_ms": each.message.at} for each in first]
        echo_json({"count": count, "held": len(held.found), "first": messages, "refused": refused})
        return Exit.OK
    known = "an unknown number of entries" if count is None else plural(count, "entry").replace("entrys", "entries")
    echo(f"{source.shown} has {known}.")
    if held.found:
        echo(f"A run that was stopped holds {plural(len(held.found), 'message')}: the next run begins with them.")
    if first:
        echo(f"The first {plural(len(first), 'message')} would be due:" if len(first) > 1 else "The first would be due:")
    for line in _lines(first):
        echo(line)
    for reason, entry in reasons.items():
        number = sum(each.reason == reason for each in seen.refused)
        echo(f"Of the first {LOOKED_AT:,}, {number:,} would stay where they are: each {reason}. The first is {entry}")
    echo("Nothing was changed.")
    return Exit.OK


def _lines(first: "Sequence[Found]") -> Iterator[str]:
    now = now_ms()
    for each in first:
        key = "" if each.message.key is None else f"  {each.message.key}"
        yield f"  {due(each.message.at or 0, now)}  {each.message.topic}{key}"


def _move(source: "Source", queue: "Queue", run: Run) -> int:
    from bide.adopt.adopting import Adoption

    adoption = Adoption(source, queue, doubt=run.doubt)
    shown = not (run.as_json and sys.stdout.isatty())
    code: int = Exit.OK
    with stopping() as stop:
        try:
            with progress("adopting", None if run.follow else source.count(), shown=shown) as moved:
                adoption.run(moved, stop.is_set)
                while run.follow and not stop.wait(PAUSE):
                    adoption.run(moved, stop.is_set)
        except BideError as error:
            note(f"bide: {error}")
            code = Exit.FAILED
        if stop.is_set():
            note("Stopped after a whole batch. The same command goes on.")
            code = code or (Exit.OK if run.follow else Exit.STOPPED)
    _tell(adoption, source, as_json=run.as_json)
    return code or (Exit.FAILED if adoption.refused else Exit.OK)


def _tell(adoption: "Adoption", source: "Source", *, as_json: bool) -> None:
    if as_json:
        echo_json(
            {
                "adopted": adoption.adopted,
                "resumed": adoption.resumed,
                "gone": adoption.gone,
                "held": adoption.in_hand,
                "refused": dict(adoption.refused),
            }
        )
        return
    topics = f" to {plural(len(adoption.topics), 'topic')}" if adoption.topics else ""
    echo(f"Adopted {plural(adoption.adopted, 'message')} of {source.shown}{topics}.")
    if adoption.resumed:
        echo(f"{adoption.resumed:,} of them had been taken by a run that was stopped.")
    if adoption.gone:
        echo(f"Taken by old consumers meanwhile: {adoption.gone:,}.")
    for reason, number in sorted(adoption.refused.items()):
        echo(f"Left where they are: {number:,}, because each {reason}. The first is {adoption.examples[reason]}")
    if adoption.in_hand:
        echo(
            f"{adoption.in_hand:,} are held beside the source. Run the command again within nine minutes: it goes on with them."
        )


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Set by the first Ctrl-C or SIGTERM. A second one ends the command at once, as a kill does."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def asked(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    for number in before:
        signal.signal(number, asked)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
