"""Where tasks of Celery wait on Redis: the lists of a queue, and the hash of those that workers have."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import msgspec

from bide.adopt.adoption import Several
from bide.adopt.redis import celery_task
from bide.adopt.redis.celery_task import CeleryTask
from bide.adopt.redis.celery_tasks import CeleryLimits, CeleryTasks, Rules, TaskEntry
from bide.adopt.redis.celery_workers import SEPARATOR, Workers
from bide.adopt.redis.server import SourceServer
from bide.adopt.redis.take import StoredEntry, in_groups
from bide.adopt.shape import Shape, TaskShape
from bide.adopt.source import UnreadableEntry

PRIORITIES = range(1, 10)


class _List(CeleryTasks):
    """The list of a queue, or of one of its priorities: the oldest task is its last element."""

    mode: str = "list"

    def count(self) -> int | None:
        return int(self._server.call("LLEN", self._key))

    def page(self, first: int, limit: int) -> list[StoredEntry]:
        found = self._server.call("LRANGE", self._key, -first - limit, -first - 1)
        return [TaskEntry(each) for each in reversed(found)]

    def task(self, entry: StoredEntry) -> CeleryTask:
        return celery_task.element(entry.content)

    def keys(self) -> list[str]:
        return [self._key, self._key]

    def move_back(self, names: Sequence[str]) -> None:
        contents = {name: self._names[name].content for name in reversed(names) if name in self._names}
        args = [text for name, each in contents.items() for text in (name, self.again(name, each, str(uuid4())))]
        self._server.run("back_celery", [self._key, self._beside], args)


class _Lost(TaskEntry):
    """A task in the hash that the index does not have. For people, its tag is told, too."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{super().__str__()} with the tag {self.content.decode(errors='backslashreplace')[:100]}"


class _Unacked(CeleryTasks):
    """The hash of what workers have, by tag: with an ETA it is in a worker's memory; without one, a worker works on it."""

    mode: str = "hash"

    def __init__(
        self,
        server: SourceServer,
        prefix: str,
        shape: Shape,
        tasks: TaskShape,
        limits: CeleryLimits,
        queues: frozenset[str],
    ) -> None:
        super().__init__(server, f"{prefix}unacked", shape, tasks, limits)
        self._prefix = prefix
        self._index: str = f"{self._key}_index"
        self._queues = queues
        self._lost: list[StoredEntry] | None = None  # not looked for yet
        self._queue_of: dict[tuple[str, str], str | None] = {}

    def count(self) -> int | None:
        return int(self._server.call("HLEN", self._key))

    def page(self, first: int, limit: int) -> list[StoredEntry]:
        size, *flat = self._server.run("read_unacked", [self._index, self._key], [first, first + limit - 1])
        found: list[StoredEntry] = [TaskEntry(tag, float(score), envelope) for tag, score, envelope in in_groups(flat, 3)]
        if len(found) == limit:
            return found
        if self._lost is None:
            self._lost = self._read_lost()
        behind = max(0, first - size)
        return found + self._lost[behind : behind + limit - len(found)]

    def _read_lost(self) -> list[StoredEntry]:
        """Tasks that are not in the index. The first pass of a run looks for them: the whole hash is read."""
        cursor, lost = b"0", dict[bytes, bytes]()  # HSCAN may tell one twice
        while True:
            cursor, *flat = self._server.run("read_lost", [self._index, self._key], [cursor])
            lost |= dict(zip(flat[::2], flat[1::2], strict=True))
            if cursor == b"0":
                return [_Lost(tag, None, envelope) for tag, envelope in lost.items()]

    def check(self, entry: StoredEntry) -> None:
        if isinstance(entry, _Lost):
            raise UnreadableEntry(
                f"is not in {self._index}, so Celery does not deliver it again: if the workers' logs do not have it as done, "
                f"add its tag, as in ZADD {self._index} 0 TAG"
            )

    def task(self, entry: StoredEntry) -> CeleryTask:
        if not entry.job:  # both are read in one step, so nobody took it meanwhile
            raise UnreadableEntry(f"has no task in {self._key}: remove it from {self._index}")
        return celery_task.unacked(entry.job)

    def is_ours(self, task: CeleryTask) -> bool:
        return self._queue(task.exchange, task.routing_key) in self._queues

    def _queue(self, exchange: str, routing_key: str) -> str | None:
        """The queue that an exchange passes this routing key to, as kombu stores it; None if it does not say."""
        if not exchange:
            return routing_key
        asked = (exchange, routing_key)
        if asked not in self._queue_of:
            found = self._server.call("SMEMBERS", f"{self._prefix}_kombu.binding.{exchange}")
            bound = [each.decode().split(SEPARATOR) for each in found]
            self._queue_of[asked] = next((queue for key, _, queue in bound if key == routing_key), None)
        return self._queue_of[asked]

    def keys(self) -> list[str]:
        return [self._key, self._index]

    def delivered(self, task: CeleryTask) -> bool:
        return True

    def move_back(self, names: Sequence[str]) -> None:
        args: list[Any] = []
        for name in names:
            if name in self._names and (stored := self._names[name].job):
                envelope, *route = msgspec.json.decode(stored, type=tuple[msgspec.Raw, msgspec.Raw, msgspec.Raw])
                tag = str(uuid4())
                again = msgspec.Raw(self.again(name, bytes(envelope), tag))
                args += [name, tag, msgspec.json.encode([again, *route]) if name in self._told else stored]
        self._server.run("back_unacked", [self._key, self._index, self._beside], args)


def celery(
    server: SourceServer,
    queues: Sequence[str],
    shape: Shape,
    tasks: TaskShape,
    rules: Rules,
    *,
    control: str = "celery",
    prefix: str = "",
) -> Several:
    """All tasks of these queues. `control`: Celery's control_exchange. `prefix`: its transport option global_keyprefix."""
    limits = CeleryLimits(Workers(server, control=control, prefix=prefix), rules)
    names = [prefix + queue + end for queue in queues for end in ("", *(f"{SEPARATOR}{each}" for each in PRIORITIES))]
    lists = [_List(server, name, shape, tasks, limits) for name in names]
    workers = _Unacked(server, prefix, shape, tasks, limits, frozenset(queues))
    return Several("celery", f"{', '.join(queues)} of Celery at {server.shown}", [workers, *lists])
