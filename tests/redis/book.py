"""A book of calls: what each concerned, when it began and ended, and how; and which waited for a part that was away."""

import contextlib
import math
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from bide.errors import BideError

PROMPT = 10.0  # seconds: who waits for a part that is silent waits 15; a machine that is busy may take seven for a call
ANY: frozenset[int] = frozenset()  # what needs none of the parts in particular
TICK, STILL = 0.1, 0.5  # seconds between two ticks of a clock, and what is so late that nothing here ran meanwhile


class Call(NamedTuple):
    what: str
    parts: frozenset[int]  # those that it needs: it may wait for any of them
    began: float
    ended: float
    error: str
    prompt: float = PROMPT  # seconds that it may take if it waits for no part

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def __str__(self) -> str:
        parts = ",".join(map(str, sorted(self.parts))) or "any"
        return f"{self.what} (parts {parts}) took {self.seconds:.1f} s{': ' + self.error if self.error else ''}"


class Entry:
    """A call under way. Who learns only from its answer which parts it needed, says so then."""

    def __init__(self, what: str, parts: Collection[int]) -> None:
        self.what = what
        self.parts = frozenset(parts)
        self.began = time.monotonic()
        self.failed = ""

    def ended(self, at: float) -> Call:
        return Call(self.what, self.parts, self.began, at, self.failed)


class Window(NamedTuple):
    """When a part was away."""

    part: int
    began: float
    gone: float  # it went between these two
    ended: float

    def concerns(self, call: Call) -> bool:
        """Whether it was under way meanwhile, and may not wait for the part."""
        return self.part not in call.parts and call.began < self.ended and call.ended > self.began


class Book:
    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._open: set[Entry] = set()
        self._changed = threading.Condition()
        self.accused: list[tuple[str, frozenset[int]]] = []  # what may not be, unless one of these parts is away
        self.broken: list[BaseException] = []  # what ended somebody
        self._still: list[tuple[float, float]] = []  # when all of this process stood still, as while it begins another one

    def watch(self, over: threading.Event) -> None:
        """See when this process stands still, which is nobody's fault but the machine's. For a thread of its own."""
        last = time.monotonic()
        while not over.wait(TICK):
            now = time.monotonic()
            if now - last > STILL:
                self._still.append((last, now))
            last = now

    @contextlib.contextmanager
    def call(self, what: str, parts: Collection[int] = ANY) -> Iterator[Entry]:
        """An error of bide is written down, and goes no further."""
        entry = self.begin(what, parts)
        try:
            yield entry
        except BideError as error:
            entry.failed = f"{type(error).__name__}: {error}"
        finally:
            self.end(entry)

    def begin(self, what: str, parts: Collection[int]) -> Entry:
        entry = Entry(what, parts)
        with self._changed:
            self._open.add(entry)
        return entry

    def end(self, entry: Entry) -> None:
        with self._changed:
            self._open.discard(entry)
            self._calls.append(entry.ended(time.monotonic()))
            self._changed.notify_all()

    def note(self, what: str, parts: Collection[int], began: float, error: str = "", prompt: float = PROMPT) -> None:
        """Something that took from then until now."""
        with self._changed:
            self._calls.append(Call(what, frozenset(parts), began, time.monotonic(), error, prompt))
            self._changed.notify_all()

    def accuse(self, what: str, parts: Collection[int]) -> None:
        with self._changed:
            self.accused.append((what, frozenset(parts)))

    def breaks(self, error: BaseException) -> None:
        with self._changed:
            self.broken.append(error)
            self._changed.notify_all()

    def calls(self) -> list[Call]:
        """All, those under way as if they ended now."""
        with self._changed:
            now = time.monotonic()
            return [*self._calls, *(each.ended(now) for each in self._open)]

    def wait_for_each(self, kinds: Collection[tuple[str, frozenset[int]]], many: int, patience: float) -> None:
        """Until so many more of each have ended well."""
        began = time.monotonic()

        def lacking() -> list[tuple[str, frozenset[int]]]:
            done: dict[tuple[str, frozenset[int]], int] = defaultdict(int)
            for call in self._calls:
                if call.began >= began and not call.error:
                    done[call.what, call.parts] += 1
            return [kind for kind in kinds if done[kind] < many]

        with self._changed:
            ended = self._changed.wait_for(lambda: self.broken or not lacking(), patience)
            if self.broken:
                raise self.broken[0]
            assert ended, f"after {patience:.0f} s there was too little of {lacking()}"

    def held_up(self, calls: Sequence[Call], window: Window) -> dict[str, list[Call]]:
        """What failed, or was not prompt, though it needed only parts that were well."""
        found: dict[str, list[Call]] = defaultdict(list)
        for call in calls:
            if window.concerns(call) and (call.error or self._waited(call, window) > call.prompt):
                found[call.what].append(call)
        return found

    def _waited(self, call: Call, window: Window) -> float:
        """The seconds since the part began to go, without those in which the whole process stood still."""
        began = max(call.began, window.began)
        still = (min(call.ended, end) - max(began, begin) for begin, end in self._still)
        return call.ended - began - sum(max(0.0, each) for each in still)


def percentile(seconds: Sequence[float], share: float) -> float:
    in_order = sorted(seconds)
    return in_order[max(0, math.ceil(share * len(in_order)) - 1)] if in_order else math.nan


def table(calls: Sequence[Call], window: Window) -> str:
    """For each kind of call: how long it took before, and while the part was away, in ms."""
    kinds: dict[str, tuple[list[float], list[Call]]] = defaultdict(lambda: ([], []))
    for call in calls:
        if call.ended < window.began and not call.error:
            kinds[call.what][0].append(1_000 * call.seconds)
        elif window.concerns(call):
            kinds[call.what][1].append(call)
    lines = [f"{'what':<28} {'before':>7} {'p50':>7} {'p99':>7}   {'away':>6} {'p50':>7} {'p99':>7} {'max':>7} {'failed':>6}"]
    for what, (before, there) in sorted(kinds.items()):
        during = [1_000 * call.seconds for call in there]
        lines.append(
            f"{what:<28} {len(before):>7} {percentile(before, 0.5):>7.0f} {percentile(before, 0.99):>7.0f}   {len(during):>6} "
            f"{percentile(during, 0.5):>7.0f} {percentile(during, 0.99):>7.0f} {max(during, default=math.nan):>7.0f} "
            f"{sum(bool(call.error) for call in there):>6}"
        )
    return "\n".join(lines)
