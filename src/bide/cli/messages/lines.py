"""`bide send --from`: many messages, one a line, sent in batches."""

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import msgspec
import typer

from bide.cli.exits import Exit
from bide.cli.messages.body import BodyError, body_of
from bide.cli.output import fields
from bide.cli.output.out import flush, say, say_json, tell
from bide.cli.output.progress import progress
from bide.cli.place import Place
from bide.errors import BadBody, BadMessage, BideError, PartlySent
from bide.queue import Queue
from bide.types import Outgoing, Sent

BATCH = 1_000
LONGEST = 4 * 2**20  # bytes of a line: room for a body at its limit, however it is written
_ITEM = re.compile(r"Item (\d+): ")


class Line(NamedTuple):
    number: int
    message: Outgoing


class Lines:
    """Sends what it reads, and knows at every moment how much was accepted."""

    def __init__(self, queue: Queue, topic: str, operation: str | None, *, as_json: bool) -> None:
        self.accepted: int = 0
        self.created: int = 0
        self._queue = queue
        self._topic = topic
        self._operation = operation
        self._batches = 0
        self._as_json = as_json

    def send(self, batch: list[Line]) -> None:
        """A batch. With an operation each has one of its own, so that the same lines sent again add nothing."""
        operation = None if self._operation is None else f"{self._operation}/{self._batches}"
        self._batches += 1
        try:
            self._answered(self._queue.send_many(self._topic, [line.message for line in batch], operation=operation))
        except PartlySent as error:
            self._answered(error.sent)
            raise
        except BadMessage as error:
            item = _ITEM.match(str(error))
            if item is None:
                raise
            raise type(error)(f"Line {batch[int(item[1])].number:,}: {str(error)[item.end() :]}") from error

    def _answered(self, answers: list[Sent]) -> None:
        self.accepted += len(answers)
        self.created += sum(each.created for each in answers)
        if self._as_json:
            for each in answers:
                say_json(fields.sent(each))
            flush()  # whoever reads along knows what was accepted


def run(
    place: Place,
    topic: str,
    source: str,
    pattern: Outgoing,
    operation: str | None,
    *,
    text: bool = False,
    as_json: bool = False,
) -> int:
    """`pattern` has the options that all of them share."""
    with _opened(source) as file:
        total = _checked(file, pattern, text=text) if _is_regular(file) else None
        shown = not (as_json and sys.stdout.isatty())  # a bar among the lines would be in their way
        with place.queue(make=True) as queue, progress(f"sending to {topic}", total, shown=shown) as moved:
            lines = Lines(queue, topic, operation, as_json=as_json)
            try:
                for batch in _batches(file, pattern, text=text):
                    lines.send(batch)
                    moved(lines.accepted)
            except BideError as error:
                tell(f"bide: {error}")
                tell(f"Accepted before that: {_count(lines.accepted)}.")
                return Exit.FAILED
            except KeyboardInterrupt:
                tell(f"Stopped. Accepted: {_count(lines.accepted)}, and perhaps some of the next {BATCH:,}.")
                return Exit.STOPPED
    if not as_json:
        known = lines.accepted - lines.created
        say(f"Sent {_count(lines.accepted)} to {topic}." + (f" {known:,} were there already." if known else ""))
    return Exit.OK


def _batches(file: BinaryIO, pattern: Outgoing, *, text: bool) -> Iterator[list[Line]]:
    batch: list[Line] = []
    for line in _read(file, pattern, text=text):
        batch.append(line)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _read(file: BinaryIO, pattern: Outgoing, *, text: bool) -> Iterator[Line]:
    number = 0
    while raw := file.readline(LONGEST + 1):
        number += 1
        if len(raw) > LONGEST:
            raise BadBody(f"Line {number:,} is over {LONGEST:,} bytes. Write one body a line, each ended by a line break.")
        written = raw.rstrip(b"\r\n")
        if written.strip():
            try:
                body = body_of(written, text=text)
            except BodyError as error:
                raise BadBody(f"Line {number:,} is no body: {error}. Write one JSON value a line, or add --text.") from None
            yield Line(number, msgspec.structs.replace(pattern, body=body))


def _checked(file: BinaryIO, pattern: Outgoing, *, text: bool) -> int:
    """How many messages a file holds; all of it is read before any is sent, so that a bad line stops it all."""
    count = sum(1 for _ in _read(file, pattern, text=text))
    file.seek(0)
    return count


@contextlib.contextmanager
def _opened(source: str) -> Iterator[BinaryIO]:
    if source == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(source, "rb")  # noqa: SIM115 - closed below; only the opening is this error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no file name"
        raise typer.BadParameter(f"{source} can't be read: {reason}.", param_hint="--from") from None
    with file:
        yield file


def _is_regular(file: BinaryIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.tell() == 0
    except (OSError, ValueError):
        return False


def _count(messages: int) -> str:
    return f"{messages:,} message" + ("" if messages == 1 else "s")
