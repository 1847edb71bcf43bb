"""Runs the real command `bide worker` over an SQLite file, with handlers that write down what they do."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bide import Info, Queue, Stats

PATIENCE = 60.0  # seconds, far more than anything here takes, also on a machine that is busy with other things
COMMAND = [sys.executable, "-m", "bide", "worker"]

_HEAD = """
import asyncio, ctypes, json, os, signal, sys, threading, time
from bide import AsyncQueue, Bury, Queue, Retry, Snooze, Worker, current, exponential, steps

queue = AsyncQueue({url!r})
_log = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
SOON = steps("1ms")


def say(*words):
    line = json.dumps([time.monotonic(), os.getpid(), *words])
    os.write(_log, line.encode() + b"\\n")


def gone(name):
    return os.path.exists(os.path.join({folder!r}, name))
"""


class Line(NamedTuple):
    """What a handler has written: when, in which process, and what."""

    at: float
    pid: int
    words: tuple[Any, ...]


def until(what: Callable[[], Any], said: Callable[[], str] = lambda: "", patience: float = PATIENCE) -> Any:
    """Look again and again until it is so."""
    give_up = time.monotonic() + patience
    while not (found := what()):
        assert time.monotonic() < give_up, f"it never came to be: {said()}"
        time.sleep(0.005)
    return found


class Running:
    """A worker that was started, with whatever processes it starts."""

    def __init__(self, process: "subprocess.Popen[bytes]", err: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._err = err
        self._known: set[int] = set()

    @property
    def err(self) -> str:
        return self._err.read_text(encoding="utf-8", errors="replace")

    def until(self, text: str) -> float:
        """Wait until it has said this on standard error; when it was seen."""

        def seen() -> bool:
            assert text in self.err or self.process.poll() is None, f"it ended before it said {text!r}: {self.err}"
            return text in self.err

        until(seen, lambda: f"{text!r} in {self.err}")
        return time.monotonic()

    def children(self) -> list[int]:
        found: list[int] = []
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{self.pid}/task"):
                text = Path(f"/proc/{self.pid}/task/{thread}/children").read_text(encoding="ascii")
                found += map(int, text.split())
        self._known.update(found)
        return sorted(found)

    def send(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self, patience: float = PATIENCE) -> int:
        """Its exit code. Nothing of it is left then."""
        code = self.process.wait(patience)
        until(lambda: not any(map(alive, self._known)), lambda: f"of {self._known} some are left")
        return code

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Ask it to stop; the exit code, and the seconds that it took."""
        self.children()
        began = time.monotonic()
        self.send(number)
        return self.wait(), time.monotonic() - began

    def insist(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Send it until it has ended, since two that come at once are one; the exit code, and the seconds that it took."""
        self.children()
        began = time.monotonic()
        while self.process.poll() is None:
            assert time.monotonic() - began < PATIENCE, self.err
            self.send(number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
        return self.wait(), time.monotonic() - began

    def end(self) -> None:
        """However it is: afterwards it is gone."""
        self.children()
        for pid in (self.pid, *self._known) if self.process.poll() is None else self._known:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


class Shop:
    """A folder with an application, its queue, and what its handlers have said."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder = folder
        self.url = url or f"sqlite:///{folder}/shop.db"
        self.queue = Queue(self.url)
        self._log = folder / "events"
        self._started: list[Running] = []

    def write(self, code: str, name: str = "shop", *, head: bool = True) -> None:
        text = _HEAD.format(url=self.url, log=str(self._log), folder=str(self.folder)) if head else ""
        (self.folder / f"{name}.py").write_text(text + code, encoding="utf-8")

    def start(
        self,
        *arguments: str,
        target: str = "shop:queue",
        env: dict[str, str] | None = None,
        within: tuple[str, ...] = (),
    ) -> Running:
        err = self.folder / f"err-{len(self._started)}"
        with err.open("wb") as file:
            process = subprocess.Popen(
                [*within, *COMMAND, target, *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                env={name: value for name, value in os.environ.items() if name != "BIDE_URL"} | (env or {}),
            )
        started = Running(process, err)
        self._started.append(started)
        return started

    def ready(self, *arguments: str, **more: Any) -> Running:
        """Started, and its handlers can be called: the last line of the banner is there and signals are heard."""
        started = self.start(*arguments, **more)
        started.until("→")
        until(lambda: listens(started.pid) or started.process.poll() is not None, lambda: started.err)
        return started

    def ended(self, *arguments: str, **more: Any) -> tuple[int, str]:
        """The exit code of one that ends by itself, and what it said."""
        started = self.start(*arguments, **more)
        return started.wait(), started.err

    def lines(self, *words: Any) -> list[Line]:
        """What handlers have said that begins with these words."""
        if not self._log.exists():
            return []
        whole, _, _ = self._log.read_text(encoding="utf-8").rpartition("\n")  # what is behind it is being written
        read = [json.loads(line) for line in whole.splitlines()]
        found = [Line(at, pid, tuple(said)) for at, pid, *said in read]
        return [line for line in found if line.words[: len(words)] == words]

    def said(self, *words: Any, count: int = 1) -> list[Line]:
        """Wait until handlers have said this so many times."""

        def seen() -> list[Line]:
            return found if len(found := self.lines(*words)) >= count else []

        found: list[Line] = until(seen, lambda: f"{words} in {self.lines()} {[each.err for each in self._started]}")
        return found

    def touch(self, name: str) -> None:
        """Let handlers see `gone(name)`."""
        (self.folder / name).touch()

    def counts(self, topic: str | None = None) -> Stats:
        return self.queue.stats() if topic is None else self.queue.stats(topic)

    def dead(self, topic: str, count: int = 1) -> list[Info]:
        """Wait until there are so many dead letters."""
        until(lambda: self.counts(topic).dead >= count, lambda: f"{self.counts(topic)} {[each.err for each in self._started]}")
        return list(self.queue.messages(topic, state="dead", limit=1_000))

    def empty(self) -> None:
        """Wait until every message has been handled."""
        until(lambda: not _left(self.counts()), lambda: f"{self.counts()} {[each.err for each in self._started]}")

    def close(self) -> None:
        for each in self._started:
            each.end()
        self.queue.close()


def _left(stats: Stats) -> int:
    return stats.scheduled + stats.ready + stats.leased


def listens(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return False
    [caught] = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def heard(pid: int, number: int) -> bool:
    """Whether no such signal waits to be heard by a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    waiting = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    return not any(each >> (number - 1) & 1 for each in waiting)


def engines(often: str) -> list[Any]:
    """The engines that several machines or processes share: one in every run, the others in the long one."""
    marks = {name: [] if name == "sqlite" else [pytest.mark.server] for name in ("sqlite", "redis", "postgres")}
    slow = {name: [] if name == often else [pytest.mark.slow] for name in marks}
    return [pytest.param(name, marks=[*marks[name], *slow[name]]) for name in marks]


@contextmanager
def open_shop(folder: Path, url: str = "") -> Iterator[Shop]:
    shop = Shop(folder, url)
    try:
        yield shop
    finally:
        shop.close()


def without_uvloop(folder: Path) -> dict[str, str]:
    """An environment in which uvloop is not installed."""
    (folder / "blocked").mkdir(exist_ok=True)
    (folder / "blocked" / "uvloop.py").write_text("raise ImportError('blocked')\n", encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join([str(folder / "blocked"), os.environ.get("PYTHONPATH", "")])}
