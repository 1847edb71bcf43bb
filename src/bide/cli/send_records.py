"""`bide send --from` without a topic: messages as `bide list --json` has printed them, a line each."""

import base64
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, NamedTuple, TypeAlias

import msgspec

from bide.cli.output import echo, now_ms
from bide.cli.queues import QueueOptions
from bide.cli.send_file import BATCH, FileSender, Unsent, read_lines, send_file
from bide.clock import moment
from bide.core import formats, options
from bide.core.codec import JSON, MAX_BODY, Encoded
from bide.core.formats import plural
from bide.core.times import MAX_DELAY_MS
from bide.engines.base import NewMessage
from bide.errors import BadBody, BadMessage, OutcomeUnknown
from bide.types import IfExists, Priority, Sent, State

if TYPE_CHECKING:
    from bide.queue import Queue
    from bide.queue.envelope import Envelope


OWN = "bide-"  # headers that bide writes begin with it
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

    def opened(queue: "Queue") -> _RecordSender:
        named = queue.capabilities.idempotent or wanted.operation is not None
        unsent = Unsent(source, "bide send --from -", repeatable=named)
        return _RecordSender(queue, unsent, named=named, as_json=as_json)

    return send_file(options, source, "sending", lambda file: _batches(file, wanted), opened, as_json=as_json)


class _RecordSender(FileSender[RecordLine]):
    """Knows at every moment what became of the lines."""

    def __init__(self, queue: "Queue", unsent: Unsent, *, named: bool, as_json: bool) -> None:
        """`named`: the engine remembers by its operation what was sent."""
        super().__init__(unsent, as_json=as_json)
        self._queue = queue
        self._named = named
        self._topics = set[str]()
        self._outcomes = Counter[str]()
        self._left_out = Counter[Reason]()

    def send(self, batch: list[RecordLine]) -> None:
        new = [(line, self._as_sent(line.message)) for line in batch if line.message is not None]
        try:
            answers: Sequence[Sent | None] = self._queue.session.put_many([message for _, message in new]) if new else ()
            self.unsent.none(batch[-1].number)
        except OutcomeUnknown as error:
            answers = self.unsent.some(error, [line.number for line, _ in new], batch[-1].number)
        told = [(line.id, sent) for (line, _), sent in zip(new, answers, strict=True) if sent is not None]
        self.accepted += sum(each.outcome not in ("kept", "exists") for _, each in told)
        self._topics |= {each.topic for _, each in told}
        self._outcomes.update(each.outcome for _, each in told)
        self._left_out.update(line.refused for line in batch if line.refused)
        self.print_answers({**formats.sent(each), "from": id} for id, each in told)

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
    given = {name: each for name, each in headers.items() if not name.startswith(OWN)}
    own = options.headers({name: each for name, each in headers.items() if name not in given})  # they have room of their own
    raw = bytes(record.body) if record.body_base64 is None else base64.b64decode(record.body_base64, validate=True)
    return msgspec.structs.replace(
        envelope.message(
            record.topic,
            Encoded(raw),
            at=moment(record.due_ms) if pending else None,
            key=record.key,
            if_exists=wanted.if_exists,
            priority=record.priority,
            headers=given,
            operation=f"{wanted.operation or 'list'}/{record.id}/{record.due_ms}",
        ),
        max_attempts=attempts,
        expires_in=life,
        headers={**own, **given},
    )
