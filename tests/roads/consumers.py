"""A way's consumer in a process of its own, so that it can be killed: `python -m examples.roads`."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Consumer:
    """A process that prints what it handles, with options of `python -m examples.roads`.

    `python` is that of the way's environment, and `settings` are environment variables.
    """

    def __init__(
        self,
        way: str,
        url: str = "",
        *options: str,
        python: str | Path = sys.executable,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            [python, "-m", "examples.roads", way, *([url] if url else []), *options],
            cwd=ROOT,
            env={**os.environ, **(settings or {}), "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # with the processes that it starts
        )

    def send(self, body: str, delay: float) -> None:
        """The process sends it, to itself if the way ends with the process."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{delay} {body}\n")
        self._process.stdin.flush()
        assert self.line() == f"sent {body}"

    def handled(self) -> str:
        """The next message that it handles."""
        word, _, body = self.line().partition(" ")
        assert word == "handle"
        return body

    def line(self) -> str:
        """The next line of the program; what Celery says beside it is left out. A process that has ended fails the test."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith(("handle ", "sent ")):
                return line.rstrip("\n")
        raise AssertionError(f"the consumer ended with exit code {self._process.wait()}")

    def kill(self) -> None:
        """As a crash or the kernel does it: it is told nothing."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
