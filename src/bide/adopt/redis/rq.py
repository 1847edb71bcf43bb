"""Jobs of RQ: those of a queue that are scheduled, and those that wait for a worker."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from bide.adopt.arguments import TaskShape
from bide.adopt.redis import rq_job
from bide.adopt.redis.rq_job import FIELDS, Job
from bide.adopt.redis.server import Server
from bide.adopt.redis.taking import Entry, Taken, Waiting, in_groups
from bide.adopt.several import Several
from bide.adopt.shaping import Shape, due_ms
from bide.adopt.source import Refused, Source, new_take
from bide.engines.base import NewMessage

JOB = "rq:job:"
MARGIN = 60_000  # ms: RQ's scheduler reads what is due in one step and removes it in another, up to some seconds later


class _Jobs(Waiting):
    """`mode`: set for the registry of scheduled jobs, list for the queue."""

    kind: str = "rq"

    def __init__(self, server: Server, queue: str, mode: str, shape: Shape, tasks: TaskShape) -> None:
        super().__init__(server, f"rq:scheduled:{queue}" if mode == "set" else f"rq:queue:{queue}")
        self._mode = mode
        self._lock: str = f"rq:scheduler-lock:{queue}"
        self._shape = shape
        self._tasks = tasks
        self._held_job: str = f"{self._beside}:"
        self._soon: float = -math.inf  # what is due before this instant, a scheduler may be moving

    def count(self) -> int | None:
        return int(self._server.call("ZCARD" if self._mode == "set" else "LLEN", self._key))

    def page(self, first: int, limit: int) -> list[Entry]:
        args = [self._mode, first, first + limit - 1, JOB, *FIELDS]
        now, scheduler, *flat = self._server.run("read_rq", [self._key, self._lock], args)
        self._soon = int(now) + MARGIN if scheduler and self._mode == "set" else -math.inf
        return [_entry(known, score, fields, dependents) for known, score, dependents, fields in in_groups(flat, 4)]

    def message(self, entry: Entry) -> NewMessage:
        job = msgspec.msgpack.decode(entry.job or b"\x90", type=Job)
        due = None if entry.score is None else due_ms(entry.score, "s")
        return rq_job.message(job, entry.content.decode(errors="replace"), due, self._shape, self._tasks)

    def job(self, entry: Entry) -> bytes | None:
        return entry.content

    def move(self, entries: Sequence[Entry]) -> list[Taken]:
        args = [new_take(self.destination), self._mode, MARGIN, JOB, self._held_job, len(FIELDS), *FIELDS]
        ids = [each.content for each in entries]
        taken = self._server.run("take_rq", [self._key, self._beside, self._lock], [*args, *ids])
        return [Taken(name.decode(), _entry(ids[place], score, fields)) for place, name, score, fields in in_groups(taken, 4)]

    def move_back(self, names: Sequence[str]) -> None:
        self._server.run("back_rq", [self._key, self._beside], [self._mode, JOB, self._held_job, *reversed(names)])

    def _choose(self, page: Iterable[Entry]) -> tuple[list[Entry], list[Refused]]:
        return super()._choose([each for each in page if each.score is None or each.score * 1000 >= self._soon])

    def stored(self, fields: dict[str, bytes]) -> Entry:
        known, score = fields["entry"], fields.get("score")
        values = self._server.call("HMGET", self._held_job.encode() + fields.get("from", known), *FIELDS)
        return _entry(known, score, values)

    def forget(self, names: Sequence[str]) -> None:
        self._server.run("finish_rq", [self._beside], [self._held_job, *names])


def _entry(known: bytes, score: bytes | None, fields: Sequence[bytes | None], dependents: int = 0) -> Entry:
    return Entry(known, float(score) if score else None, msgspec.msgpack.encode([*fields, dependents]))


def rq(server: Server, queue: str, shape: Shape, tasks: TaskShape, *, queued: bool) -> Several:
    """The scheduled jobs of a queue; `queued`: and those that wait for a worker."""
    sources: list[Source] = [_Jobs(server, queue, mode, shape, tasks) for mode in (("set", "list") if queued else ("set",))]
    return Several("rq", f"{queue} of RQ at {server.shown}", sources)
