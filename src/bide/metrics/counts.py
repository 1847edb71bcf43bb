"""What processes have counted, in memory that they share: it is still there when one of them was killed.

Each process of a worker adds to numbers of its own, and the one that replaces it goes on with them. So no counter ever falls,
and no two processes add to the same number. Whoever answers a scrape adds up the numbers of all.
"""

import fcntl
import mmap
import os
import struct
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from bide.queue import EngineCalled, MessagesBegun, MessagesEnded, MessagesSent

TOPICS: Final = 200  # by default; what further topics count is added up as `other`
MOST_TOPICS: Final = 10_000
OTHER: Final = "other"
SENT: Final = ("created", "kept", "replaced", "postponed", "merged", "duplicate", "exists")
ENDED: Final = ("done", "retried", "released", "dead", "expired", "lost")
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
CALL_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_VERBS, _ERRORS = 60, 40  # more than there are
_IDLE = "wait"  # a verb that lasts until there is something to do, which tells nothing of the engine
_SENT: Mapping[str, int] = {name: column for column, name in enumerate(SENT)}
_ENDED: Mapping[str, int] = {name: column for column, name in enumerate(ENDED)}
_COUNT = struct.Struct("<q")
_NUMBER = 8  # bytes


class Names:
    """A list of names that only grows, up to a number of them. All processes see the same one."""

    def __init__(self, view: memoryview, most: int, width: int, lock: "SharedLock") -> None:
        self._view = view
        self._most = most
        self._width = width
        self._lock = lock
        self._rows: dict[str, int] = {OTHER: 0}

    @staticmethod
    def size(most: int, width: int) -> int:
        return _COUNT.size + most * width

    def row(self, name: str) -> int:
        """1 and up in the order in which they came, or 0 where there is no room for this one."""
        found = self._rows.get(name)
        if found is None and not self._is_full():
            self._read()
            found = self._rows.get(name)
            if found is None:
                found = self._added(name)
        return found or 0

    def _is_full(self) -> bool:
        """Nothing is added any more then, and nobody needs the lock."""
        return len(self._rows) > self._most

    def each(self) -> Sequence[str]:
        """By row."""
        self._read()
        return list(self._rows)

    def _added(self, name: str) -> int:
        with self._lock.held():
            self._read()
            written = name.encode()
            count = len(self._rows) - 1
            if name not in self._rows and count < self._most and len(written) <= self._width:
                at = _COUNT.size + count * self._width
                self._view[at : at + self._width] = written.ljust(self._width, b"\0")
                _COUNT.pack_into(self._view, 0, count + 1)  # last: a process may be killed in between
                self._read()
        return self._rows.get(name, 0)

    def _read(self) -> None:
        """What others have added since."""
        for place in range(len(self._rows) - 1, _COUNT.unpack_from(self._view)[0]):
            at = _COUNT.size + place * self._width
            self._rows[bytes(self._view[at : at + self._width]).rstrip(b"\0").decode()] = place + 1


class SharedLock:
    """Of all threads of all processes that have the file. One that is killed lets go of it."""

    def __init__(self, file: int | None) -> None:
        self._file = file
        self._threads = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._threads:
            if self._file is not None:
                fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                if self._file is not None:
                    fcntl.lockf(self._file, fcntl.LOCK_UN)


class Block(NamedTuple):
    """Rows of numbers, one after the other."""

    start: int
    rows: int
    width: int

    def at(self, row: int) -> int:
        return self.start + row * self.width


class CountsLayout:
    """Where the numbers of a process are."""

    def __init__(self, topics: int) -> None:
        self.topics: int = topics
        self.size: int = 0
        rows = topics + 1
        self.sent: Block = self._block(rows, len(SENT))
        self.begun: Block = self._block(rows, 1)
        self.ended: Block = self._block(rows, len(ENDED))
        self.gone: Block = self._block(rows, 1)  # what earlier processes had begun when they died
        self.lateness: Block = self._block(rows, len(SECONDS) + 2)  # how many took so long, longer than all, and the sum
        self.seconds: Block = self._block(rows, len(SECONDS) + 2)
        self.calls: Block = self._block(_VERBS + 1, len(CALL_SECONDS) + 2)
        self.errors: Block = self._block(_VERBS + 1, _ERRORS + 1)
        self.slots: Block = self._block(1, 1)

    def _block(self, rows: int, width: int) -> Block:
        block = Block(self.size, rows, width)
        self.size += rows * width
        return block


