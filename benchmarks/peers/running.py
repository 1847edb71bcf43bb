"""One peer at work on a stage: what it sends, its worker, and what its handler wrote."""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.peers.peer import PROGRAMS, Peer
from benchmarks.peers.servers import Stage

LONG = 180.0  # seconds, for sending
LOOK = 0.1  # seconds between looks at the file of records
TAIL = 1_500  # characters of a log, in an error


class Failed(Exception):
    """A measurement that gave no figure, in a sentence."""


class Record(NamedTuple):
    what: str  # started or done
    number: int
    due: float
    now: float


class Run:
    """For `with`: at its end nothing of the peer runs any more."""

    def __init__(self, peer: Peer, stage: Stage, work: str, *, slow: bool = False) -> None:
        self.peer, self.stage, self._work = peer, stage, work
        self._url = stage.empty(peer.server)
        self._folder = tempfile.TemporaryDirectory(prefix="bide-peer-")
        self._records, self._log = Path(self._folder.name, "records"), Path(self._folder.name, "log")
        self._records.touch()
        self._seen = self._lines = 0
        self._workers: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PEER_", "BIDE_"))},
            **dict(peer.environment),
            "PYTHONPATH": str(PROGRAMS),
            "PYTHONWARNINGS": "ignore",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PEER_URL": self._url,
            "PEER_WORK": work,
            "PEER_RECORDS": str(self._records),
            "PEER_FOLDER": str(peer.folder),
            **({"PEER_SLOW": "1"} if slow else {}),
        }

    def __enter__(self) -> Self:
        if self.peer.prepare:
            self._told(self._command(self.peer.prepare))
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._folder.cleanup()

    def send(self, *mode: object) -> float:
        """Messages a second, as the sender itself counts and times them."""
        told = self._told(
            [*self._command("node {program} send" if self.peer.node else "{bin}/python {program} send"), *map(str, mode)]
        )
        line = [line for line in told.splitlines() if line.startswith("{")][-1]
        figures = json.loads(line)
        return float(figures["count"]) / float(figures["seconds"])

    def start(self) -> None:
        """Starts its worker; this does not wait until it is ready."""
        commands = self.peer.drain if self._work == "drain" and self.peer.drain else self.peer.workers
        with self._log.open("ab") as log:
            self._workers = [
                subprocess.Popen(
                    self._command(each),
                    cwd=PROGRAMS,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                for each in commands
            ]

    def kill(self) -> None:
        """Ends all processes of its worker with SIGKILL, at once."""
        for process in _in_sessions({each.pid for each in self._workers}):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for each in self._workers:
            each.wait()
        self._workers = []

    def wait(self, done: Callable[[], bool], patience: float, *, look: float = LOOK) -> bool:
        """Whether it came to be done in so many seconds. A worker that has ended is an error."""
        give_up = time.monotonic() + patience
        while not done():
            for each in self._workers:
                if each.poll() is not None:
                    raise Failed(f"its worker ended: {self._said()}")
            if time.monotonic() > give_up:
                return False
            time.sleep(look)
        return True

    def lines(self) -> int:
        """How many records there are."""
        with self._records.open("rb") as file:
            file.seek(self._seen)
            fresh = file.read()
        self._seen += len(fresh)
        self._lines += fresh.count(b"\n")
        return self._lines

    def records(self) -> list[Record]:
        fields = (line.split() for line in self._records.read_text(encoding="ascii").splitlines())
        return [Record(what, int(number), float(due), float(now)) for what, number, due, now in fields]

    def _command(self, command: str) -> list[str]:
        folder = str(Path(sys.executable).parent if self.peer.home == "bide" else self.peer.folder / "bin")
        return [part.format(bin=folder, program=self.peer.program, url=self._url) for part in shlex.split(command)]

    def _told(self, command: list[str]) -> str:
        try:
            done = subprocess.run(
                command, cwd=PROGRAMS, env=self._environment, capture_output=True, text=True, check=False, timeout=LONG
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"it took longer than {LONG:.0f} s to send") from None
        if done.returncode:
            raise Failed(f"its sender failed: {done.stderr[-TAIL:]}")
        return done.stdout

    def _said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-TAIL:]


def _in_sessions(sessions: set[int]) -> list[int]:
    """The processes of these sessions, and their leaders."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[3]) in sessions:
                found.append(int(path.parent.name))
    return found
