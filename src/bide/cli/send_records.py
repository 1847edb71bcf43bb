"""`bide send --from` without a topic: messages as `bide list --json` has printed them, a line each."""

import base64
import contextlib
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, NamedTuple, TypeAlias

import msgspec
import typer

from bide.cli.exits import Exit
from bide.cli.output import echo, echo_json, flush, note, now_ms, progress
from bide.cli.queues import QueueOptions
from bide.cli.unsent import Unsent
from bide.clock import moment
from bide.core import formats
from bide.core.codec import JSON, MAX_BODY, Encoded
from bide.core.formats import plural
from bide.core.times import MAX_DELAY_MS
from bide.engines.base import NewMessage
from bide.errors import BadBody, BadMessage, BideError, OutcomeUnknown
from bide.types import IfExists, Priority, Sent, State

if TYPE_CHECKING:
    from bide.queue import Queue
    from bide.queue.envelope import Envelope


LONGEST = 4 * 2**20  # bytes of a line: room for a body at its limit, however it is written


def read_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, each with its number. Raises BadBody for one that is too long."""
    number = 0
    while raw := file.readline(LONGEST + 1):
        number += 1
        if len(raw) > LONGEST:
            raise BadBody(f"Line {number:,} is longer than {LONGEST:,} bytes. Write one message per line.")
        written = raw.rstrip(b"\r\n")
        if written.strip():
            yield number, written


@contextlib.contextmanager
def opened(source: str) -> Iterator[BinaryIO]:
    """A file by its name, or standard input for `-`."""
    if source == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(source, "rb")  # noqa: SIM115 - closed below; only the opening is this error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a valid file name"
        raise typer.BadParameter(f"{source} can't be read: {reason}.", param_hint="--from") from None
    with file:
        yield file


def is_regular(file: BinaryIO) -> bool:
    """Whether a file can be read twice."""
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.tell() == 0
    except (OSError, ValueError):
        return False


BATCH = 1_000
BATCH_BYTES = 8 * 2**20  # of bodies, which are in memory together

Reason: TypeAlias = Literal["leased", "dead", "expired"]
_WORDS: Mapping[str, str] = {
    "kept": "not sent, because a message has their key",
    "exists": "not sent, because a message has their key",
    "replaced": "of them replaced a message that had their key",
    "postponed": "of them replaced a message that had their key, due at the later time",
    "leased": "left out, because a worker had them (--leased sends them, too)",
    "dead": "left out, because they are dead letters (--dead sends them, too)",
    "expired": "left out, because they have expired",
}


_Instant: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]  # until the end of the year 9999


class ListedRecord(msgspec.Struct):
    """A line of `bide list --json`."""

    id: str
    topic: str
    state: State
    due_ms: _Instant
    attempt: int
    max_attempts: int
    body: msgspec.Raw
    key: str | None = None
    priority: Priority = "normal"
    body_base64: str | None = None
    headers: Mapping[str, str] = {}
    expires_ms: _Instant | None = None


class Wanted(NamedTuple):
    """What the command line says about records."""

    leased: bool
    dead: bool
    if_exists: IfExists
    operation: str | None

    def refuses(self, record: ListedRecord, now: int) -> Reason | None:
        if record.state == "leased" and not self.leased:
            return "leased"
        if record.state == "dead":
            return None if self.dead else "dead"
        return "expired" if record.expires_ms is not None and record.expires_ms <= now else None


class RecordLine(NamedTuple):
    number: int
    id: str
    message: NewMessage | None
    refused: Reason | None


def send_records(options: QueueOptions, source: str, wanted: Wanted, *, as_json: bool) -> int:
    """Send all records of `source`, but for those that are not wanted."""
    with opened(source) as file:
        total = _checked(file, wanted) if is_regular(file) else None
        shown = not (as_json and sys.stdout.isatty())  # a bar among the lines would be in their way
        with options.open(create=True) as queue, progress("sending", total, shown=shown) as moved:
            named = queue.capabilities.idempotent or wanted.operation is not None
            unsent = Unsent(source, "bide send --from -", repeatable=named)
            sender = _RecordSender(queue, unsent, named=named, as_json=as_json)
            try:
                for batch in _batches(file, wanted):
                    sender.send(batch)
                    moved(sender.lines)
            except BideError as error:
                note(f"bide: {error}")
                note(f"Accepted before the error: {plural(sender.accepted, 'message')}.{unsent.again(rest=True)}")
                return Exit.FAILED
            except KeyboardInterrupt:
                accepted, again = plural(sender.accepted, "message"), unsent.again(rest=True, unsure=True)
                note(f"Stopped. Accepted: {accepted}, and possibly some more.{again}")
                return Exit.STOPPED
    if not as_json:
        sender.tell()
    return unsent.ended()


class _RecordSender:
    """Sends batches, and knows at every moment what became of the lines."""

    def __init__(self, queue: "Queue", unsent: Unsent, *, named: bool, as_json: bool) -> None:
        """`named`: the engine remembers by its operation what was sent."""
        self.accepted: int = 0
        self.lines: int = 0
        self._queue = queue
        self._unsent = unsent
        self._named = named
        self._as_json = as_json
        self._topics = set[str]()
        self._outcomes = Counter[str]()
        self._left_out = Counter[Reason]()

    def send(self, batch: list[RecordLine]) -> None:
        """Send a batch. Goes on after one of which a part was done, or all and not confirmed."""
        new = [(line, self._as_sent(line.message)) for line in batch if line.message is not None]
        try:
            answers: Sequence[Sent | None] = self._queue.session.put_many([message for _, message in new]) if new else ()
            self._unsent.none(batch[-1].number)
        except OutcomeUnknown as error:
            answers = self._unsent.some(error, [line.number for line, _ in new], batch[-1].number)
        told = [(line.id, sent) for (line, _), sent in zip(new, answers, strict=True) if sent is not None]
        self.accepted += sum(each.outcome not in ("kept", "exists") for _, each in told)
        self._topics |= {each.topic for _, each in told}
        self._outcomes.update(each.outcome for _, each in told)
        self._left_out.update(line.refused for line in batch if line.refused)
        self.lines += len(batch)
        if self._as_json:
            for id, each in told:
                echo_json({**formats.sent(each), "from": id})
            flush()  # a program that reads along knows what was accepted

    def _as_sent(self, message: NewMessage) -> NewMessage:
        return message if self._named else msgspec.structs.replace(message, operation=None)

    def tell(self) -> None:
        echo(f"Sent {plural(self.accepted, 'message')} to {plural(len(self._topics), 'topic')}.")
        for what, count in (*sorted(self._outcomes.items()), *sorted(self._left_out.items())):
            if what in _WORDS:
                echo(f"{count:,} {_WORDS[what]}.")


def _batches(file: BinaryIO, wanted: Wanted) -> Iterator[list[RecordLine]]:
    batch, size = list[RecordLine](), 0
    for line in _read(file, wanted):
        batch.append(line)
        size += 0 if line.message is None else len(line.message.body)
        if len(batch) == BATCH or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _checked(file: BinaryIO, wanted: Wanted) -> int:
    """How many records a file has. All of it is read before any is sent, so that a bad line stops it all."""
    count = sum(1 for _ in _read(file, wanted))
    file.seek(0)
    return count


def _read(file: BinaryIO, wanted: Wanted) -> Iterator[RecordLine]:
    from bide.queue.envelope import Envelope

    envelope, decode = Envelope(JSON, MAX_BODY, now_ms), msgspec.json.Decoder(ListedRecord).decode
    for number, written in read_lines(file):
        now = now_ms()
        try:
            written.decode()  # a body that is passed on as it is must be UTF-8, too
            record = decode(written)
            refused = wanted.refuses(record, now)
            yield RecordLine(number, record.id, None if refused else _message(record, envelope, wanted, now), refused)
        except BadMessage as error:
            raise type(error)(f"Line {number:,}: {error}") from error
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            raise BadBody(
                f"Line {number:,} is not a line of `bide list --json`: {error}. To send bodies, give their TOPIC."
            ) from None


def _message(record: ListedRecord, envelope: "Envelope", wanted: Wanted, now: int) -> NewMessage:
    """The message as it was: its body to the byte, its time, and what is left of its attempts and of its life."""
    from bide.queue.deliveries import attempts_left

    pending = record.state in ("scheduled", "ready")
    made = record.attempt if record.state != "dead" else 0
    begin = record.due_ms if record.state == "dead" else max(record.due_ms, now)
    life = None if record.expires_ms is None else min(max(1, record.expires_ms - begin), MAX_DELAY_MS)
    attempts, headers = attempts_left(record.max_attempts, made, record.headers)
    raw = bytes(record.body) if record.body_base64 is None else base64.b64decode(record.body_base64, validate=True)
    return msgspec.structs.replace(
        envelope.message(
            record.topic,
            Encoded(raw),
            at=moment(record.due_ms) if pending else None,
            key=record.key,
            if_exists=wanted.if_exists,
            priority=record.priority,
            headers=headers,
            operation=f"{wanted.operation or 'list'}/{record.id}/{record.due_ms}",
        ),
        max_attempts=attempts,
        expires_in=life,
    )
