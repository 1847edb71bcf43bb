"""How an entry of another system becomes a message: its topic, its body, its key and its due time."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from bide.adopt.source import UnreadableEntry
from bide.core import options
from bide.core.codec import JSON, MAX_BODY, Encoded
from bide.core.formats import plural
from bide.core.times import MAX_DELAY_MS
from bide.engines.base import NewMessage
from bide.errors import BadMessage, TooLarge
from bide.queue.envelope import Envelope
from bide.types import IfExists

MS_FROM = 100_000_000_000  # a number of seconds as high as this is in the year 5138; of milliseconds, in 1973
MOST = 1_000  # attempts

_decode = msgspec.json.Decoder().decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about the messages. `longest`: the longest delay that the queue's engine can keep."""

    topic: str | None = None
    topic_field: str | None = None  # a field of the entry names the topic
    key_field: str | None = None
    split: str | None = None  # an id is a topic and a key, with this between them
    body: str = "json"  # the entry is the body, as JSON; or raw: as text; or the name of the field that is the body
    parse_body: bool = False  # a body that is text with JSON in it becomes that JSON
    body_as: str | None = None  # a body that is no object becomes an object with this field
    if_exists: IfExists = "keep"
    max_attempts: int | None = None
    longest: int = MAX_DELAY_MS

    def message(
        self, content: bytes, due: int | None, headers: Mapping[str, str] | None = None, *, id: bytes | None = None
    ) -> NewMessage:
        """The message of an entry with this content and id, due at an instant in ms, or now. Raises Unreadable."""
        topic, key = (None, None) if self.split is None or id is None else _halves(_text(id), self.split)
        if self.body == "raw":
            return self.sealed(msgspec.json.encode(_text(content)), due, topic=topic, key=key, headers=headers)
        check_json(content)
        body = content if self.body == "json" else field(content, self.body)
        body = _parsed(body) if self.parse_body else body
        named, keyed = self.names(content)
        return self.sealed(body, due, topic=named or topic, key=keyed or key, headers=headers)

    def names(self, content: bytes) -> tuple[str | None, str | None]:
        """The topic and the key, as far as fields of the entry name them. Raises Unreadable."""
        topic = None if self.topic_field is None else _text_field(content, self.topic_field)
        key = None if self.key_field is None else _text_field(content, self.key_field)
        return topic, key

    def sealed(
        self,
        body: bytes,
        due: int | None,
        *,
        topic: str | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        max_attempts: int | None = None,
        life: int | None = None,
    ) -> NewMessage:
        """The message with this body, which is JSON. Where the options say nothing, it is as given here. Raises Unreadable.

        `life`: after so many ms from its due time it expires; what is longer than bide keeps anything, is as long as that.
        """
        now = time.time_ns() // 1_000_000
        if due is not None and due - now > self.longest:
            raise UnreadableEntry(f"is due in more than {self.longest // 86_400_000:,} days")
        named = self.topic or topic
        if named is None:
            raise UnreadableEntry("names no topic: give --topic")
        if self.body_as is not None and not body.lstrip(b" \t\r\n").startswith(b"{"):
            body = b"{%s:%s}" % (msgspec.json.encode(self.body_as), body)
        attempts = self.max_attempts or max_attempts
        try:
            made = _ENVELOPE.message(
                named,
                Encoded(body),
                key=key,
                if_exists=self.if_exists,
                max_attempts=attempts,
                headers=headers,
            )
        except TooLarge:
            raise UnreadableEntry(f"has a body over {MAX_BODY:,} bytes") from None
        except BadMessage as error:
            reason = _why_not(named, key, headers, attempts) or f"can't be sent: {error}".rstrip(".")
            raise UnreadableEntry(reason) from None
        if len(body) > MAX_BODY:
            raise UnreadableEntry(f"has a body over {MAX_BODY:,} bytes")
        at, expires_in = None if due is None else max(0, due), None if life is None else min(life, MAX_DELAY_MS)
        return msgspec.structs.replace(made, at=at, expires_in=expires_in)


def due_ms(score: float, unit: str = "auto") -> int:
    """The instant of a score in seconds (s) or milliseconds (ms), rounded up. auto: as its size says. Raises Unreadable."""
    if not math.isfinite(score):
        raise UnreadableEntry("has a score that is no time")
    exact = Fraction(score)
    return math.ceil(exact if unit == "ms" or (unit == "auto" and abs(score) >= MS_FROM) else exact * 1000)


