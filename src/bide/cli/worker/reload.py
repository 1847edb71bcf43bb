"""`--reload`: restarts the worker when a Python file in this folder changes. For development."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bide.cli.exits import Exit
from bide.cli.output import note
from bide.worker.signals import asking

EVERY = 0.5  # seconds between two looks
STOP_TIMEOUT = 3.0  # seconds that a worker has to stop
_SKIPPED = {"node_modules", "__pycache__", "site-packages"}


def reloaded(command: Sequence[str]) -> int:
    """Run a worker, and restart it on changes, until Ctrl-C, SIGTERM or SIGHUP."""
    for number in asking():
        signal.signal(number, signal.default_int_handler)
    folder = Path.cwd()
    seen = _times(folder)
    note(f"bide: watching the Python files in {folder}")
    worker = subprocess.Popen(command, process_group=0)
    try:
        while True:
            time.sleep(EVERY)
            now = _times(folder)
            changed = sorted(str(path.relative_to(folder)) for path in {*seen, *now} if seen.get(path) != now.get(path))
            if not changed:
                continue
            seen = now
            note(f"bide: {', '.join(changed[:3])}{' and more' if len(changed) > 3 else ''} changed: restarting")
            _stop(worker)
            worker = subprocess.Popen(command, process_group=0)
    except KeyboardInterrupt:
        try:
            _stop(worker)
        except KeyboardInterrupt:
            _stop(worker)  # for the worker, this is the second signal, too
        return Exit.OK


def _stop(worker: "subprocess.Popen[bytes]") -> None:
    worker.terminate()
    try:
        worker.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        worker.terminate()  # a second signal ends it at once
        try:
            worker.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


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
            if not each.startswith(".") and each not in _SKIPPED and not (parent / each / "pyvenv.cfg").exists()
        ]
        yield from (parent / each for each in files if each.endswith(".py"))
