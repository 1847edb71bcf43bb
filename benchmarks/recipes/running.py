"""Runs a recipe for real: its worker, then what sends its messages."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from benchmarks.recipes.stories import Story

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds; a worker that has not told its story then is killed


def told(
    story: Story,
    worker: Sequence[str],
    sender: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    ready: str | None = None,
) -> tuple[list[str], str]:
    """Every line that the worker has printed when it has stopped, and what the sender has printed.

    With `ready`, the sender begins when the worker has logged a line with this text in it.
    """
    settings = {**os.environ, "PYTHONUNBUFFERED": "1", **environment}
    lines: list[str] = []
    running = subprocess.Popen(
        worker,
        cwd=ROOT,
        env={**settings, **story.environment()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    assert running.stderr is not None
    begun = threading.Event()
    logs = threading.Thread(target=_log, args=[running.stderr, log, ready, begun])
    kill = threading.Timer(PATIENCE, _kill, [running])
    logs.start()
    kill.start()
    try:
        if ready is not None:
            begun.wait()
        settings |= story.environment()
        sent = subprocess.run(sender, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)
        while sent.returncode == 0 and story.missing(lines) and (line := running.stdout.readline()):
            lines.append(line.rstrip("\n"))
        running.terminate()
        lines += running.stdout.read().splitlines()
        running.wait()
    finally:
        kill.cancel()
        _kill(running)
        running.wait()
        logs.join()
        running.stdout.close()
        running.stderr.close()
    return lines, sent.stdout.strip() + sent.stderr


def _log(errors: IO[str], log: Path, ready: str | None, begun: threading.Event) -> None:
    """Until the worker and its processes have ended."""
    with log.open("w", encoding="utf-8") as file:
        for line in errors:
            file.write(line)
            if ready is not None and ready in line:
                begun.set()
    begun.set()


def _kill(worker: "subprocess.Popen[str]") -> None:
    """With its processes, which have its output open, too."""
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
