"""The processes of a way: its consumer and its sender, or the one that is both."""

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.roads.environments import python_of
from benchmarks.roads.places import cpu_of, in_session
from benchmarks.roads.ways import Way

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("program.py")
LOOK = 0.02  # seconds
START = 60.0  # seconds, for a consumer to handle its first message
AGAIN = 1.0  # seconds, after which another one is sent: what nobody listened to is gone
CALM, RESTLESS = 0.3, 10.0  # share of a core of a consumer that has settled, and seconds after which it never will
TAIL = 2_000


class Failed(Exception):
    """Why there is no figure, in a sentence."""


class Record(NamedTuple):
    number: int
    due: float
    at: float


class Programs:
    """For `with`: they run inside the block."""

    def __init__(self, way: Way, url: str, folder: Path) -> None:
        self._way = way
        self._url = url
        self._file = folder / "handled"
        self._log = folder / "log"
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        self._file.touch()
        try:
            if self._way.server == "none":
                self._consumer = self._sender = self._start("both")
            else:
                self._sender = self._start("send")
                self.send("none", [])  # the sender has made what it needs, such as a table
                self._consumer = self._start("work")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            for pid in in_session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.communicate()

    def pids(self) -> list[int]:
        """The processes of the consumer."""
        return in_session(self._consumer.pid)

    def warm_up(self) -> None:
        """Until the consumer handles what is sent."""
        give_up = time.time() + START
        while not self.handled("warm", 1, time.time() + AGAIN):
            if time.time() > give_up:
                raise Failed(f"it handled nothing in {START:.0f} s: {self._said()}")
            self.send("warm", [0.0])

    def send(self, work: str, delays: list[float], *, rate: float = 0.0, at: float = 0.0) -> float:
        """The seconds that the sender took."""
        assert self._sender.stdin is not None
        assert self._sender.stdout is not None
        self._sender.stdin.write(json.dumps({"work": work, "delays": delays, "rate": rate, "at": at}) + "\n")
        self._sender.stdin.flush()
        if not (line := self._sender.stdout.readline()):
            raise Failed(f"its sender ended: {self._said()}")
        return float(line)

    def handled(self, work: str, many: int, until: float) -> list[Record]:
        """What the consumer has handled of this work, when it is that many, or the time is over."""
        while len(found := self._read(work)) < many and time.time() < until:
            self.check()
            time.sleep(LOOK)
        return found

    def check(self) -> None:
        """Raises Failed if the consumer has ended."""
        if self._consumer.poll() is not None:
            raise Failed(f"its consumer ended: {self._said()}")

    def settle(self) -> None:
        """Until the consumer has hardly anything to do, or never will."""
        give_up = time.time() + RESTLESS
        while time.time() < give_up:
            before = cpu_of(self.pids())
            time.sleep(1.0)
            if cpu_of(self.pids()) - before < CALM:
                return

    def _read(self, work: str) -> list[Record]:
        lines = self._file.read_text(encoding="ascii").split("\n")[:-1]  # the last one may be incomplete
        fields = (line.replace(":", " ").split() for line in lines if line.startswith(f"{work}:"))
        return [Record(int(number), float(due), float(at)) for _, number, due, _, at in fields]

    def _start(self, role: str) -> "subprocess.Popen[str]":
        arguments = [self._way.program, self._url, str(self._file), str(self._way.period), role]
        with self._log.open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                [str(python_of(self._way.program)), str(PROGRAM), *arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
                stdin=subprocess.PIPE,
                stdout=log if role == "work" else subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def _said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-TAIL:]
