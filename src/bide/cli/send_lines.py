"""`bide send TOPIC --from`: many messages, one per line, sent in batches."""

import itertools
import json
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

from bide.cli.exits import Exit
from bide.cli.output import echo, echo_json, flush, note, progress
from bide.cli.queues import QueueOptions
from bide.cli.send_records import is_regular, opened, read_lines
from bide.cli.unsent import Unsent
from bide.core import formats
from bide.core.formats import plural
from bide.errors import BadBody, BadMessage, BideError, OutcomeUnknown, PartlySent
from bide.types import Outgoing, Sent

if TYPE_CHECKING:
    from bide.queue import Queue

BATCH = 1_000
_ITEM = re.compile(r"Item (\d+): ")


class BodyError(ValueError):
    """This is no body. The text says why."""


class SendLine(NamedTuple):
    number: int
    message: Outgoing


def send_lines(
    options: QueueOptions, topic: str, source: str, common: Outgoing, operation: str | None, *, text: bool, as_json: bool
) -> int:
    """Send the lines of `source`. `common` has the options that all messages share."""
    with opened(source) as file:
        total = _checked(file, common, text=text) if is_regular(file) else None
        shown = not (as_json and sys.stdout.isatty())  # a bar among the lines would be in their way
        with options.open(create=True) as queue, progress(f"sending to {topic}", total, shown=shown) as moved:
            repeatable = operation is not None and queue.capabilities.idempotent
            unsent = Unsent(source, f"bide send {topic} -", repeatable=repeatable)
            sender = _Sender(queue, topic, unsent, operation, as_json=as_json)
            try:
                for batch in _batches(file, common, text=text):
                    sender.send(batch)
                    moved(sender.accepted)
            except BideError as error:
                note(f"bide: {error}")
                note(f"Accepted before the error: {plural(sender.accepted, 'message')}.{unsent.again(rest=True)}")
                return Exit.FAILED
            except KeyboardInterrupt:
                accepted, again = plural(sender.accepted, "message"), unsent.again(rest=True, unsure=True)
                note(f"Stopped. Accepted: {accepted}, and possibly some of the next {BATCH:,}.{again}")
                return Exit.STOPPED
    if not as_json:
        known = sender.accepted - sender.created
        echo(
            f"Sent {plural(sender.accepted, 'message')} to {topic}." + (f" {known:,} of them existed already." if known else "")
        )
    return unsent.ended()


class _Sender:
    """Sends batches, and knows at every moment how many messages were accepted."""

    def __init__(self, queue: "Queue", topic: str, unsent: Unsent, operation: str | None, *, as_json: bool) -> None:
        self.accepted: int = 0
        self.created: int = 0
        self._queue = queue
        self._topic = topic
        self._unsent = unsent
        self._operation = operation
        self._batches = 0
        self._as_json = as_json

    def send(self, batch: list[SendLine]) -> None:
        """Send a batch. Each batch has an operation of its own, so that the same lines sent again add nothing.

        Goes on after one of which a part was done, or all and not confirmed.
        """
        operation = None if self._operation is None else f"{self._operation}/{self._batches}"
        self._batches += 1
        try:
            sent = self._queue.send_many(self._topic, [line.message for line in batch], operation=operation)
            self._unsent.none(batch[-1].number)  # before anybody is told of them
            self._count(sent)
        except PartlySent as error:
            self._unsent.none(batch[len(error.sent) - 1].number)
            self._count(error.sent)
            raise
        except OutcomeUnknown as error:
            answers = self._unsent.some(error, [line.number for line in batch], batch[-1].number)
            self._count([each for each in answers if each is not None])
        except BadMessage as error:
            item = _ITEM.match(str(error))
            if item is None:
                raise
            raise type(error)(f"Line {batch[int(item[1])].number:,}: {str(error)[item.end() :]}") from error

    def _count(self, answers: list[Sent]) -> None:
        self.accepted += len(answers)
        self.created += sum(each.created for each in answers)
        if self._as_json:
            for each in answers:
                echo_json(formats.sent(each))
            flush()  # a program that reads along knows what was accepted


def parse_body(written: str | bytes, *, text: bool) -> object:
    """A body as it is written on a command line or in a file: JSON, or text. Raises BodyError."""
    try:
        raw = written.encode() if isinstance(written, str) else written
        return raw.decode() if text else msgspec.json.decode(raw)
    except UnicodeError:
        raise BodyError("it is not UTF-8") from None
    except RecursionError:
        raise BodyError("it is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        if _has_half_a_character(raw):
            raise BodyError("it has half of a character, a lone surrogate such as \\ud800: write the whole character") from None
        raise BodyError(f"it is not JSON ({error})") from None


def _has_half_a_character(raw: bytes) -> bool:
    """Whether this is JSON but for a lone surrogate in a text, which Python's own decoder lets pass."""
    try:
        json.dumps(json.loads(raw), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _batches(file: BinaryIO, common: Outgoing, *, text: bool) -> Iterator[list[SendLine]]:
    lines = _read(file, common, text=text)
    while batch := list(itertools.islice(lines, BATCH)):
        yield batch


def _read(file: BinaryIO, common: Outgoing, *, text: bool) -> Iterator[SendLine]:
    for number, written in read_lines(file):
        try:
            body = parse_body(written, text=text)
        except BodyError as error:
            raise BadBody(
                f"Line {number:,} is not a valid body: {error}. Write one JSON value per line, or add --text."
            ) from None
        yield SendLine(number, msgspec.structs.replace(common, body=body))


def _checked(file: BinaryIO, common: Outgoing, *, text: bool) -> int:
    """How many messages a file holds. All of it is read before any is sent, so that a bad line stops it all."""
    count = sum(1 for _ in _read(file, common, text=text))
    file.seek(0)
    return count
