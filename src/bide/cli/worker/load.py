"""The queue or Worker of a user's module that `bide worker` runs, and again with `--reload` when a file changes."""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeAlias

import typer

from bide.cli.exits import Exit
from bide.cli.output import note
from bide.errors import ConfigError
from bide.queue import AsyncQueue, Queue
from bide.worker import Worker
from bide.worker.claim_log import ClaimLog
from bide.worker.recovery import taken_over
from bide.worker.signals import TOGETHER, asking
from bide.worker.slots import Slots

_NOT_SET_UP = {"AppRegistryNotReady", "ImproperlyConfigured"}  # errors of Django
_LEADING = {__file__, importlib.__file__, "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"}
EVERY = 0.5  # seconds between two looks
STOP_TIMEOUT = 3.0  # seconds that a worker has to stop
TICK = 0.02  # seconds between two looks at a worker that stops


class WorkerOptions(NamedTuple):
    queue_path: str
    imports: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    concurrency: int | None = None
    threads: int | None = None
    slots: tuple[str, ...] = ()
    lease: str | None = None
    grace: str | None = None
    processes: int | None = None
    health: str | None = None
    metrics: str | None = None
    reload: bool = False
    log_format: str = "text"
    log_level: str = "info"
    counts: str | None = None
    log_messages: bool = False
    slow: str | None = None
    claim_log: int | None = None
    lifeline: int | None = None
    killed: int | None = None

    @property
    def slots_of_topics(self) -> Mapping[str, int]:
        """What --slots says."""
        slots = {}
        for each in self.slots:
            topic, mark, number = each.rpartition("=")
            if not mark or not number.isdecimal():
                raise typer.BadParameter(f"{each!a} is not TOPIC=NUMBER, as in order.cancel=10.", param_hint="--slots")
            slots[topic] = int(number)
        return slots

    def command_line(self, **changed: Any) -> list[str]:
        """The command line with these options, but for those that are changed."""
        options = self._replace(**changed)
        command = [sys.executable, "-m", "bide", "worker", options.queue_path]
        for name, value in options._asdict().items():
            option = "--" + {"imports": "import"}.get(name, name.replace("_", "-"))
            if name == "queue_path" or value is None or value is False:
                continue
            if value is True:
                command.append(option)
            else:
                command += [part for each in (value if isinstance(value, tuple) else (value,)) for part in (option, str(each))]
        return command


def load_target(options: WorkerOptions) -> AsyncQueue | Queue | Worker:
    """Import the modules of --import, which may set something up, and MODULE:QUEUE. The current folder is searched, too."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module, mark, name = options.queue_path.partition(":")
    if not mark or not module or not name:
        raise ConfigError(f"{options.queue_path!a} is not MODULE:QUEUE, as in shop.tasks:queue.")
    if module.endswith(".py") or os.sep in module:
        stem = os.path.splitext(os.path.basename(module))[0]
        raise ConfigError(f"{module} is a file, not a module. Run `bide worker {stem}:{name}` in its folder.")
    for each in options.imports:
        _import(each)
    found: Any = _import(module)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            there = sorted(
                key for key, value in vars(sys.modules[module]).items() if isinstance(value, AsyncQueue | Queue | Worker)
            )
            hint = f"It has: {', '.join(there)}." if there else "It has no queue."
            raise ConfigError(f"The module {module} has no attribute {name}. {hint}") from None
        except SystemExit as error:
            raise _ended(f"{options.queue_path} has ended the program while it was read", error) from None
    if not isinstance(found, AsyncQueue | Queue | Worker):
        raise ConfigError(f"{options.queue_path} is of type {type(found).__name__}. Give a Queue, an AsyncQueue or a Worker.")
    return found


def make_worker(options: WorkerOptions, found: AsyncQueue | Queue | Worker) -> Worker:
    """The worker as it was made in code, changed by the options of the command line."""
    made = found if isinstance(found, Worker) else Worker(found)
    return made.changed(
        topics=options.topics or None,
        concurrency=options.concurrency,
        threads=options.threads,
        slots=options.slots_of_topics or None,
        lease=options.lease,
        grace=options.grace,
        log_messages=options.log_messages or None,
        slow=options.slow,
        claim_log=None if options.claim_log is None else ClaimLog(options.claim_log),
        killed=() if options.killed is None else taken_over(options.killed),
    )


def check_slots(made: Worker) -> None:
    """Raise BadOption if --slots do not fit the tasks, before anything is started."""
    served, plan = made.tasks(), made.plan
    in_threads = [topic for topic, task in served.items() if not task.is_async]
    Slots(served, in_threads, concurrency=plan.concurrency, threads=plan.threads, slots=plan.slots)


def check_processes(made: Worker) -> None:
    """Raise ConfigError if processes can't share the queue."""
    source = made.queue.session.setup.source
    if not source.capabilities.persistent:
        raise ConfigError(
            f"{source.shown} keeps its messages in one process, so each of --processes would have a queue of its own, which "
            "is empty: leave --processes out, or use an engine that processes share, such as sqlite:// or redis://."
        )


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except SystemExit as error:
        raise _ended(f"The module {name} has ended the program while it was imported", error) from None
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name == missing or name.startswith(missing + ".")):
            raise ConfigError(
                f"There is no module {name} in this folder ({os.getcwd()}) or among the installed packages."
            ) from None
        for line in _theirs(error):
            note(line)
        if type(error).__module__.startswith("django.") and type(error).__name__ in _NOT_SET_UP:
            raise ConfigError(
                f"Django is not set up when {name} is imported. Give a module that calls django.setup(), "
                "which is then imported first: bide worker … --import shop.setup"
            ) from None
        raise typer.Exit(Exit.FAILED) from None


