"""Tasks of Celery on Redis, wherever they wait: which can be taken, and how workers hear that they lost them.

A worker has tasks with an ETA in its memory, and runs them whatever Redis says. Only a revoked task it drops; and it remembers
50,000 of these, for three hours. A task that is due at once may be in its pool already, where nothing stops it.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from bide.adopt.redis import celery_task
from bide.adopt.redis.celery_task import CeleryTask
from bide.adopt.redis.celery_workers import Workers
from bide.adopt.redis.server import SourceServer
from bide.adopt.redis.take import StoredEntry, TakenEntry, WaitingEntries, in_groups
from bide.adopt.shape import Shape, TaskShape
from bide.adopt.source import EarlierRun, Entries, FoundEntry, RefusedEntry, UnreadableEntry, new_take
from bide.core.formats import plural
from bide.engines.base import NewMessage
from bide.errors import ConfigError, Unavailable

SPARE = 0.98  # of what workers remember: other programs revoke tasks, too
HOURS = 3_600_000
FULL = "is one more than the workers can remember as revoked: stop them, and run the command again with --workers-stopped"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about workers. Times are milliseconds."""

    stopped: bool = False  # all are stopped, so that what they had is free
    workers: int | None = None  # so many are alive, and all answer
    immediate: bool = False  # tasks without an ETA are moved, too
    margin: int = 60_000  # what is due sooner is left to the workers
    most: int = 50_000  # revoked tasks that a worker remembers
    longest: int = 3 * HOURS  # for so long
    look_only: bool = False  # a dry run: workers are asked, and told nothing


class CeleryLimits:
    """What may be taken now, as the workers were when they were last looked at."""

    def __init__(self, workers: Workers, rules: Rules) -> None:
        self.workers: Workers = workers
        self.rules: Rules = rules
        self.alive: int | None = None
        self.given_back: set[str] = set()  # ids of tasks that this run does not take again, wherever it meets them
        self._room = 0
        self.told: set[str] = set()  # ids that this run has revoked
        self._revoked: frozenset[str] = frozenset()  # ids that others have, as workers say that are alive
        self._once: frozenset[str] | None = None  # the same, as workers said in earlier runs

    def look(self) -> int:
        """Look how many workers are alive. Raises ConfigError if there are others than the command line says."""
        workers, rules = self.workers, self.rules
        alive = workers.ping()
        if rules.stopped and alive:
            raise ConfigError(f"{_answer(alive)}: stop all of them (SIGTERM), or leave out --workers-stopped.")
        if rules.workers not in (None, alive):
            raise ConfigError(
                f"{_answer(alive)}, and --workers says {rules.workers}. A worker that does not answer "
                "would run tasks that were moved. Correct --workers, or look at the workers with `celery inspect ping`."
            )
        waiting = workers.waiting() if rules.workers is None else 0
        if waiting > alive:
            raise ConfigError(
                f"{_do(waiting, 'client', 'wait')} with BRPOP in this database, but {_answer(alive)}. A worker that does not "
                "(worker_enable_remote_control is off, or control_exchange has another name: see --control) "
                f"would run tasks that were moved. Stop it; or give --workers {alive} if those clients are no Celery workers."
            )
        revoked = workers.revoked() if alive else []
        self._room = int(rules.most * SPARE) - max(map(len, revoked), default=0) if alive else 0
        self._revoked = frozenset[str]().union(*revoked) - self.told
        if self._once is None:
            self._once = workers.noted_as_revoked()
        self.alive = alive
        return alive

    def check(self, task: CeleryTask, *, delivered: bool) -> bool:
        """Whether the task can be taken: False if a worker will run it soon. `delivered`: a worker has or had it.

        Raises Unreadable if it stays where it is until somebody does something about it.
        """
        rules, alive = self.rules, self.alive or 0
        if task.eta is None and not rules.immediate:
            if alive:
                return False
            raise UnreadableEntry("has no ETA: with --immediate it is moved, too")
        if task.id in self._revoked:
            if not rules.look_only:
                self.workers.note_as_revoked(task.id)
            raise UnreadableEntry("was revoked: workers drop it when it is due")
        if task.id in (self._once or ()):
            raise UnreadableEntry("was revoked, as a worker said that has been stopped since: it is not moved")
        if not delivered or rules.stopped:
            return True
        now = self.workers.now_here()
        if task.eta is None or task.eta < now + rules.margin:
            if alive:
                return False
            raise UnreadableEntry("is due, and a worker has or had it: give --workers-stopped when all are stopped")
        if alive and task.eta > now + rules.longest - rules.margin:
            raise UnreadableEntry(
                f"is due in more than {(rules.longest - rules.margin) / HOURS:.1f} hours, for which workers do not remember "
                "that it was revoked: stop the workers, and run the command again with --workers-stopped"
            )
        return True

    def room(self) -> int:
        """How many more tasks the workers can remember as revoked."""
        return max(0, self._room)

    def revoked(self, ids: Collection[str]) -> None:
        """This run has revoked them."""
        self.told |= set(ids)
        self._room -= len(ids)


