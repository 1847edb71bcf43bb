"""A task of Celery, as it is stored in Redis: an envelope of kombu, with a body of Celery's message protocol 2."""

import base64
import binascii
import re
import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec

from bide.adopt.shape import Shape, TaskShape, check_json
from bide.adopt.source import UnreadableEntry
from bide.engines.base import NewMessage

ID = re.compile(r"[\w.:-]{1,200}", re.ASCII)
OWN = frozenset(  # headers of Celery and kombu themselves: all others are the user's
    (
        "lang",
        "task",
        "id",
        "shadow",
        "eta",
        "expires",
        "group",
        "group_index",
        "retries",
        "timelimit",
        "root_id",
        "parent_id",
        "argsrepr",
        "kwargsrepr",
        "origin",
        "ignore_result",
        "replaced_task_nesting",
        "stamped_headers",
        "stamps",
        "redelivered",
        "delegate",
        "clock",
        "method",
        "compression",
    )
)
TEXTS = frozenset({"datetime", "date", "time"})  # of what kombu writes with its type: their value is text
AFTER = ("chain", "callbacks", "errbacks", "chord")


class CeleryEnvelope(msgspec.Struct, frozen=True):
    """What is an element of a queue's list."""

    body: str
    headers: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    content_type: str = msgspec.field(name="content-type", default="")


class CeleryTask(msgspec.Struct, frozen=True):
    """An envelope that was understood as far as its headers."""

    id: str
    name: str
    eta: int | None  # an instant in ms, rounded up
    expires: int | None
    redelivered: bool  # it was in the hands of a worker before
    envelope: CeleryEnvelope
    exchange: str = ""
    routing_key: str = ""


_list = msgspec.json.Decoder(CeleryEnvelope).decode
_unacked = msgspec.json.Decoder(tuple[CeleryEnvelope, Any, Any]).decode
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_either = msgspec.json.Decoder(CeleryEnvelope | tuple[CeleryEnvelope, Any, Any]).decode
_body = msgspec.json.Decoder(tuple[list[msgspec.Raw], dict[str, msgspec.Raw], dict[str, Any]]).decode


def element(content: bytes) -> CeleryTask:
    """A task in a queue's list. Raises Unreadable."""
    return _task(_decoded(_list, content))


def unacked(content: bytes) -> CeleryTask:
    """A task in the hash of those that workers have. Raises Unreadable."""
    found: tuple[CeleryEnvelope, Any, Any] = _decoded(_unacked, content)
    return _task(*found)


def shown(stored: bytes) -> str:
    """The name and the id of a task, as Celery's logs write them. Empty if it does not tell them."""
    try:
        found: CeleryEnvelope | tuple[CeleryEnvelope, Any, Any] = _either(stored)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""
    headers = (found if isinstance(found, CeleryEnvelope) else found[0]).headers
    name, known = headers.get("task"), headers.get("id")
    return f"{name}[{known}]"[:100] if isinstance(name, str) and isinstance(known, str) else ""


def anew(content: bytes, tag: str) -> tuple[str, bytes]:
    """The envelope of a task with a new id and this delivery tag, and all else as it is written; the id comes first."""
    envelope = _raws(content)
    headers, properties = _raws(envelope["headers"]), _raws(envelope.get("properties", b"{}"))
    known = str(uuid4())
    new = msgspec.Raw(msgspec.json.encode(known))
    if "root_id" in headers and bytes(headers["root_id"]) == bytes(headers["id"]):
        headers["root_id"] = new
    headers["id"] = properties["correlation_id"] = new
    properties["delivery_tag"] = msgspec.Raw(msgspec.json.encode(tag))
    changed = {"headers": msgspec.json.encode(headers), "properties": msgspec.json.encode(properties)}
    return known, msgspec.json.encode(envelope | {name: msgspec.Raw(each) for name, each in changed.items()})


