"""Stops, wakes and kills the processes of a server that has several, of which tests are not the parent."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.servers.server import NotStarted

ENDED = "Z"  # and nobody has asked for its exit code yet
STOPPED = "T"


def children(pid: int) -> list[int]:
    """The processes that this one has started and that have not ended."""
    return [each for each, (parent, state) in _processes().items() if parent == pid and state != ENDED]


def descendants(pid: int) -> list[int]:
    """Its children, and theirs, that have not ended."""
    found, all_of_them = [pid], _processes()
    for parent in found:
        found += [each for each, (its_parent, state) in all_of_them.items() if its_parent == parent and state != ENDED]
    return found[1:]


def stop_all(pids: Sequence[int], patience: float) -> None:
    """Freeze these processes, and wait until they are, or have ended."""
    _signal(pids, signal.SIGSTOP)
    _wait(lambda: set(_states(pids)) <= {STOPPED, ENDED}, patience, "frozen")


def wake_all(pids: Iterable[int]) -> None:
    """Let frozen processes go on."""
    _signal(pids, signal.SIGCONT)


def kill_all(pids: Sequence[int], ours: subprocess.Popen[bytes], patience: float) -> None:
    """End these processes at once, and wait until they have ended. One of them, the first to be told, is ours."""
    _signal(pids, signal.SIGKILL)
    ours.wait(patience)
    wait_until_ended(pids, patience)


def wait_until_ended(pids: Sequence[int], patience: float) -> None:
    """Wait for processes that end by themselves."""
    _wait(lambda: set(_states(pids)) <= {ENDED}, patience, "ended")


def ended(pid: int) -> bool:
    """Whether there is no such process any more."""
    return set(_states([pid])) <= {ENDED}


def core_seconds(pid: int) -> float:
    """What it has taken of a core, with its children that have ended; 0 where the system does not say."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    ticks = told.rpartition(")")[2].split()[11:15]  # its own and its children's, each as a user and in the system
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _states(pids: Sequence[int]) -> list[str]:
    """Of each that is still there, what it does, as one letter."""
    found = _processes()
    return [found[pid][1] for pid in pids if pid in found]


def _processes() -> dict[int, tuple[int, str]]:
    """Of all processes of this machine, the parent and the state."""
    said = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = (line.split() for line in said.splitlines())
    return {int(pid): (int(parent), state[0]) for pid, parent, state in rows}


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait(true: Callable[[], bool], patience: float, state: str) -> None:
    give_up = time.monotonic() + patience
    while not true():
        if time.monotonic() > give_up:
            raise NotStarted(f"the server's processes were not {state} in {patience:.0f} seconds")
        time.sleep(0.005)
