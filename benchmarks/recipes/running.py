"""Runs a recipe for real: its worker, then what sends its messages."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.recipes.stories import Story

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds; a worker that has not told its story then is killed


def told(
    story: Story, worker: Sequence[str], sender: Sequence[str], environment: Mapping[str, str], log: Path
) -> tuple[list[str], str]:
    """Every line that the worker has printed when it has stopped, and what the sender has printed."""
    settings = {**os.environ, "PYTHONUNBUFFERED": "1", **environment, **story.environment()}
    lines: list[str] = []
    with log.open("w") as errors:
        running = subprocess.Popen(
            worker,
            cwd=ROOT,
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        assert running.stdout is not None
        kill = threading.Timer(PATIENCE, _kill, [running])
        kill.start()
        try:
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
            running.stdout.close()
    return lines, sent.stdout.strip() + sent.stderr


def _kill(worker: "subprocess.Popen[str]") -> None:
    """With its processes, which have its output open, too."""
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
