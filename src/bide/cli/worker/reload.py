"""`--reload`: restarts the worker when a Python file in this folder changes. For development."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeAlias

from bide.cli.exits import Exit
from bide.cli.output import note
from bide.worker.signals import TOGETHER, asking

EVERY = 0.5  # seconds between two looks
STOP_TIMEOUT = 3.0  # seconds that a worker has to stop
TICK = 0.02  # seconds between two looks at a worker that stops
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