def _ended(what: str, error: SystemExit) -> ConfigError:
    for line in _theirs(error):
        note(line)
    return ConfigError(
        f"{what}, by sys.exit({error.code!r}): a worker can't run without it. What it does as a program belongs under "
        '`if __name__ == "__main__":`.'
    )


def _theirs(error: BaseException) -> list[str]:
    """The traceback of an error in a module, without the frames of the import."""
    trace = error.__traceback__
    while trace is not None and (trace.tb_frame.f_code.co_filename in _LEADING):
        trace = trace.tb_next
    written = traceback.format_exception(type(error), error, trace)
    return [line for part in written for line in part.rstrip("\n").split("\n")]


_SKIPPED = {"node_modules", "__pycache__", "site-packages"}
_Signals: TypeAlias = "SimpleQueue[int]"


def reloaded(command: Callable[[int], Sequence[str]]) -> int:
    """Run a worker, and restart it on changes, until Ctrl-C, SIGTERM or SIGHUP.

    `command` makes the worker's command line from the number of its lifeline: the worker stops when the other end of this
    pipe is closed, also by the death of this process. Signals interrupt nothing here: they are only written down.
    """
    signals: _Signals = SimpleQueue()
    for number in asking():
        signal.signal(number, lambda number, frame: signals.put(number))
    folder = Path.cwd()
    seen = _times(folder)
    note(f"bide: watching the Python files in {folder}")
    theirs, ours = os.pipe()
    try:
        while True:
            worker = subprocess.Popen(command(theirs), process_group=0, pass_fds=[theirs])
            try:
                changed, seen = _wait_for_a_change(folder, seen, signals)
                if not changed:
                    return Exit.OK
                note(f"bide: {', '.join(changed[:3])}{' and more' if len(changed) > 3 else ''} changed: restarting")
            finally:
                _stop(worker, signals)
    finally:
        os.close(ours)
        os.close(theirs)


def _wait_for_a_change(folder: Path, seen: dict[Path, int], signals: _Signals) -> tuple[list[str], dict[Path, int]]:
    """The files that have changed, and what there is to see now. No files: a signal has come."""
    while not _heard(signals, EVERY):
        now = _times(folder)
        changed = sorted(str(path.relative_to(folder)) for path in {*seen, *now} if seen.get(path) != now.get(path))
        if changed:
            return changed, now
    return [], seen


def _stop(worker: "subprocess.Popen[bytes]", signals: _Signals) -> None:
    """Ask the worker to stop; a signal that comes meanwhile, or no end in time, asks for the next step."""
    for step in (worker.terminate, worker.terminate, worker.kill):  # a second SIGTERM ends the worker at once
        step()
        begun = time.monotonic()
        while worker.poll() is None and (passed := time.monotonic() - begun) < STOP_TIMEOUT:
            if _heard(signals, TICK) and passed > TOGETHER:
                break
    worker.wait()


def _heard(signals: _Signals, seconds: float) -> bool:
    """Wait for a signal, for so long at most; whether one has come."""
    try:
        signals.get(timeout=seconds)
    except Empty:
        return False
    return True


def _times(folder: Path) -> dict[Path, int]:
    times = {}
    for path in _files(folder):
        with contextlib.suppress(OSError):  # the file is gone again
            times[path] = path.stat().st_mtime_ns
    return times


def _files(folder: Path) -> Iterator[Path]:
    """All Python files, without those in virtual environments and hidden folders."""
    for root, folders, files in os.walk(folder):
        parent = Path(root)
        folders[:] = [
            each
            for each in folders
            if not each.startswith(".") and each not in _SKIPPED and not os.path.exists(parent / each / "pyvenv.cfg")
        ]
        yield from (parent / each for each in files if each.endswith(".py"))
