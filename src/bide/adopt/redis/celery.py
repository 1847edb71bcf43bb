"""Tasks of Celery on Redis: those in the lists of a queue, and those with an ETA that workers have in their memory."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from bide.adopt.arguments import TaskShape
from bide.adopt.redis import celery_task
from bide.adopt.redis.celery_limits import Limits, Rules
from bide.adopt.redis.celery_task import Task
from bide.adopt.redis.celery_workers import SEPARATOR, Workers
from bide.adopt.redis.server import Server
from bide.adopt.redis.taking import Entry, Taken, Waiting, in_groups, new_take
from bide.adopt.several import Several
from bide.adopt.shaping import Shape
from bide.adopt.source import Entries, Found, Held, Refused, Unreadable
from bide.engines.base import NewMessage
from bide.errors import Unavailable

PRIORITIES = range(1, 10)
FULL = "is one more than the workers can remember as revoked: stop the workers, and run the command again"


class _Tasks(Waiting):
    """What the lists and the hash have in common."""

    kind: str = "celery"
    mode: str

    def __init__(self, server: Server, key: str, shape: Shape, tasks: TaskShape, limits: Limits) -> None:
        super().__init__(server, key)
        self._shape = shape
        self._tasks = tasks
        self._limits = limits
        self._read_tasks: dict[bytes, Task] = {}  # of the page that is looked at
        self._told: set[str] = set()  # names of those that workers were told to drop

    @abstractmethod
    def task(self, entry: Entry) -> Task:
        """Read the envelope of an entry. Raises Unreadable."""

    @abstractmethod
    def keys(self) -> list[str]:
        """The first two keys of the script that takes."""

    def message(self, entry: Entry) -> NewMessage:
        return celery_task.message(self._known(entry), self._shape, self._tasks)

    def peek(self, limit: int) -> Entries:
        self._read_tasks.clear()
        found, refused = list[Found](), list[Refused]()
        for entry in self.page(0, limit):
            try:
                task = self._known(entry)
                if self.is_ours(task) and (task.eta is not None or self._limits.rules.immediate):
                    found.append(Found(task.id, self.message(entry)))
            except Unreadable as error:
                refused.append(Refused(str(entry), str(error)))
        return Entries(found, refused)

    def held(self) -> Held:
        """What was taken and not finished. Workers that may not have heard that they lost it are told again."""
        asked = {} if self._limits.rules.look_only else self._asked()
        late = False
        if asked:
            ids = [self._known(entry).id for entry in asked.values()]
            self._limits.workers.ask("revoke", f'{{"task_id": {msgspec.json.encode(ids).decode()}}}', self._patience())
            late = self._some_due(asked.values())
            if not late:
                self._heard(list(asked))
        return super().held()._replace(unsure=late)

    def take(self, limit: int) -> Entries:
        while True:
            if self._limits.alive is None:
                self._limits.look()
            taken = super().take(limit)
            if self._limits.alive is not None:
                return taken

    def move(self, entries: Sequence[Entry]) -> list[Taken]:
        workers, alive = self._limits.workers, self._limits.alive or 0
        workers.bind()
        asked = workers.question()
        begin, end = workers.body("revoke", '{"task_id": [\n]}', asked).split("\n")
        ping = msgspec.json.encode(workers.body("ping", "{}", asked._replace(ticket=""))).decode()
        args: list[Any] = [new_take(), self.mode, alive, workers.channel, f"{asked.before}{ping}{asked.after}"]
        args += [asked.before, asked.after, begin, end, self._limits.rules.margin]
        for entry in entries:
            task = self._known(entry)
            args += [entry.content, "" if task.eta is None else task.eta, task.id if self.delivered(task) else ""]
        heard, *flat = self._server.run("take_celery", [*self.keys(), self._beside], args)
        if heard == -1:  # a worker has come or gone, which may change what can be taken
            self._limits.alive = None
            return []
        taken = [Taken(name.decode(), entries[place]) for place, name in in_groups(flat, 2)]
        told = [each for each in taken if heard and self.delivered(self._known(each.entry))]
        if told:
            self._limits.revoked(len(told))
            workers.answers(asked.ticket, heard, self._patience(), held=True)
            if self._some_due(each.entry for each in told):
                raise Unavailable("The Celery workers answered too late. What was taken is held: run the command again.")
            self._heard([each.name for each in told])
        return taken

    def close(self) -> None:
        self._limits.workers.close()
        super().close()

    def is_ours(self, task: Task) -> bool:
        """Whether the task is of a queue that is adopted."""
        return True

    def delivered(self, task: Task) -> bool:
        """Whether a worker has the task in its memory, or may have it."""
        return task.redelivered

    def _choose(self, page: Iterable[Entry]) -> tuple[list[Entry], list[Refused]]:
        self._read_tasks.clear()
        fit, refused, room = list[Entry](), list[Refused](), self._limits.room()
        for entry in page:
            if entry.content in self._refused:
                continue
            try:
                task = self._known(entry)
                delivered = self.delivered(task)
                if task.id in self._limits.given_back or not self.is_ours(task):
                    continue
                if not self._limits.check(task, delivered=delivered):
                    continue
                if self._limits.alive and delivered:
                    room -= 1
                    if room < 0:
                        raise Unreadable(FULL)
            except Unreadable as error:
                self._refused.add(entry.content)
                refused.append(Refused(str(entry), str(error)))
                continue
            fit.append(entry)
        wanted, more = super()._choose(fit)
        return wanted, [*refused, *more]

    def _known(self, entry: Entry) -> Task:
        task = self._read_tasks.get(entry.content)
        if task is None:
            task = self._read_tasks[entry.content] = self.task(entry)
        return task

    def _asked(self) -> dict[str, Entry]:
        """What was taken by a run that did not hear all workers."""
        _, flat = self._server.run("held", [self._beside], [])
        fields = dict(zip((each.decode() for each in flat[::2]), flat[1::2], strict=True))
        self._told |= {field.removesuffix(":asked") for field in fields if field.endswith(":asked")}
        open_ones = [name for name in self._told if fields.get(f"{name}:asked") == b"1"]
        return {name: Entry(fields[f"{name}:entry"], None, fields.get(f"{name}:job")) for name in open_ones}

    def _heard(self, names: Sequence[str]) -> None:
        self._told |= set(names)
        values = [text for name in names for text in (f"{name}:asked", "0")]
        self._server.call("HSET", self._beside, *values)

    def _some_due(self, entries: Iterable[Entry]) -> bool:
        """Whether a worker may have begun one of them before it heard."""
        now = self._limits.workers.now()
        return any((self._known(each).eta or 0) <= now for each in entries)

    def _patience(self) -> float:
        return max(1.0, self._limits.rules.margin / 2000)

    def _again(self, name: str, content: bytes, tag: str) -> bytes:
        """The envelope for workers: with a new tag, and a new id if they were told to drop the old one."""
        envelope: dict[str, Any] = msgspec.json.decode(content)
        envelope["properties"]["delivery_tag"] = tag
        if name in self._told:
            old, new = envelope["headers"]["id"], str(uuid4())
            envelope["headers"]["id"] = envelope["properties"]["correlation_id"] = new
            if envelope["headers"].get("root_id") == old:
                envelope["headers"]["root_id"] = new
        self._limits.given_back.add(envelope["headers"]["id"])
        return msgspec.json.encode(envelope)


class _List(_Tasks):
    """The list of a queue, or of one of its priorities: the oldest task is its last element."""

    mode: str = "list"

    def count(self) -> int | None:
        return int(self._server.call("LLEN", self._key))

    def page(self, first: int, limit: int) -> list[Entry]:
        found = self._server.call("LRANGE", self._key, -first - limit, -first - 1)
        return [Entry(each) for each in reversed(found)]

    def task(self, entry: Entry) -> Task:
        return celery_task.element(entry.content)

    def keys(self) -> list[str]:
        return [self._key, self._key]

    def move_back(self, names: Sequence[str]) -> None:
        contents = {name: self._names[name].content for name in names if name in self._names}
        args = [text for name, each in contents.items() for text in (name, self._again(name, each, str(uuid4())))]
        self._server.run("back_celery", [self._key, self._beside], args)


class _Unacked(_Tasks):
    """The hash of what workers have, by tag: with an ETA it is in a worker's memory; without one, a worker works on it."""

    mode: str = "hash"

    def __init__(
        self,
        server: Server,
        prefix: str,
        shape: Shape,
        tasks: TaskShape,
        limits: Limits,
        queues: frozenset[str],
    ) -> None:
        super().__init__(server, f"{prefix}unacked", shape, tasks, limits)
        self._prefix = prefix
        self._index: str = f"{self._key}_index"
        self._queues = queues
        self._queue_of: dict[tuple[str, str], str | None] = {}

    def count(self) -> int | None:
        return int(self._server.call("HLEN", self._key))

    def page(self, first: int, limit: int) -> list[Entry]:
        flat = self._server.run("read_unacked", [self._index, self._key], [first, first + limit - 1])
        return [Entry(tag, float(score), envelope) for tag, score, envelope in in_groups(flat, 3)]

    def task(self, entry: Entry) -> Task:
        if not entry.job:
            raise Unreadable("was acknowledged meanwhile")
        return celery_task.unacked(entry.job)

    def is_ours(self, task: Task) -> bool:
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

    def delivered(self, task: Task) -> bool:
        return True

    def move_back(self, names: Sequence[str]) -> None:
        args: list[Any] = []
        for name in names:
            if name in self._names and (stored := self._names[name].job):
                envelope, exchange, routing_key = msgspec.json.decode(stored, type=tuple[msgspec.Raw, Any, Any])
                tag = str(uuid4())
                again = msgspec.Raw(self._again(name, bytes(envelope), tag))
                args += [name, tag, msgspec.json.encode([again, exchange, routing_key])]
        self._server.run("back_unacked", [self._key, self._index, self._beside], args)


def celery(
    server: Server,
    queues: Sequence[str],
    shape: Shape,
    tasks: TaskShape,
    rules: Rules,
    *,
    control: str = "celery",
    prefix: str = "",
) -> Several:
    """All tasks of these queues. `control`: Celery's control_exchange. `prefix`: its transport option global_keyprefix."""
    limits = Limits(Workers(server, control=control, prefix=prefix), rules)
    names = [prefix + queue + end for queue in queues for end in ("", *(f"{SEPARATOR}{each}" for each in PRIORITIES))]
    lists = [_List(server, name, shape, tasks, limits) for name in names]
    workers = _Unacked(server, prefix, shape, tasks, limits, frozenset(queues))
    return Several("celery", f"{', '.join(queues)} of Celery at {server.shown}", [workers, *lists])
