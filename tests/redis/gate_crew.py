"""Processes that go in and out of a few gates, and record when each was inside."""

import itertools
import multiprocessing
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bide.engines.base import Settings
from bide.engines.gates import Entry, Held
from bide.engines.registry import source
from bide.engines.sync import Engine
from bide.errors import EngineError

GATES, LEASE = 20, 3_000
SPAWN = multiprocessing.get_context("spawn")
PATIENCE = 30.0  # seconds


class Stay(NamedTuple):
    """Somebody counted on its place from one moment to another, by the clock of the machine."""

    token: str
    began: float
    ended: float
    whose: str


def work(url: str, log: Path, name: str, stop: Path) -> None:
    """Until somebody says stop. What is written is written before it is done, or after it was got."""
    engine, draw = source(Settings(url=url)).sync(), random.Random(name)
    engine.open()
    with log.open("a", buffering=1) as record:
        number = 0
        while not stop.exists():
            number += 1
            try:
                _one(engine, draw, f"{name}.{number}", record.write)
            except EngineError as error:
                record.write(f"error {error!r}\n")
    engine.close()


def _one(engine: Engine, draw: random.Random, holder: str, write: Callable[[str], object]) -> None:
    """Try to get into a gate, in line or not, and do some work there."""
    gates = engine.gates
    gate, waiter = f"g{draw.randrange(GATES)}", draw.choice((None, f"for {holder}"))
    for _ in range(draw.randrange(1, 8)):
        asked = time.monotonic()
        [entered] = gates.enter([Entry(gate, holder, LEASE, 1, waiter)])
        if entered.token is not None:
            write(f"in {gate} {entered.token} {asked} {time.monotonic()}\n")
            held = [Held(gate, holder, entered.token)]
            if draw.random() < 0.5:
                gates.keep(held, LEASE)
            write(f"out {gate} {entered.token} {time.monotonic()}\n")
            gates.leave(held)
            return
        if waiter is None:
            break
        engine.tend(10)
    if waiter is not None:
        gates.leave([Held(gate, waiter, None)])


class Crew:
    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self._stop = folder / "stop"
        self._at_work: list[tuple[str, multiprocessing.process.BaseProcess]] = []
        self.killed: dict[str, float] = {}  # and when it was certainly dead

    def join_in(self, count: int) -> None:
        for _ in range(count):
            name = f"p{len(self._at_work) + len(self.killed)}"
            process = SPAWN.Process(target=work, args=(self._url, self._log(name), name, self._stop))
            process.start()
            self._at_work.append((name, process))

    @contextmanager
    def at_work(self, count: int) -> Iterator[None]:
        self.join_in(count)
        try:
            yield
        finally:
            self._stop.touch()
            for _, process in self._at_work:
                process.join(PATIENCE)
                if process.is_alive():
                    process.kill()
        assert [process.exitcode for _, process in self._at_work] == [0] * len(self._at_work)

    def kill_one(self) -> None:
        name, process = self._at_work.pop(0)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(PATIENCE)
        self.killed[name] = time.monotonic()

    def entered(self) -> int:
        """How often anybody was let in until now."""
        return sum(path.read_text().count("in g") for path in self._folder.glob("*.log"))

    def let_in(self, more: int) -> None:
        """Wait until so many more were."""
        before, end = self.entered(), time.monotonic() + PATIENCE
        while self.entered() < before + more:
            assert time.monotonic() < end, f"of {more} only {self.entered() - before} got in"
            time.sleep(0.05)

    def stays(self) -> dict[str, list[Stay]]:
        """By gate, in their order."""
        found: dict[str, list[Stay]] = defaultdict(list)
        for path in self._folder.glob("*.log"):
            for gate, stay in _stays(path.stem, path.read_text().splitlines(), self.killed.get(path.stem)):
                found[gate].append(stay)
        return {gate: sorted(stays, key=lambda each: each.began) for gate, stays in found.items()}

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def _stays(name: str, lines: Sequence[str], died: float | None) -> Iterator[tuple[str, Stay]]:
    inside: tuple[str, str, float, float] | None = None
    for line in lines:
        kind, *words = line.split(" ")
        if kind == "in":
            if inside:  # of its lease, as it never left
                yield inside[0], Stay(inside[1], inside[3], inside[2] + LEASE / 1_000, name)
            inside = words[0], words[1], float(words[2]), float(words[3])
        elif kind == "out" and inside and words[1:2] == [inside[1]]:
            yield inside[0], Stay(inside[1], inside[3], float(words[2]), name)
            inside = None
    if inside:
        ends = inside[2] + LEASE / 1_000
        yield inside[0], Stay(inside[1], inside[3], min(ends, died or ends), name)


def overlaps(stays: dict[str, list[Stay]]) -> list[str]:
    """Where two were in one gate at once, or a later one has a smaller token."""
    found = []
    for gate, in_order in stays.items():
        for one, other in itertools.pairwise(in_order):
            if other.began < one.ended or other.token <= one.token:
                found.append(f"{gate}: {one} and {other}")
    return found
