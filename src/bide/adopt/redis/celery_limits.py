"""Which tasks of Celery can be taken while its workers live: those that workers still know as revoked when they are due.

A worker has tasks with an ETA in its memory, and runs them whatever Redis says. Only a revoked task it drops; and it remembers
50,000 of these, for three hours. A task that is due at once may be in its pool already, where nothing stops it.
"""

from collections.abc import Collection

import msgspec

from bide.adopt.redis.celery_task import Task
from bide.adopt.redis.celery_workers import Workers
from bide.adopt.source import Unreadable
from bide.core.formats import plural
from bide.errors import ConfigError

SPARE = 0.98  # of what workers remember: other programs revoke tasks, too
HOURS = 3_600_000


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about workers. Times are milliseconds."""

    stopped: bool = False  # all are stopped, so that what they had is free
    workers: int | None = None  # so many are alive, and all answer
    immediate: bool = False  # tasks without an ETA are moved, too
    margin: int = 60_000  # what is due sooner is left to the workers
    most: int = 50_000  # revoked tasks that a worker remembers
    longest: int = 3 * HOURS  # for so long
    look_only: bool = False  # a dry run: workers are asked, and told nothing


class Limits:
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

    def check(self, task: Task, *, delivered: bool) -> bool:
        """Whether the task can be taken: False if a worker will run it soon. `delivered`: a worker has or had it.

        Raises Unreadable if it stays where it is until somebody does something about it.
        """
        rules, alive = self.rules, self.alive or 0
        if task.eta is None and not rules.immediate:
            if alive:
                return False
            raise Unreadable("has no ETA: with --immediate it is moved, too")
        if task.id in self._revoked:
            if not rules.look_only:
                self.workers.note_as_revoked(task.id)
            raise Unreadable("was revoked: workers drop it when it is due")
        if task.id in (self._once or ()):
            raise Unreadable("was revoked, as a worker said that has been stopped since: it is not moved")
        if not delivered or rules.stopped:
            return True
        now = self.workers.now_here()
        if task.eta is None or task.eta < now + rules.margin:
            if alive:
                return False
            raise Unreadable("is due, and a worker has or had it: give --workers-stopped when all are stopped")
        if alive and task.eta > now + rules.longest - rules.margin:
            raise Unreadable(
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