def _answer(alive: int) -> str:
    return _do(alive, "Celery worker", "answer")


def _do(count: int, noun: str, verb: str) -> str:
    return f"{plural(count, noun)} {verb}{'s' if count == 1 else ''}"


class TaskEntry(StoredEntry):
    """For people, it is the task and its id."""

    __slots__ = ()

    def __str__(self) -> str:
        return celery_task.shown(self.job or self.content) or super().__str__()


class CeleryTasks(WaitingEntries):
    """What the lists and the hash have in common."""

    kind: str = "celery"
    mode: str

    def __init__(self, server: SourceServer, key: str, shape: Shape, tasks: TaskShape, limits: CeleryLimits) -> None:
        super().__init__(server, key)
        self._shape = shape
        self._tasks = tasks
        self._limits = limits
        self._read_tasks: dict[bytes, CeleryTask] = {}  # of the page that is looked at
        self._told: set[str] = set()  # names of those that workers were told to drop

    @abstractmethod
    def task(self, entry: StoredEntry) -> CeleryTask:
        """Read the envelope of an entry. Raises Unreadable."""

    @abstractmethod
    def keys(self) -> list[str]:
        """The first two keys of the script that takes."""

    def message(self, entry: StoredEntry) -> NewMessage:
        return celery_task.message(self._known(entry), self._shape, self._tasks)

    def peek(self, limit: int) -> Entries:
        if self._limits.alive is None:
            self._limits.look()
        self._read_tasks.clear()
        found, refused = list[FoundEntry](), list[RefusedEntry]()
        for entry in self.page(0, limit):
            if entry.gone:
                continue
            try:
                task = self._known(entry)
                if not self.is_ours(task):
                    continue
                self.check(entry)
                if self._limits.check(task, delivered=self.delivered(task)):
                    found.append(FoundEntry(task.id, self.message(entry)))
            except UnreadableEntry as error:
                refused.append(RefusedEntry(str(entry), str(error)))
        return Entries(found, refused)

    def held(self) -> EarlierRun:
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

    def stored(self, fields: dict[str, bytes]) -> StoredEntry:
        return TaskEntry(*super().stored(fields))

    def take(self, limit: int) -> Entries:
        refused: list[RefusedEntry] = []
        while True:
            if self._limits.alive is None:
                self._limits.look()
            taken = super().take(limit)
            refused += taken.refused
            if self._limits.alive is not None:
                return taken._replace(refused=refused)

    def move(self, entries: Sequence[StoredEntry]) -> list[TakenEntry]:
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
        taken = [TakenEntry(name.decode(), entries[place]) for place, name in in_groups(flat, 2)]
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

    def is_ours(self, task: CeleryTask) -> bool:
        """Whether the task is of a queue that is adopted."""
        return True

    def check(self, entry: StoredEntry) -> None:
        """Raises Unreadable for what can't be taken, whatever the options say."""

    def delivered(self, task: CeleryTask) -> bool:
        """Whether a worker has the task in its memory, or may have it."""
        return task.redelivered

    def _choose(self, page: Iterable[StoredEntry]) -> tuple[list[StoredEntry], list[RefusedEntry]]:
        self._read_tasks.clear()
        fit, refused, room = list[StoredEntry](), list[RefusedEntry](), self._limits.room()
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
                        raise UnreadableEntry(FULL)
            except UnreadableEntry as error:
                refused += self._left.refuse(entry.content, str(entry), str(error))
                continue
            fit.append(entry)
        wanted, more = super()._choose(fit)
        return wanted, [*refused, *more]

    def _known(self, entry: StoredEntry) -> CeleryTask:
        task = self._read_tasks.get(entry.content)
        if task is None:
            task = self._read_tasks[entry.content] = self.task(entry)
        return task

    def _asked(self) -> dict[str, StoredEntry]:
        """What was taken by a run that did not hear all workers."""
        _, flat = self._server.run("held", [self._beside], [])
        fields = dict(zip((each.decode() for each in flat[::2]), flat[1::2], strict=True))
        self._told |= {field.removesuffix(":asked") for field in fields if field.endswith(":asked")}
        open_ones = [name for name in self._told if fields.get(f"{name}:asked") == b"1"]
        return {name: StoredEntry(fields[f"{name}:entry"], None, fields.get(f"{name}:job")) for name in open_ones}

    def _heard(self, names: Sequence[str]) -> None:
        self._told |= set(names)
        values = [text for name in names for text in (f"{name}:asked", "0")]
        self._server.call("HSET", self._beside, *values)

    def _some_due(self, entries: Iterable[StoredEntry]) -> bool:
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
