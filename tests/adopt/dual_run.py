"""An old system and bide side by side: their processes record what they handle, and the adopter is killed on the way.

A record is a line of a file: the number of a message, its due time and the time at which it was handled, in milliseconds.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.running import BIDE, plain_environment

PROGRAMS = Path(__file__).resolve().parent / "programs"
ROOT = PROGRAMS.parents[2]
PATIENCE = 300.0
GLANCE = 0.001  # seconds between two looks at whether the adopter has taken a batch
LOOKS = 30  # at which it has one, for each step of later
OLD, NEW = "old", "bide"


class Verdict(NamedTuple):
    """What became of all messages."""

    total: int
    by_old: int
    by_bide: int
    lost: int
    doubled: int
    early: int  # handled by bide before their time
    kills: int
    amid: int  # of them, how many while a batch was taken and not finished

    def __str__(self) -> str:
        return (
            f"{self.total:,} messages: {self.by_old:,} handled by the old consumers, {self.by_bide:,} by bide; adopter killed "
            f"{self.kills} times, {self.amid} times with a batch under way; lost {self.lost}, doubled {self.doubled}, "
            f"early {self.early}"
        )


class DualRun:
    """Both systems, for `with`: its processes are ended with it."""

    def __init__(self, folder: Path, url: str, topic: str) -> None:
        self.folder: Path = folder
        self.kills: int = 0
        self.amid: int = 0
        self._url = url
        self._topic = topic
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "DualRun":
        self.python("on_bide.py", self._url, self._topic, records=NEW)
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._running:
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()

    def python(self, program: str, *arguments: str, records: str = OLD) -> subprocess.Popen[bytes]:
        """Start a program of this folder."""
        return self.start([sys.executable, str(PROGRAMS / program), *arguments], records=records)

    def start(self, command: list[str], *, records: str = OLD, **more: str) -> subprocess.Popen[bytes]:
        """Start a process that records what it handles."""
        environment = plain_environment(RECORDS=str(self._file(records)), PYTHONPATH=f"{ROOT}/src:{ROOT}", **more)
        process = subprocess.Popen(command, cwd=self.folder, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
        self._running.append(process)
        return process

    def count(self, who: str) -> int:
        """How many messages one side has handled."""
        file = self._file(who)
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def handled(self) -> int:
        return self.count(OLD) + self.count(NEW)

    def until(self, reached: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < give_up, f"{what} did not come; handled: {self.count(OLD)} and {self.count(NEW)}"
            time.sleep(0.05)

    def until_more(self, who: str, many: int) -> None:
        """Until one side has handled so many more messages."""
        wanted = self.count(who) + many
        self.until(lambda: self.count(who) >= wanted, f"{many} more messages of {who}")

    def until_all(self, total: int) -> None:
        """Until all is handled. Slow consumers may take long, as long as they do handle some."""
        before = -1
        while (handled := self.handled()) < total:
            assert handled > before, f"{total - handled} of {total} do not come"
            before, some = handled, min(total, handled + 100)
            self.until(lambda: self.handled() >= some, f"the {some}th message")  # noqa: B023

    def kill_adopter(self, command: list[str], is_held: Callable[[], bool], later: int) -> None:
        """Start the adopter, and kill it while it works: the higher `later` is, the more it has moved by then."""
        adopter = self._adopter(command)
        seen, give_up = 0, time.monotonic() + PATIENCE
        while seen < later * LOOKS:
            seen += is_held()
            assert adopter.poll() is None, "the adopter ended by itself"
            assert time.monotonic() < give_up, f"the adopter was seen with a batch only {seen} times"
            time.sleep(GLANCE)
        adopter.kill()
        adopter.communicate()
        self.kills += 1
        self.amid += is_held()

    @contextmanager
    def adopting(self, command: list[str]) -> Iterator[dict[str, Any]]:
        """The adopter beside the block, with --follow. Afterwards: what it has printed as it was stopped."""
        adopter = self._adopter([*command, "--follow"])
        told: dict[str, Any] = {}
        yield told
        adopter.terminate()
        out, _ = adopter.communicate(timeout=PATIENCE)
        assert adopter.returncode == 0
        told |= json.loads(out)

    def adopt(self, command: list[str]) -> tuple[int, dict[str, Any]]:
        """A run of the adopter to its end: the exit code, and what it has printed."""
        adopter = self._adopter(command)
        out, _ = adopter.communicate(timeout=PATIENCE)
        told: dict[str, Any] = json.loads(out)
        return adopter.returncode, told

    def _adopter(self, command: list[str]) -> subprocess.Popen[bytes]:
        adopter = subprocess.Popen(
            [*BIDE, "adopt", *command, "--json", "--url", self._url],
            cwd=self.folder,
            env=plain_environment(PYTHONPATH=f"{ROOT}/src:{ROOT}"),
            start_new_session=True,
            stdout=subprocess.PIPE,
        )
        self._running.append(adopter)
        return adopter

    def verdict(self, total: int) -> Verdict:
        """Of messages that are numbered from 0. To be asked when no process handles any more."""
        seen, early = Counter[int](), 0
        for who in (OLD, NEW):
            for line in self._file(who).read_text().splitlines():
                number, due, at = map(int, line.split())
                seen[number] += 1
                early += who == NEW and at < due
        lost = sum(number not in seen for number in range(total))
        doubled = sum(times - 1 for times in seen.values())
        return Verdict(total, self.count(OLD), self.count(NEW), lost, doubled, early, self.kills, self.amid)

    def _file(self, who: str) -> Path:
        return self.folder / f"{who}.records"
