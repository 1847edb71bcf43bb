"""A job of RQ, as it is stored in Redis: a hash whose field `data` is compressed, and JSON or a pickle within."""

import zlib
from typing import Any

import msgspec

from bide.adopt.arguments import TaskShape
from bide.adopt.plain_pickle import plain
from bide.adopt.shaping import Shape
from bide.adopt.source import Unreadable
from bide.engines.base import NewMessage

LARGEST = 4 * 2**20  # bytes of `data`: what is compressed may be huge

FIELDS = (
    "data",
    "meta",
    "ttl",
    "retries_left",
    "repeats_left",
    "dependency_ids",
    "success_callback_name",
    "failure_callback_name",
    "stopped_callback_name",
    "webhooks",
)


class Job(msgspec.Struct, frozen=True, array_like=True):
    """These fields, each None if the hash lacks it; and how many jobs depend on this one, -1 if it is no hash."""

    data: bytes | None = None
    meta: bytes | None = None
    ttl: bytes | None = None
    retries_left: bytes | None = None
    repeats_left: bytes | None = None
    dependency_ids: bytes | None = None
    success_callback_name: bytes | None = None
    failure_callback_name: bytes | None = None
    stopped_callback_name: bytes | None = None
    webhooks: bytes | None = None
    dependents: int = 0


def message(job: Job, known: str, due: int | None, shape: Shape, tasks: TaskShape) -> NewMessage:
    """What the job with this id becomes. Raises Unreadable."""
    if job.dependents < 0:
        raise Unreadable("has a job that is no hash")
    if not job.data:
        raise Unreadable("has no job: it was cancelled, or its time to live has ended")
    _check(job)
    call = _read(_unpacked(job.data))
    if not isinstance(call, list | tuple) or len(call) != 4:
        raise Unreadable("is no job of RQ")
    name, instance, args, kwargs = call
    if not isinstance(name, str) or not isinstance(args, list | tuple) or not isinstance(kwargs, dict):
        raise Unreadable("is no job of RQ")
    if instance is not None:
        raise Unreadable("calls a method of an object")
    body = tasks.body(name, args, kwargs)
    headers = {"rq-id": known}
    if job.meta:
        headers["rq-meta"] = _json(_read(job.meta))
    attempts = 1 + _number(job.retries_left) if job.retries_left else None
    key = shape.names(body)[1] or known
    return tasks.shape(name, shape).sealed(
        body, due, key=key, headers=headers, max_attempts=attempts, life=_life(job.ttl) if job.ttl else None
    )


def _check(job: Job) -> None:
    if job.success_callback_name or job.failure_callback_name or job.stopped_callback_name or job.webhooks:
        raise Unreadable("has callbacks: let an RQ worker do it")
    if job.repeats_left and _number(job.repeats_left):
        raise Unreadable("is to be repeated: make it a schedule")
    if job.dependency_ids or job.dependents:
        raise Unreadable("depends on other jobs, or others on it: let an RQ worker do them")


def _unpacked(data: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        unpacked = unpacking.decompress(data, LARGEST)
    except zlib.error:
        return data  # RQ reads it so, too
    if unpacking.unconsumed_tail:
        raise Unreadable(f"has arguments over {LARGEST:,} bytes")
    return unpacked


def _read(data: bytes) -> Any:
    """What RQ's serializer has written: JSON, or a pickle."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return plain(data)


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise Unreadable("has meta that JSON can't express") from None


def _life(ttl: bytes) -> int | None:
    """How many ms the job lives, of seconds; RQ lets a job live without end if they are negative, as its result_ttl -1."""
    seconds = _whole(ttl)
    if not seconds:
        raise Unreadable("has a ttl of 0: it would expire at once")
    return seconds * 1000 if seconds > 0 else None


def _number(text: bytes | None) -> int:
    return max(0, _whole(text or b"0"))


def _whole(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise Unreadable("is no job of RQ") from None
