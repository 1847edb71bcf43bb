"""A run of `bide adopt`, whatever its source is: the dry run, the progress, signals, and what is told at the end."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from bide.cli.exits import Exit, WrongUsage
from bide.cli.output import due, echo, echo_json, note, now_ms
from bide.cli.progress import progress
from bide.cli.queues import QueueOptions, first_line
from bide.core.amounts import plural
from bide.errors import BideError, MissingExtra

if TYPE_CHECKING:
    from bide.adopt.adopting import Adoption, Doubt
    from bide.adopt.source import Found, Source
    from bide.queue import Queue

PAUSE = 1.0  # seconds between two looks with --follow
SHOWN = 10  # due times of a dry run
_EXTRAS = {"redis": "redis", "psycopg": "postgres", "aiormq": "rabbitmq", "pamqp": "rabbitmq"}  # by package
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
    if run.dry_run:  # the queue need not be there yet
        with closing(_made(opened, options.queue().capabilities.max_delay)) as source:
            return look(source, as_json=run.as_json)
    with options.open(create=True) as queue, closing(_made(opened, queue.capabilities.max_delay)) as source:
        return _move(source, queue, run)


def _made(opened: "Callable[[int], Source]", longest: int) -> "Source":
    """Raises MissingExtra if the driver of the source is not installed."""
    try:
        return opened(longest)
    except ModuleNotFoundError as missing:
        extra = _EXTRAS.get((missing.name or "").partition(".")[0])
        if extra is None:
            raise
        raise MissingExtra(f'The source needs the package {missing.name}: pip install "bide[{extra}]"') from missing


def look(source: "Source", *, as_json: bool) -> int:
    count, seen, held = source.count(), source.peek(LOOKED_AT), source.held()
    now = now_ms()
    first = sorted(((_due(each, now), each.message) for each in seen.found), key=lambda each: each[0])[:SHOWN]
    if as_json:
        refused = [{"entry": each.entry, "reason": each.reason} for each in seen.refused]
        messages = [{"topic": each.topic, "key": each.key, "due_ms": at} for at, each in first]
        echo_json({"count": count, "held": len(held.found), "first": messages, "refused": refused})
        return Exit.OK
    echo(f"{source.shown}: {'nobody can tell how many' if count is None else f'{count:,}'} waiting.")
    if held.found:
        echo(f"{plural(len(held.found), 'message')} of a run that was stopped: the next run begins with them.")
    if first:
        echo("Due first:")
    for at, each in first:
        echo(f"  {due(at, now)}  {each.topic}{'' if each.key is None else f'  {each.key}'}")
    reasons: dict[str, list[str]] = {}
    for left in seen.refused:
        reasons.setdefault(left.reason, []).append(left.entry)
    for reason, entries in reasons.items():
        echo(_left(len(entries), reason, entries[0], of=f" of the first {LOOKED_AT:,}"))
    echo("Nothing was changed.")
    return Exit.OK


def _left(number: int, reason: str, example: str, *, of: str = "") -> str:
    return f"Left at the source: {number:,}{of}. An entry {reason}, for example: {example}"


def _due(found: "Found", now: int) -> int:
    return now if found.message.at is None else found.message.at


def _move(source: "Source", queue: "Queue", run: Run) -> int:
    from bide.adopt.adopting import Adoption

    adoption = Adoption(source, queue, doubt=run.doubt)
    code = carry_out(adoption, source, "adopting", follow=run.follow, as_json=run.as_json)
    _tell(adoption, source, as_json=run.as_json)
    return code or (Exit.FAILED if adoption.refused else Exit.OK)


def carry_out(adoption: "Adoption", source: "Source", what: str, *, follow: bool, as_json: bool) -> int:
    """Run an adoption to its end, or with `follow` until it is stopped. Gives the exit code, as far as it is known."""
    shown = not (as_json and sys.stdout.isatty())
    code: int = Exit.OK
    with stopping() as stop:
        try:
            with progress(what, None if follow else source.count(), shown=shown) as moved:
                adoption.run(moved, stop.is_set)
                while follow and not stop.wait(PAUSE):
                    adoption.run(moved, stop.is_set)
        except BideError as error:
            note(f"bide: {error}")
            code = Exit.FAILED
        if stop.is_set():
            note("Stopped after a whole batch. The same command goes on.")
            code = code or (Exit.OK if follow else Exit.STOPPED)
    return code


def _tell(adoption: "Adoption", source: "Source", *, as_json: bool) -> None:
    if as_json:
        echo_json(
            {
                "adopted": adoption.adopted,
                "resumed": adoption.resumed,
                "gone": adoption.gone,
                "given_back": adoption.given_back,
                "held": adoption.in_hand,
                "refused": dict(adoption.refused),
            }
        )
        return
    topics = f" to {plural(len(adoption.topics), 'topic')}" if adoption.topics else ""
    echo(f"Adopted {plural(adoption.adopted, 'message')} of {source.shown}{topics}.")
    if not (adoption.adopted or adoption.gone or adoption.given_back or adoption.refused or adoption.in_hand):
        note("Nothing waits there. Is the name right?")
    if adoption.resumed:
        echo(f"{adoption.resumed:,} of them had been taken by a run that was stopped.")
    if adoption.perhaps_twice:
        echo("The queue remembers no operations: if that run had sent them already, they come twice.")
    if adoption.given_back:
        echo(f"Given back to the source: {adoption.given_back:,}. Run the command again to adopt them.")
    if adoption.gone:
        echo(f"Taken by old consumers meanwhile: {adoption.gone:,}.")
    for reason, number in sorted(adoption.refused.items()):
        echo(_left(number, reason, adoption.examples[reason]))
    if adoption.in_hand:
        echo(
            f"{adoption.in_hand:,} are taken and not finished. Run the command again within nine minutes: it goes on with them."
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
