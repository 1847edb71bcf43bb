"""How messages are moved, for `bide adopt` and `bide move`: the dry run, the progress, and what Ctrl-C does."""

import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from bide.adopt.source import is_for_another
from bide.cli.exits import Exit
from bide.cli.output import body_text, due, echo, echo_json, note, now_ms, progress
from bide.core.formats import plural
from bide.errors import BideError, OutcomeUnknown

if TYPE_CHECKING:
    from bide.adopt.adoption import Adoption
    from bide.adopt.source import AdoptSource, EarlierRun, FoundEntry
    from bide.queue import Queue

PAUSE = 1.0  # seconds between two looks with --follow
SHOWN = 10  # due times of a dry run
LOOKED_AT = 1_000  # entries of a dry run that are read
WIDTH = 60  # characters of a body
_FOR_PROGRAMS = re.compile(r" Sending again with (this|the) error's operation [a-z ]+\.")
ASKS = "--doubtful send, forget or give-back"
NOTHING = "Nothing waits there. Is the name right?"


def look(
    source: "AdoptSource",
    queue: "Queue",
    *,
    as_json: bool,
    nothing: str = NOTHING,
    ended: str = "Nothing was changed.",
) -> int:
    """The dry run. `queue`: where the messages are to go. `nothing`: the note if nothing is there. `ended`: the last line."""
    count, seen, held = source.count(), source.peek(LOOKED_AT), source.held()
    now = now_ms()
    first = sorted(((_due(each, now), each.message) for each in seen.found), key=lambda each: each[0])[:SHOWN]
    if as_json:
        refused = [{"entry": each.entry, "reason": each.reason} for each in seen.refused]
        bodies = [_body(each.body) for _, each in first]
        messages = [
            {"topic": each.topic, "key": each.key, "due_ms": at, "body": None if isinstance(body, bytes) else body}
            for (at, each), body in zip(first, bodies, strict=True)
        ]
        echo_json({"count": count, "held": len(held.found) + len(held.refused), "first": messages, "refused": refused})
        return Exit.OK
    echo(f"{source.shown}: {'nobody can tell how many wait' if count is None else f'{count:,} waiting'}.")
    _tell_of_earlier_run(held, queue)
    if first:
        echo("Due first:")
    for at, each in first:
        key = "" if each.key is None else f"  {each.key}"
        echo(f"  {due(at, now)}  {each.topic}{key}  {_cut(body_text(_body(each.body)))}")
    looked_at = len(seen.found) + len(seen.refused)
    if count is not None and looked_at >= LOOKED_AT and looked_at < count:
        echo(f"Only {looked_at:,} of them were read.")
    reasons: dict[str, list[str]] = {}
    for left in seen.refused:
        reasons.setdefault(left.reason, []).append(left.entry)
    for reason, entries in reasons.items():
        echo(left_there(len(entries), reason, entries[0], of=f" of {looked_at:,} that were read"))
    echo(ended)
    if nothing and not (count or any((*seen[:2], *held[:2], held.ended))):
        note(nothing)
    return Exit.OK


def _tell_of_earlier_run(held: "EarlierRun", queue: "Queue") -> None:
    """What a run that was stopped was moving, and whether the next one goes on with it."""
    if held.refused:
        echo(
            f"{plural(len(held.refused), 'message')} of a run that was stopped can't be read now: the next run stops. One "
            f"{held.refused[0].reason}, for example: {held.refused[0].entry}. Give the options of that run, or --doubtful "
            "give-back."
        )
    if held.found:
        echo(f"{plural(len(held.found), 'message')} of a run that was stopped: {_next(held, queue)}")


def _next(held: "EarlierRun", queue: "Queue") -> str:
    """What the next run does with them."""
    from bide.adopt.adoption import destination_of
    from bide.adopt.copies import SURE

    destination = destination_of(queue)
    if any(is_for_another(each.name, destination) for each in held.found):
        return (
            "it moved them to another queue, so the next run to this one stops. Run the command with the URL of that queue "
            "first; or, if it is gone, with --doubtful give-back."
        )
    if held.unsure:
        return f"the next run looks what became of them. If it can't find out, it stops: {ASKS} says what to do."
    if held.age > SURE and queue.capabilities.idempotent:
        ago = f"{held.age / 60:,.0f} minutes ago"
        return f"that was {ago}, so the next run stops. Look whether the new queue has them, and add {ASKS}."
    return "the next run begins with them."


def left_there(number: int, reason: str, example: str, *, of: str = "") -> str:
    return f"Left at the source: {number:,}{of}. An entry {reason}, for example: {example}"


def _body(body: bytes) -> Any:
    """A body as it is shown: JSON, or the bytes of what another codec has written."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return body


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def _due(found: "FoundEntry", now: int) -> int:
    return now if found.message.at is None else found.message.at


def has_seen_nothing(adoption: "Adoption") -> bool:
    ended = adoption.adopted or adoption.gone or adoption.late or adoption.given_back or adoption.forgotten
    return not (ended or adoption.refused or adoption.in_hand)


def carry_out(adoption: "Adoption", source: "AdoptSource", what: str, *, follow: bool, as_json: bool) -> int:
    """Run an adoption to its end, or with `follow` until it is stopped. Gives the exit code, as far as it is known."""
    shown = not (as_json and sys.stdout.isatty())
    code: int = Exit.OK
    with _stopping() as stop:
        try:
            with progress(what, None if follow else source.count(), shown=shown) as moved:
                adoption.run(moved, stop.is_set)
                while follow and not stop.wait(PAUSE):
                    adoption.run(moved, stop.is_set)
        except BideError as error:
            note(f"bide: {_for_operators(error)}")
            code = Exit.FAILED
        except KeyboardInterrupt:
            note("Ended amid a batch. What was on its way stays so: run the command again within nine minutes.")
            raise
        if stop.is_set():
            note("Stopped after a whole batch. The same command goes on.")
            code = code or (Exit.OK if follow else Exit.STOPPED)
    return code


def _for_operators(error: BideError) -> str:
    """An error without what only a program can do about it."""
    if not isinstance(error, OutcomeUnknown):
        return str(error)
    told = _FOR_PROGRAMS.sub("", str(error))
    return f"{told} Run the same command again, within nine minutes if you can: it goes on with what was on its way."


@contextmanager
def _stopping() -> Iterator[threading.Event]:
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
