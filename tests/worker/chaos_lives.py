"""One worker of a run from its start to its end, and the processes that come and go under it."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import bide
from bide.prove.operation import Fault
from bide.prove.workload import TOPICS
from tests.worker.chaos_actors import CALM_LEASE, GRACE, LEASE

ROOT = Path(__file__).resolve().parents[2]
TICK = 0.01
OVERTIME = 9.0  # seconds after its grace in which a worker has to have ended: one is promised, but others may have the lock


class Kind(NamedTuple):
    """How a worker is started: alone or under a supervisor, and with what handlers."""

    options: str = ""
    threads: tuple[str, ...] = ()
    processes: int = 0
    in_code: bool = False  # not by `bide worker`
    quick: bool = False


KINDS: Mapping[str, Kind] = {
    "async": Kind("--concurrency 20"),
    "sync": Kind("--concurrency 12 --threads 6", TOPICS),
    "supervised": Kind("--concurrency 15", (), 2),
    "mixed": Kind("--concurrency 15 --threads 4", TOPICS[1:2]),
    "supervised-sync": Kind("--concurrency 10 --threads 4", TOPICS, 2),
    "slots": Kind("--concurrency 10 --slots orders=3 --slots mail=2", TOPICS[2:]),
    "supervised-mixed": Kind("--concurrency 30 --threads 6 --slots orders=4", TOPICS[1:], 2),
    "in-code": Kind(in_code=True),
    "narrow": Kind("--concurrency 1"),
    "quick": Kind("--concurrency 100", quick=True),
    "supervised-quick": Kind("--concurrency 100", (), 2, quick=True),
    "one-topic": Kind("--concurrency 8 --topics mail"),
}


class Process:
    """One process that is ours, known by what can't come to mean another one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        self._ended = select.poll()
        self._ended.register(self._fd, select.POLLIN)
        self.stopped: tuple[Fault, int, float] | None = None  # the fault, since when (ns), and until when

    def send(self, number: signal.Signals) -> bool:
        """False: it has ended."""
        try:
            signal.pidfd_send_signal(self._fd, number)
        except ProcessLookupError:
            return False
        return not self.gone()

    def gone(self, seconds: float = 0.0) -> bool:
        return bool(self._ended.poll(seconds * 1000))

    def stands_still(self) -> bool:
        """Wait until a SIGSTOP has taken effect; False if it has ended by then."""
        while not self.gone():
            if _stat(self.pid)[0] == "T":
                return True
            time.sleep(TICK / 10)
        return False

    def close(self) -> None:
        os.close(self._fd)


def _stat(pid: int) -> tuple[str, int]:
    """The state of a process and its parent."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return "gone", 0
    return state, int(parent)


class Life:
    """One worker from its start to its end: a process, or a supervisor and the processes that come and go under it."""

    def __init__(self, folder: Path, kind: str, name: str, seed: int, plant: str, only: Sequence[str] | None) -> None:
        self.kind = kind
        self.name = name
        self.told: float | None = None  # when it was asked to end
        self.ending: Fault | None = None
        self.killed = False
        self._folder = folder
        self._words = folder / f"{name}.err"
        self.children: dict[int, Process] = {}
        how = KINDS[kind]
        lease = LEASE if only is None else CALM_LEASE
        stage = {
            "folder": str(folder),
            "name": name,
            "seed": seed,
            "threads": how.threads,
            "quick": how.quick,
            "plant": plant,
            "only": only,
            "lease": lease,
        }
        env = {**os.environ, "PYTHONPATH": str(Path(bide.__file__).parents[1]), "CHAOS": json.dumps(stage)}
        command = [sys.executable, "-m", "tests.worker.chaos_actors"]
        if not how.in_code:
            command = [sys.executable, "-m", "bide", "worker", "tests.worker.chaos_actors:queue", *how.options.split()]
            command += ["--lease", f"{lease * 1000:.0f}ms", "--grace", f"{GRACE:g}s", "--log-format", "json"]
            command += ["--processes", str(how.processes)] if how.processes else []
        with self._words.open("wb") as words:
            self._popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=words, env=env, cwd=ROOT)
        self.process = Process(self._popen.pid)

    @property
    def supervised(self) -> bool:
        return KINDS[self.kind].processes > 0

    def spoil_logs(self, how: str) -> None:
        """From now on: see `LastLogs`."""
        (self._folder / f"{self.name}.logs").write_text(how, encoding="utf-8")

    def works(self) -> bool:
        """Whether it listens to signals by now: it, or a process of it, has claimed something."""
        return any(b'"op":"receive"' in path.read_bytes()[:4_096] for path in self.histories())

    def histories(self) -> Iterable[Path]:
        return self._folder.glob(f"{self.name}.*.jsonl")

    def history_of(self, process: Process) -> Path:
        return self._folder / f"{self.name}.{process.pid}.jsonl"

    def look_for_children(self) -> None:
        """Those that have begun to write; the dead are forgotten."""
        for pid, child in list(self.children.items()):
            if child.gone():
                child.close()
                del self.children[pid]
        for path in self.histories() if self.supervised else ():
            pid = int(path.suffixes[0][1:])
            if pid not in self.children and pid != self.process.pid and _stat(pid)[1] == self.process.pid:
                with contextlib.suppress(ProcessLookupError):
                    self.children[pid] = Process(pid)

    def code(self, seconds: float = 0.0) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._popen.wait(seconds)
        return None

    def clean_up(self) -> None:
        """End it, whatever state it is in."""
        for each in (self.process, *self.children.values()):
            each.send(signal.SIGKILL)
        self._popen.wait()
        for child in self.children.values():
            child.gone(OVERTIME)

    def words(self) -> Iterator[Mapping[str, str]]:
        """What it has logged. What is no log line is one of its own."""
        lines = self._words.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                if not (line.startswith(("bide ", "  ")) or KINDS[self.kind].in_code):
                    yield {"level": "critical", "logger": "stderr", "message": line}
