"""Jobs of RQ: those of a queue that are scheduled or wait for a worker, and how a job is stored."""

import math
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from bide.adopt.adoption import Several
from bide.adopt.plain_pickle import plain
from bide.adopt.redis.server import SourceServer
from bide.adopt.redis.take import StoredEntry, TakenEntry, WaitingEntries, in_groups
from bide.adopt.shape import Shape, TaskShape, due_ms
from bide.adopt.source import AdoptSource, RefusedEntry, UnreadableEntry, new_take
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
JOB = "rq:job:"
MARGIN = 60_000  # ms: RQ's scheduler reads what is due in one step and removes it in another, up to some seconds later


class RQJob(msgspec.Struct, frozen=True, array_like=True):
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


def message(job: RQJob, known: str, due: int | None, shape: Shape, tasks: TaskShape) -> NewMessage:
    """What the job with this id becomes. Raises Unreadable."""
    if job.dependents < 0:
        raise UnreadableEntry("has a job that is no hash")
    if not job.data:
        raise UnreadableEntry("has no job: it was cancelled, or its time to live has ended")
    _check(job)
    call = _read(_unpacked(job.data))
    if not isinstance(call, list | tuple) or len(call) != 4:
        raise UnreadableEntry("is no job of RQ")
    name, instance, args, kwargs = call
    if not isinstance(name, str) or not isinstance(args, list | tuple) or not isinstance(kwargs, dict):
        raise UnreadableEntry("is no job of RQ")
    if instance is not None:
        raise UnreadableEntry("calls a method of an object")
    body = tasks.body(name, args, kwargs)
    headers = {"rq-id": known}
    if job.meta:
        headers["rq-meta"] = _json(_read(job.meta))
    attempts = 1 + _number(job.retries_left) if job.retries_left else None
    key = shape.names(body)[1] or known
    return tasks.shape(name, shape).sealed(
        body, due, key=key, headers=headers, max_attempts=attempts, life=_life(job.ttl) if job.ttl else None
    )


def _check(job: RQJob) -> None:
    if job.success_callback_name or job.failure_callback_name or job.stopped_callback_name or job.webhooks:
        raise UnreadableEntry("has callbacks: let an RQ worker do it")
    if job.repeats_left and _number(job.repeats_left):
        raise UnreadableEntry("is to be repeated: make it a schedule")
    if job.dependency_ids or job.dependents:
        raise UnreadableEntry("depends on other jobs, or others on it: let an RQ worker do them")


def _unpacked(data: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        unpacked = unpacking.decompress(data, LARGEST)
    except zlib.error:
        return data  # RQ reads it so, too
    if unpacking.unconsumed_tail:
        raise UnreadableEntry(f"has arguments over {LARGEST:,} bytes")
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
        raise UnreadableEntry("has meta that JSON can't express") from None


def _life(ttl: bytes) -> int | None:
    """How many ms the job lives, of seconds; RQ lets a job live without end if they are negative, as its result_ttl -1."""
    seconds = _whole(ttl)
    if not seconds:
        raise UnreadableEntry("has a ttl of 0: it would expire at once")
    return seconds * 1000 if seconds > 0 else None


def _number(text: bytes | None) -> int:
    return max(0, _whole(text or b"0"))


def _whole(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise UnreadableEntry("is no job of RQ") from None


class _Jobs(WaitingEntries):
    """`mode`: set for the registry of scheduled jobs, list for the queue."""

    kind: str = "rq"

    def __init__(self, server: SourceServer, queue: str, mode: str, shape: Shape, tasks: TaskShape) -> None:
        super().__init__(server, f"rq:scheduled:{queue}" if mode == "set" else f"rq:queue:{queue}")
        self._mode = mode
        self._lock: str = f"rq:scheduler-lock:{queue}"
        self._shape = shape
        self._tasks = tasks
        self._held_job: str = f"{self._beside}:"
        self._soon: float = -math.inf  # what is due before this instant, a scheduler may be moving

    def count(self) -> int | None:
        return int(self._server.call("ZCARD" if self._mode == "set" else "LLEN", self._key))

    def page(self, first: int, limit: int) -> list[StoredEntry]:
        args = [self._mode, first, first + limit - 1, JOB, *FIELDS]
        now, scheduler, *flat = self._server.run("read_rq", [self._key, self._lock], args)
        self._soon = int(now) + MARGIN if scheduler and self._mode == "set" else -math.inf
        return [_entry(known, score, fields, dependents) for known, score, dependents, fields in in_groups(flat, 4)]

    def message(self, entry: StoredEntry) -> NewMessage:
        job = msgspec.msgpack.decode(entry.job or b"\x90", type=RQJob)
        due = None if entry.score is None else due_ms(entry.score, "s")
        return message(job, entry.content.decode(errors="replace"), due, self._shape, self._tasks)

    def job(self, entry: StoredEntry) -> bytes | None:
        return entry.content

    def move(self, entries: Sequence[StoredEntry]) -> list[TakenEntry]:
        args = [new_take(self.destination), self._mode, MARGIN, JOB, self._held_job, len(FIELDS), *FIELDS]
        ids = [each.content for each in entries]
        taken = self._server.run("take_rq", [self._key, self._beside, self._lock], [*args, *ids])
        return [
            TakenEntry(name.decode(), _entry(ids[place], score, fields)) for place, name, score, fields in in_groups(taken, 4)
        ]

    def move_back(self, names: Sequence[str]) -> None:
        self._server.run("back_rq", [self._key, self._beside], [self._mode, JOB, self._held_job, *reversed(names)])

    def _choose(self, page: Iterable[StoredEntry]) -> tuple[list[StoredEntry], list[RefusedEntry]]:
        return super()._choose([each for each in page if each.score is None or each.score * 1000 >= self._soon])

    def stored(self, fields: dict[str, bytes]) -> StoredEntry:
        known, score = fields["entry"], fields.get("score")
        values = self._server.call("HMGET", self._held_job.encode() + fields.get("from", known), *FIELDS)
        return _entry(known, score, values)

    def forget(self, names: Sequence[str]) -> None:
        self._server.run("finish_rq", [self._beside], [self._held_job, *names])


def _entry(known: bytes, score: bytes | None, fields: Sequence[bytes | None], dependents: int = 0) -> StoredEntry:
    return StoredEntry(known, float(score) if score else None, msgspec.msgpack.encode([*fields, dependents]))


def rq(server: SourceServer, queue: str, shape: Shape, tasks: TaskShape, *, queued: bool) -> Several:
    """The scheduled jobs of a queue; `queued`: and those that wait for a worker."""
    sources: list[AdoptSource] = [
        _Jobs(server, queue, mode, shape, tasks) for mode in (("set", "list") if queued else ("set",))
    ]
    return Several("rq", f"{queue} of RQ at {server.shown}", sources)