def message(task: CeleryTask, shape: Shape, tasks: TaskShape) -> NewMessage:
    """What the task becomes. Raises Unreadable."""
    envelope = task.envelope
    if envelope.content_type != "application/json":
        raise UnreadableEntry(f"has arguments that are not JSON but {envelope.content_type or 'of an unknown type'}")
    if envelope.headers.get("compression"):
        raise UnreadableEntry("has compressed arguments")
    plain = _plain(envelope)
    check_json(plain)  # arguments are passed on as they are written, so a number such as 1e999 would be seen too late
    args, kwargs, rest = _decoded(_body, plain)
    for name in AFTER:
        if rest.get(name):
            raise UnreadableEntry(f"has a {name.rstrip('s')}: let a Celery worker finish it")
    body = tasks.body(task.name, [_value(each) for each in args], {name: _value(each) for name, each in kwargs.items()})
    key = shape.names(body)[1] or task.id
    return tasks.shape(task.name, shape).sealed(body, task.eta, key=key, headers=_headers(task), life=_life(task))


def _life(task: CeleryTask) -> int | None:
    """How many ms it lives from its due time, which is now if it has no ETA or is overdue: it expires when it would have."""
    if task.expires is None:
        return None
    if task.eta is not None and task.expires <= task.eta:
        raise UnreadableEntry("expires before it is due")
    return max(1, task.expires - max(task.eta or 0, time.time_ns() // 1_000_000))


def _task(envelope: CeleryEnvelope, exchange: Any = "", routing_key: Any = "") -> CeleryTask:
    headers = envelope.headers
    name, known = headers.get("task"), headers.get("id")
    if not isinstance(name, str) or not isinstance(known, str) or not ID.fullmatch(known):
        raise UnreadableEntry("is no task of Celery 4 or later")
    eta, expires = _instant(headers.get("eta"), "eta"), _instant(headers.get("expires"), "expires")
    return CeleryTask(known, name, eta, expires, bool(headers.get("redelivered")), envelope, exchange or "", routing_key or "")


def _instant(text: Any, field: str) -> int | None:
    """An instant in ms, rounded up. Without an offset it is in UTC, as Celery writes it unless `enable_utc` is off."""
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        since = when - datetime(1970, 1, 1, tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        raise UnreadableEntry(f"has an {field} that is no time") from None
    return -((-since.days * 86_400_000_000 - since.seconds * 1_000_000 - since.microseconds) // 1000)


def _plain(envelope: CeleryEnvelope) -> bytes:
    encoding = envelope.properties.get("body_encoding")
    if encoding is None:
        return envelope.body.encode()
    try:
        return base64.b64decode(envelope.body, validate=True)
    except (binascii.Error, ValueError):
        raise UnreadableEntry("has a body that is not base64") from None


def _value(raw: msgspec.Raw) -> Any:
    """The value as it is written; where kombu has written its type with it, the text of a time."""
    if b'"__type__"' not in bytes(raw):
        return raw
    return _typed(msgspec.json.decode(raw))


def _typed(value: Any) -> Any:
    if isinstance(value, list):
        return [_typed(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "__type__" not in value:
        return {name: _typed(each) for name, each in value.items()}
    kind = value["__type__"]
    if not isinstance(kind, str):
        raise UnreadableEntry("has an argument whose type has no name")
    if kind in TEXTS and isinstance(value.get("__value__"), str):
        return value["__value__"]
    raise UnreadableEntry(f"has an argument of the type {kind}, which JSON does not have")


def _headers(task: CeleryTask) -> dict[str, str]:
    headers = task.envelope.headers
    kept = {name: value for name, value in headers.items() if name not in OWN and value is not None}
    told = {name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in kept.items()}
    retries = headers.get("retries") or 0
    return told | {"celery-id": task.id} | ({"celery-retries": str(retries)} if retries else {})


def _decoded(decode: Any, content: bytes) -> Any:
    try:
        content.decode()
        return decode(content)
    except msgspec.ValidationError:
        raise UnreadableEntry("is no task of Celery 4 or later") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise UnreadableEntry("is not JSON") from None
