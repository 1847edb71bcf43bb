"""Real processes: a server on a free port, and workers; what they log is kept for the message of a test that fails."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from bide import Queue

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0

T = TypeVar("T")


def soon(look: Callable[[], T | None]) -> T:
    """What `look` sees, as soon as it is something."""
    give_up = time.monotonic() + PATIENCE
    while not (seen := look()):
        assert time.monotonic() < give_up, f"after {PATIENCE:g} s it was still {seen!r}"
        time.sleep(0.02)
    return seen


class Process:
    def __init__(self, log: Path, arguments: tuple[str, ...], settings: dict[str, str]) -> None:
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **settings},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def said(self, pattern: str) -> "re.Match[str]":
        """What it has logged, or will soon."""

        def look() -> "re.Match[str] | None":
            ended, text = self._process.poll(), self._log.read_text(encoding="utf-8", errors="replace")
            found = re.search(pattern, text)
            assert found or ended is None, f"it ended with {ended} before it said {pattern!r}:\n{text}"
            return found

        return soon(look)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)

    def stop(self) -> None:
        """As Ctrl-C or a service manager would: in good order."""
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        finally:
            self.kill()


class Running:
    """Starts processes in a folder of the test's; they are stopped when the test ends."""

    def __init__(self, folder: Path, stack: ExitStack, settings: dict[str, str]) -> None:
        self.folder = folder
        self._stack = stack
        self._settings = settings
        self._count = 0

    def start(self, *arguments: str, **settings: str) -> Process:
        self._count += 1
        process = Process(self.folder / f"{self._count}.log", arguments, {**self._settings, **settings})
        self._stack.callback(process.stop)
        return process

    def client(self, server: Process) -> httpx.Client:
        """For a server that was started on port 0, and says which one it got."""
        url = server.said(r"unning on (http://127\.0\.0\.1:\d+)")[1]
        return self._stack.enter_context(closing(httpx.Client(base_url=url, timeout=PATIENCE)))


@contextmanager
def processes(folder: Path, **settings: str) -> Iterator[Running]:
    with ExitStack() as stack:
        yield Running(folder, stack, settings)


def became(client: httpx.Client, order: Any, state: str, mail: str) -> bool:
    """Whether an order is in this state, and the mail about it has gone out."""
    told = client.get(f"/orders/{order}").raise_for_status().json()
    return bool(told["state"] == state and told["mails"] == [mail])


def time_is_up(url: str, order: Any) -> None:
    """The time to pay for an order is over, earlier than it was told."""
    with Queue(url) as queue:
        assert queue.reschedule(topic="order.cancel", key=str(order), delay=0)