def check_json(content: bytes) -> None:
    """Raises Unreadable for what is no body in JSON."""
    try:
        content.decode()  # a body is UTF-8, also in the parts that the decoder passes over
        _decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise UnreadableEntry("is not JSON") from None


def field(content: bytes, path: str) -> bytes:
    """The JSON of a field; a.b is the field b of the field a, unless a field is named a.b. Raises Unreadable."""
    try:
        fields = _fields(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise UnreadableEntry(f"has no field {path}") from None
    head, dot, rest = path.partition(".")
    if path in fields:
        return bytes(fields[path])
    if dot and head in fields:
        return field(bytes(fields[head]), rest)
    raise UnreadableEntry(f"has no field {path}")


def _parsed(body: bytes) -> bytes:
    """The JSON in a body that is text. A body that is no text, or text that is not JSON, is as it was."""
    try:
        inner = msgspec.json.decode(body, type=str).encode()
        check_json(inner)
    except (msgspec.DecodeError, UnicodeError, UnreadableEntry):
        return body
    return inner


def _why_not(topic: str, key: str | None, headers: Mapping[str, str] | None, attempts: int | None) -> str | None:
    """Why what is in an entry can't be sent, in words that are the same for all such entries. None if it is something else."""
    checks: list[tuple[Callable[[], object], str]] = [
        (lambda: options.topic(topic), "names a topic that is not 1 to 128 characters of A-Z a-z 0-9 . _ -"),
        (lambda: options.key(key), "has a key that is not 1 to 256 printable characters"),
        (lambda: options.headers(headers), "has headers over 8,192 bytes, or one that has no name or is no valid text"),
        (lambda: options.count(attempts or 1, "max_attempts", MOST), f"has more than {MOST:,} attempts left"),
    ]
    for check, reason in checks:
        try:
            check()
        except BadMessage:
            return reason
    return None


def _halves(id: str, between: str) -> tuple[str, str]:
    """The topic and the key. Raises Unreadable."""
    topic, found, key = id.partition(between)
    if not (topic and found and key):
        raise UnreadableEntry(f"has an id that is not a topic and a key with {between} between them")
    return topic, key


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeError:
        raise UnreadableEntry("is not UTF-8") from None


def _text_field(content: bytes, path: str) -> str:
    found = _decode(field(content, path))
    if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
        raise UnreadableEntry(f"has no text or whole number in its field {path}")
    return str(found)


_ENVELOPE = Envelope(JSON, MAX_BODY, lambda: time.time_ns() // 1_000_000)


class TaskShape(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about tasks."""

    topics: Mapping[str, str] = {}  # by the name of the task
    names: Mapping[str, Sequence[str]] = {}  # of its positional arguments, by the name of the task

    def shape(self, task: str, shape: Shape) -> Shape:
        """That of the messages of a task: a task without a topic has its name as its topic."""
        return msgspec.structs.replace(shape, topic=self.topics.get(task) or shape.topic or task)

    def body(self, task: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """A JSON object of all arguments. Values may be msgspec.Raw. Raises Unreadable."""
        names = self.names.get(task, ())
        if len(args) > len(names):
            raise UnreadableEntry(f"has {plural(len(args), 'argument')} without a name: give --args {task}=NAME,…")
        if twice := [name for name in names[: len(args)] if name in kwargs]:
            raise UnreadableEntry(f"has the argument {twice[0]} twice: correct --args {task}=…")
        try:
            return msgspec.json.encode({**dict(zip(names, args, strict=False)), **kwargs})
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise UnreadableEntry("has arguments that JSON can't express") from None


def read_maps(given: Sequence[str]) -> dict[str, str]:
    """`TASK=TOPIC`, repeated. Raises ValueError with the text that is no such pair."""
    pairs = [each.partition("=") for each in given]
    for (task, equals, value), text in zip(pairs, given, strict=True):
        if not (task and equals and value):
            raise ValueError(text)
    return {task: value for task, _, value in pairs}


def read_names(given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """`TASK=NAME,NAME`, repeated. Raises ValueError with the text that is none."""
    names = {task: tuple(each.strip() for each in value.split(",")) for task, value in read_maps(given).items()}
    for task, each in names.items():
        if "" in each or len(set(each)) < len(each):
            raise ValueError(f"{task}={','.join(each)}")
    return names
