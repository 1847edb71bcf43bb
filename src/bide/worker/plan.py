"""What a worker was asked for, read and checked."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bide.core import options
from bide.engines.guard.able import others_can
from bide.engines.registry import Source
from bide.errors import BadOption, ConfigError, Unsupported
from bide.queue import AsyncQueue, Queue
from bide.queue.aio.planner import check
from bide.queue.run.call import Middleware
from bide.queue.tasks.definition import Definition
from bide.worker.claim_log import ClaimLog
from bide.worker.recovery import Killed


class Plan(NamedTuple):
    topics: tuple[str, ...] | None
    concurrency: int
    slots: Mapping[str, int]
    threads: int
    lease_ms: int
    grace: float
    middleware: tuple[Middleware, ...]
    claim_log: ClaimLog | None = None
    slow: float = 1.0  # seconds of a handler that are worth a line of the log
    log_messages: bool = False
    killed: tuple[Killed, ...] = ()  # to be buried here, before anything is claimed


def topics(given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str):
        raise BadOption("topics is one text. Give a list, as in topics=['order.cancel'].")
    if not isinstance(given, Iterable):
        raise BadOption(f"topics is a {type(given).__name__}. Give a list, as in topics=['order.cancel'].")
    return options.topics(tuple(given))


def slots(given: Any) -> Mapping[str, int]:
    """Whether they fit the tasks is seen when the worker begins."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise BadOption(f"slots is a {type(given).__name__}. Give the number for each topic: slots={{'order.cancel': 10}}.")
    return dict(given)


def served(queue: AsyncQueue | Queue, plan: Plan) -> dict[str, Definition]:
    """The topics to serve, each with its task, ready to be called."""
    tasks = queue.session.setup.tasks
    topics = tuple(tasks) if plan.topics is None else plan.topics
    if not topics:
        raise ConfigError("This queue has no tasks: write @queue.task() above a function, and import its module first.")
    chosen = {topic: task for topic in topics if (task := tasks.get(topic)) is not None}
    for topic in topics:
        if topic not in chosen:
            raise ConfigError(f"There is no task for {topic}. There is one for: {', '.join(sorted(tasks)) or 'nothing'}.")
    source = queue.session.setup.source
    most = source.capabilities.max_topics
    if len(chosen) > most:
        raise ConfigError(
            f"{source.shown} takes {most:,} topics in one worker, and this one has tasks for {len(chosen):,}: give each of "
            "several workers a part of them as topics=."
        )
    check(queue.session.setup)
    for task in chosen.values():
        task.arguments.prepare()
        if task.limits is not None and not source.capabilities.gates:
            raise Unsupported(
                f"{source.shown} keeps no limits: leave out concurrency=, rate= and lock= of {task.name}. {others_can('gates')}"
            )
        if task.keep is not None and not source.capabilities.results:
            raise Unsupported(f"{source.shown} keeps no results: leave out keep= of {task.name}. {others_can('results')}")
        check_overdue(task, source)
    return chosen


def check_overdue(task: Definition, source: Source) -> None:
    can, overdue = source.capabilities, task.overdue
    if overdue is None:
        return
    needed = ("inspect",) if overdue.rate is None else ("gates", "lookup")
    if not all(getattr(can, each) for each in needed):
        raise Unsupported(
            f"{source.shown} can't sort out overdue messages: leave out catch_up= of {task.name}. {others_can(*needed)}"
        )


def limited(tasks: Mapping[str, Definition], plan: Plan) -> dict[str, int]:
    """The topics that are limited over all workers as a whole, with how many of each may run here at once."""
    return {
        topic: min(plan.concurrency, task.limits.concurrency or plan.concurrency) * (task.batch.size if task.batch else 1)
        for topic, task in tasks.items()
        if task.limits is not None and task.limits.of_topic
    }


def batches(tasks: Mapping[str, Definition]) -> dict[str, int]:
    """The topics whose messages are handled in batches, with the size of these."""
    return {topic: task.batch.size for topic, task in tasks.items() if task.batch is not None}
