"""Tasks of Celery on Redis, wherever they wait: which are taken, and how workers hear that they lost them."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from bide.adopt.arguments import TaskShape
from bide.adopt.redis import celery_task
from bide.adopt.redis.celery_limits import Limits
from bide.adopt.redis.celery_task import Task
from bide.adopt.redis.server import Server
from bide.adopt.redis.taking import Entry, Taken, Waiting, in_groups
from bide.adopt.shaping import Shape
from bide.adopt.source import Entries, Found, Held, Refused, Unreadable, new_take
from bide.engines.base import NewMessage
from bide.errors import Unavailable

FULL = "is one more than the workers can remember as revoked: stop them, and run the command again with --workers-stopped"


class TaskEntry(Entry):
    """For people, it is the task and its id."""

    __slots__ = ()

    def __str__(self) -> str:
        return celery_task.shown(self.job or self.content) or super().__str__()


class Tasks(Waiting):
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
        if self._limits.alive is None:
            self._limits.look()
        self._read_tasks.clear()
        found, refused = list[Found](), list[Refused]()
        for entry in self.page(0, limit):
            if entry.gone:
                continue
            try:
                task = self._known(entry)
                if not self.is_ours(task):
                    continue
                self.check(entry)
                if self._limits.check(task, delivered=self.delivered(task)):
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
            self._limits.told |= set(ids)
            late = self._some_due(asked.values())
            if not late:
                self._heard(list(asked))
        return super().held()._replace(unsure=late)

    def stored(self, fields: dict[str, bytes]) -> Entry:
        return TaskEntry(*super().stored(fields))

    def take(self, limit: int) -> Entries:
        refused: list[Refused] = []
        while True:
            if self._limits.alive is None:
                self._limits.look()
            taken = super().take(limit)
            refused += taken.refused
            if self._limits.alive is not None:
                return taken._replace(refused=refused)

    def move(self, entries: Sequence[Entry]) -> list[Taken]:
        workers, alive = self._limits.workers, self._limits.alive or 0
        workers.bind()
        asked = workers.question()
        begin, end = workers.body("revoke", '{"task_id": [\n]}', asked).split("\n")
        ping = msgspec.json.encode(workers.body("ping", "{}", asked._replace(ticket=""))).decode()
        args: list[Any] = [new_take(self.destination), self.mode, alive, workers.channel, f"{asked.before}{ping}{asked.after}"]
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
            self._limits.revoked([self._known(each.entry).id for each in told])
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

    def check(self, entry: Entry) -> None:
        """Raises Unreadable for what can't be taken, whatever the options say."""

    def delivered(self, task: Task) -> bool:
        """Whether a worker has the task in its memory, or may have it."""
        return task.redelivered

    def _choose(self, page: Iterable[Entry]) -> tuple[list[Entry], list[Refused]]:
        self._read_tasks.clear()
        fit, refused, room = list[Entry](), list[Refused](), self._limits.room()
        for entry in page:
            if entry.gone:
                continue
            if entry.content in self._left:
                refused += self._left.met(entry.content, str(entry))
                continue
            try:
                task = self._known(entry)
                delivered = self.delivered(task)
                if task.id in self._limits.given_back or not self.is_ours(task):
                    continue
                self.check(entry)
                if not self._limits.check(task, delivered=delivered):
                    continue
                if self._limits.alive and delivered:
                    room -= 1
                    if room < 0:
                        raise Unreadable(FULL)
            except Unreadable as error:
                refused += self._left.refuse(entry.content, str(entry), str(error))
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

    def again(self, name: str, content: bytes, tag: str) -> bytes:
        """The envelope for workers: as it was, or with a new id and this tag if they were told to drop the old ones."""
        known, again = celery_task.anew(content, tag) if name in self._told else (celery_task.element(content).id, content)
        self._limits.given_back.add(known)
        return again
