"""`bide send TOPIC --from`: many messages, one per line, sent in batches."""

import itertools
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

from bide.cli.output import echo
from bide.cli.queues import QueueOptions
from bide.cli.send_file import BATCH, FileSender, Unsent, read_lines, send_file
from bide.core import formats
from bide.core.formats import plural
from bide.errors import BadBody, BadMessage, OutcomeUnknown, PartlySent
from bide.types import Outgoing, Sent

if TYPE_CHECKING:
    from bide.queue import Queue

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

    def opened(queue: "Queue") -> _BodySender:
        unsent = Unsent(source, f"bide send {topic} -", repeatable=operation is not None and queue.capabilities.idempotent)
        return _BodySender(queue, topic, unsent, operation, as_json=as_json)

    def batches(file: BinaryIO) -> Iterator[list[SendLine]]:
        lines = _read(file, common, text=text)
        while batch := list(itertools.islice(lines, BATCH)):
            yield batch

    return send_file(options, source, f"sending to {topic}", batches, opened, as_json=as_json)


class _BodySender(FileSender[SendLine]):
    more = f"some of the next {BATCH:,}"

    def __init__(self, queue: "Queue", topic: str, unsent: Unsent, operation: str | None, *, as_json: bool) -> None:
        super().__init__(unsent, as_json=as_json)
        self._created = 0
        self._queue = queue
        self._topic = topic
        self._operation = operation
        self._batches = 0

    def send(self, batch: list[SendLine]) -> None:
        """Each batch has an operation of its own, so that the same lines sent again add nothing."""
        operation = None if self._operation is None else f"{self._operation}/{self._batches}"
        self._batches += 1
        try:
            sent = self._queue.send_many(self._topic, [line.message for line in batch], operation=operation)
            self.unsent.none(batch[-1].number)  # before anybody is told of them
            self._count(sent)
        except PartlySent as error:
            self.unsent.none(batch[len(error.sent) - 1].number)
            self._count(error.sent)
            raise
        except OutcomeUnknown as error:
            answers = self.unsent.some(error, [line.number for line in batch], batch[-1].number)
            self._count([each for each in answers if each is not None])
        except BadMessage as error:
            item = _ITEM.match(str(error))
            if item is None:
                raise
            raise type(error)(f"Line {batch[int(item[1])].number:,}: {str(error)[item.end() :]}") from error

    def _count(self, answers: list[Sent]) -> None:
        self.accepted += len(answers)
        self._created += sum(each.created for each in answers)
        self.print_answers(map(formats.sent, answers))

    def tell(self) -> None:
        known = self.accepted - self._created
        existed = f" {known:,} of them existed already." if known else ""
        echo(f"Sent {plural(self.accepted, 'message')} to {self._topic}.{existed}")


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


def _read(file: BinaryIO, common: Outgoing, *, text: bool) -> Iterator[SendLine]:
    for number, written in read_lines(file):
        try:
            body = parse_body(written, text=text)
        except BodyError as error:
            raise BadBody(
                f"Line {number:,} is not a valid body: {error}. Write one JSON value per line, or add --text."
            ) from None
        yield SendLine(number, msgspec.structs.replace(common, body=body))
