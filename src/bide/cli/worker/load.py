"""Finds what `bide worker` is to run: a queue, or a Worker that was made in code, in a module of the user's."""

import importlib
import os
import sys
import traceback
from typing import Any

import typer

from bide.cli.exits import Exit
from bide.cli.output import note
from bide.cli.worker.options import WorkerOptions
from bide.errors import ConfigError
from bide.queue import AsyncQueue, Queue
from bide.worker import Worker
from bide.worker.claim_log import ClaimLog
from bide.worker.slots import Slots

_LEADING = {__file__, importlib.__file__, "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"}


def load_target(options: WorkerOptions) -> AsyncQueue | Queue | Worker:
    """Import MODULE:NAME and the modules of --import, from the current folder too."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module, mark, name = options.queue_path.partition(":")
    if not mark or not module or not name:
        raise ConfigError(f"{options.queue_path!a} is not MODULE:QUEUE, as in shop.tasks:queue.")
    if module.endswith(".py") or os.sep in module:
        name_of_it = os.path.splitext(os.path.basename(module))[0]
        raise ConfigError(
            f"{module} is a file. Name the module that is in it: `bide worker {name_of_it}:{name}`, run in the file's folder."
        )
    found: Any = _import(module)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            there = sorted(
                key for key, value in vars(sys.modules[module]).items() if isinstance(value, AsyncQueue | Queue | Worker)
            )
            hint = f" It has: {', '.join(there)}." if there else " It has no queue at all."
            raise ConfigError(f"The module {module} has nothing called {name}.{hint}") from None
    if not isinstance(found, AsyncQueue | Queue | Worker):
        raise ConfigError(f"{options.queue_path} is a {type(found).__name__}. Name a Queue, an AsyncQueue or a Worker.")
    for each in options.imports:
        _import(each)
    return found


def make_worker(options: WorkerOptions, found: AsyncQueue | Queue | Worker) -> Worker:
    """The worker: as it was made in code, with what the command line says instead."""
    made = found if isinstance(found, Worker) else Worker(found)
    return made.changed(
        topics=options.topics or None,
        concurrency=options.concurrency,
        threads=options.threads,
        slots=options.slots_of_topics or None,
        lease=options.lease,
        grace=options.grace,
        claim_log=None if options.claim_log is None else ClaimLog(options.claim_log),
    )


def check_slots(made: Worker) -> None:
    """Raises BadOption when --slots don't fit the tasks, before anything is begun."""
    served, plan = made.tasks(), made.plan
    in_threads = [topic for topic, task in served.items() if not task.is_async]
    Slots(served, in_threads, concurrency=plan.concurrency, threads=plan.threads, slots=plan.slots)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name == missing or name.startswith(missing + ".")):
            raise ConfigError(f"There is no module {name} here ({os.getcwd()}) or among what is installed.") from None
        for line in _theirs(error):
            note(line)
        raise typer.Exit(Exit.FAILED) from None


def _theirs(error: Exception) -> list[str]:
    """The traceback of an error in a module, without the frames that led there."""
    trace = error.__traceback__
    while trace is not None and (trace.tb_frame.f_code.co_filename in _LEADING):
        trace = trace.tb_next
    written = traceback.format_exception(type(error), error, trace)
    return [line for part in written for line in part.rstrip("\n").split("\n")]
