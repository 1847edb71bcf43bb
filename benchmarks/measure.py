"""Timing, five times over: things that are compared take turns, so that a noisy machine is noisy to all of them."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

RUNS = 5


class Figure(NamedTuple):
    name: str
    unit: str
    median: float
    low: float
    high: float
    bar: str = ""

    def line(self) -> str:
        numbers = " ".join(f"{value:>12,.1f}" for value in (self.median, self.low, self.high))
        return f"{self.name:<52} {numbers}  {self.unit:<10} {self.bar}"


HEADER = f"{'':<52} {'median':>12} {'lowest':>12} {'highest':>12}  {'unit':<10} bar"


def rates(work: Mapping[str, Callable[[], int]], bars: Mapping[str, str] | None = None, runs: int = RUNS) -> list[Figure]:
    """Things done a second. Each piece of work does its own setting up before it starts `clock`, and says how much it did."""
    seen: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(runs):
        for name, each in work.items():
            gc.collect()
            clock.start()
            count = each()
            seen[name].append(count / clock.seconds())
    return [figure(name, "a second", values, (bars or {}).get(name, "")) for name, values in seen.items()]


def figure(name: str, unit: str, values: list[float], bar: str = "") -> Figure:
    return Figure(name, unit, statistics.median(values), min(values), max(values), bar)


class Clock:
    """Started again by work that has setting up to do."""

    def __init__(self) -> None:
        self._begin = 0.0
        self._end: float | None = None

    def start(self) -> None:
        self._begin, self._end = time.perf_counter(), None

    def stop(self) -> None:
        self._end = time.perf_counter()

    def seconds(self) -> float:
        return (self._end or time.perf_counter()) - self._begin


clock = Clock()