class SharedCounts:
    """The numbers of some processes, and the names of their rows."""

    def __init__(self, file: int | None = None, *, processes: int = 1, topics: int = TOPICS) -> None:
        """`file`: one of `counts_file`, which others map, too. Without it, they are in this process only."""
        self.layout: CountsLayout = CountsLayout(topics)
        self.processes: int = processes
        self.shared: bool = file is not None  # with other processes; else each fork has a copy, and goes on with it
        sizes = (Names.size(topics, 128), Names.size(_VERBS, 32), Names.size(_ERRORS, 64))
        names = -(-sum(sizes) // _NUMBER) * _NUMBER
        size = names + processes * self.layout.size * _NUMBER
        if file is not None:
            os.set_inheritable(file, False)
            if os.fstat(file).st_size < size:
                os.ftruncate(file, size)
        whole = memoryview(bytearray(size) if file is None else mmap.mmap(file, size))
        lock = SharedLock(file)
        first, second, third = whole[: sizes[0]], whole[sizes[0] : sizes[0] + sizes[1]], whole[sizes[0] + sizes[1] : sum(sizes)]
        self.topics: Names = Names(first, topics, 128, lock)
        self.verbs: Names = Names(second, _VERBS, 32, lock)
        self.errors: Names = Names(third, _ERRORS, 64, lock)
        self._numbers: memoryview[float] = whole[names:].cast("d")

    def of(self, process: int) -> "memoryview[float]":
        """The numbers of one process."""
        size = self.layout.size
        return self._numbers[process * size : (process + 1) * size]

    def clear(self, process: int) -> None:
        """This process has died, and another one begins with its numbers."""
        numbers, layout = self.of(process), self.layout
        numbers[layout.slots.start] = 0
        for row in range(layout.topics + 1):
            numbers[layout.gone.at(row)] = under_way(numbers, layout, row)

    def total(self, processes: int | None = None) -> Sequence[float]:
        """The numbers of all processes, or of the first ones, added up."""
        parts = [self.of(process).tolist() for process in range(self.processes if processes is None else processes)]
        return parts[0] if len(parts) == 1 else [sum(each) for each in zip(*parts, strict=True)]


class Counting:
    """SharedCounts the events of one process, as a subscriber of its queues."""

    def __init__(self, counts: SharedCounts, process: int = 0) -> None:
        self._counts = counts
        self._numbers = counts.of(process)
        self._owner = os.getpid() if counts.shared else None
        self._lock = threading.Lock()
        counts.clear(process)  # what an earlier process with these numbers had begun, it does not have any more

    def serves(self, slots: int) -> None:
        """This process has a worker, with so many slots."""
        self._numbers[self._counts.layout.slots.start] = slots

    def sent(self, event: MessagesSent) -> None:
        self._add(self._counts.layout.sent, event.topic, _SENT[event.outcome], event.count)

    def begun(self, event: MessagesBegun) -> None:
        self._add(self._counts.layout.begun, event.topic, 0, event.count)
        self._note(self._counts.layout.lateness, event.topic, event.lateness)

    def ended(self, event: MessagesEnded) -> None:
        self._add(self._counts.layout.ended, event.topic, _ENDED[event.outcome], event.count)
        self._note(self._counts.layout.seconds, event.topic, event.seconds)

    def called(self, event: EngineCalled) -> None:
        if self._is_fork():
            return
        row, layout = self._counts.verbs.row(event.verb), self._counts.layout
        with self._lock:
            if event.verb != _IDLE:
                _observe(self._numbers, layout.calls.at(row), CALL_SECONDS, [event.seconds])
            if isinstance(event.error, Exception):
                self._numbers[layout.errors.at(row) + self._counts.errors.row(type(event.error).__name__)] += 1

    def _add(self, block: Block, topic: str, column: int, count: int) -> None:
        if not self._is_fork():
            row = self._counts.topics.row(topic)
            with self._lock:
                self._numbers[block.at(row) + column] += count

    def _note(self, block: Block, topic: str, seconds: Sequence[float]) -> None:
        if seconds and not self._is_fork():
            row = self._counts.topics.row(topic)
            with self._lock:
                _observe(self._numbers, block.at(row), SECONDS, seconds)

    def _is_fork(self) -> bool:
        """A process that a handler has forked adds nothing to the numbers of this one."""
        return self._owner is not None and os.getpid() != self._owner


def under_way(numbers: Sequence[float], layout: CountsLayout, row: int) -> float:
    """What has begun and not ended."""
    begun, ended = layout.begun.at(row), layout.ended.at(row)
    return numbers[begun] - sum(numbers[ended : ended + len(ENDED)])


def _observe(numbers: "memoryview[float]", at: int, bounds: Sequence[float], values: Sequence[float]) -> None:
    """Add values to a histogram. A lot has many, and in their order few steps from one bucket to the next."""
    values = sorted(values)
    if values[0] < 0:  # by a clock that was set
        values = [max(0.0, each) for each in values]
    counted = 0
    for bucket in range(bisect_left(bounds, values[0]), bisect_left(bounds, values[-1])):
        below = bisect_right(values, bounds[bucket])
        numbers[at + bucket] += below - counted
        counted = below
    numbers[at + bisect_left(bounds, values[-1])] += len(values) - counted
    numbers[at + len(bounds) + 1] += sum(values)
