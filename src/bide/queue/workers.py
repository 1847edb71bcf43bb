"""What workers tell of themselves: a message of each process in a topic of bide's own, which nobody receives.

A process writes its message anew every few seconds. It stays for an hour after the last time, also if the process was killed.
"""

import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from bide.engines.base import NewMessage, Stored
from bide.engines.guard.able import others_can
from bide.errors import Unsupported
from bide.queue.schedules.records import WORKERS
from bide.queue.setup import Setup
from bide.types import WorkerInfo, WorkerMinute

KEPT = 3_600_000  # ms after the last time
NEEDED = ("keys", "inspect")
_MINUTE = 60_000  # ms
_MINUTES = 60


class Process(msgspec.Struct, frozen=True):
    """Who tells. Times are in ms."""

    host: str
    pid: int
    version: str
    topics: Sequence[str]
    started: int
    stopped: bool = False


class Work(msgspec.Struct, frozen=True):
    """What it does."""

    running: Mapping[str, int]
    done: int  # since it began
    failed: int
    minutes: Sequence[tuple[int, int, int, int]]  # when each began, what was done in it and failed, and how late at most


class _WorkerReport(msgspec.Struct, frozen=True):
    process: Process
    work: Work


class Minutes:
    """What a process has done in each of the last sixty minutes; those in which it has done nothing are left out."""

    def __init__(self) -> None:
        self._minutes: deque[tuple[int, int, int, int]] = deque(maxlen=_MINUTES)
        self._done = 0
        self._failed = 0
        self._late = 0

    def late(self, ms: int) -> None:
        """A claim has brought a message that was so late."""
        self._late = max(self._late, ms)

    def until(self, now: int, done: int, failed: int) -> Sequence[tuple[int, int, int, int]]:
        """With what was done since the last time; the numbers are those since the process began."""
        begin = now - now % _MINUTE
        more = (begin, done - self._done, failed - self._failed, self._late)
        self._done, self._failed, self._late = done, failed, 0
        if any(more[1:]):
            if self._minutes and self._minutes[-1][0] == begin:
                _, did, lost, late = self._minutes.pop()
                more = (begin, did + more[1], lost + more[2], max(late, more[3]))
            self._minutes.append(more)
        while self._minutes and self._minutes[0][0] <= now - KEPT:
            self._minutes.popleft()
        return list(self._minutes)


def key(name: str) -> str:
    """Of a worker's messages. Processes in containers may have the same name, and a process may have several workers."""
    return f"{name} {os.urandom(6).hex()}"


def report(key: str, process: Process, work: Work) -> NewMessage:
    """The message, to be put. It ends by itself."""
    body = msgspec.json.encode(_WorkerReport(process, work))
    return NewMessage(WORKERS, body, KEPT, key=key, if_exists="replace", expires_in=1)


def check(setup: Setup) -> None:
    """Refuse an engine that keeps no such messages."""
    can = setup.source.capabilities
    if not all(getattr(can, each) for each in NEEDED):
        raise Unsupported(f"{setup.source.shown} can't keep what workers tell of themselves. {others_can(*NEEDED)}")


def known(stored: Iterable[Stored], ahead: int) -> list[WorkerInfo]:
    """Who has told what, by name; what somebody else has put there is left out.

    `ahead`: by how much the engine's clock, which says when they were seen, is ahead of the one here. Both in ms.
    """
    found: list[WorkerInfo] = []
    for each in stored:
        try:
            told = msgspec.json.decode(each.body, type=_WorkerReport)
        except msgspec.MsgspecError:
            continue
        if each.key is not None:
            found.append(_info(each.key.partition(" ")[0], told.process, told.work, each.due - KEPT - ahead))
    return sorted(found, key=lambda info: (info.name, info.started))


def _info(name: str, process: Process, work: Work, seen: int) -> WorkerInfo:
    return WorkerInfo(
        name=name,
        host=process.host,
        pid=process.pid,
        version=process.version,
        topics=process.topics,
        started=process.started,
        seen=seen,
        stopped=process.stopped,
        running=work.running,
        done=work.done,
        failed=work.failed,
        minutes=[WorkerMinute(begin, done, failed, late / 1000) for begin, done, failed, late in work.minutes],
    )
