"""The arithmetic: medians and spreads of rounds, and ratios of figures that were measured beside each other."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from benchmarks.peers.peer import Peer
from benchmarks.peers.registry import BIDE, PEERS, beside

QUIET = 0.3  # processors that other programs may use before a measurement counts as disturbed


class Middle(NamedTuple):
    """A median, and between what the values lay."""

    median: float
    low: float
    high: float


def middle(values: Sequence[float]) -> Middle:
    return Middle(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Rounds:
    """A peer's figures, one a round; and those of bide in the same rounds, where the two took turns."""

    figures: Sequence[Mapping[str, float]]
    beside: Sequence[Mapping[str, float]]
    version: str = ""
    """Of the peer, when it was measured."""
    date: str = ""
    """When that was."""
    busy: float = 0.0
    """Processors that other programs used then: the median of looks between the measurements."""

    @property
    def quiet(self) -> bool:
        return self.busy < QUIET

    def paired(self) -> "Rounds":
        """Without the rounds in which one of the two gave no figure."""
        pairs = [(mine, ours) for mine, ours in zip(self.figures, self.beside, strict=True) if mine and ours]
        return replace(self, figures=[mine for mine, _ in pairs], beside=[ours for _, ours in pairs])

    def of(self, what: str) -> Middle | None:
        """A figure of the peer, if it was measured."""
        values = [figures[what] for figures in self.figures if what in figures]
        return middle(values) if values else None

    def ours(self, what: str) -> Middle | None:
        """The same of bide, beside it."""
        values = [figures[what] for figures in self.beside if what in figures]
        return middle(values) if values else None

    def ratio(self, what: str) -> Middle | None:
        """How many times the peer's figure bide's is: a ratio each round, and their median."""
        values = [ours[what] / mine[what] for mine, ours in zip(self.figures, self.beside, strict=True) if what in mine]
        return middle(values) if values else None


def bide_of(found: Mapping[str, Rounds], what: str, ours: Peer = BIDE) -> Middle | None:
    """bide's own figure on that server: over all rounds beside all peers there, or on its own.

    What was measured beside other programs does not count, if there is more.
    """
    there = [rounds for name, rounds in found.items() if name in PEERS and beside(PEERS[name]) is ours]
    there = [rounds for rounds in there if rounds.quiet] or there
    values = [figures[what] for rounds in there for figures in rounds.beside if what in figures]
    if not values and ours.name in found:
        return found[ours.name].of(what)
    return middle(values) if values else None


class Bar(NamedTuple):
    """A figure that bide must reach."""

    what: str
    least: float
    reached: Middle | None

    def line(self) -> str:
        if self.reached is None:
            return f"{self.what:<58} {'not measured':>34}   bar {self.least:,g}"
        verdict = "reached" if self.reached.median >= self.least else "MISSED"
        numbers = " ".join(f"{value:>11,.2f}" for value in self.reached)
        return f"{self.what:<58} {numbers}   bar {self.least:,g}: {verdict}"


def bars(results: Mapping[str, Mapping[str, Rounds]]) -> list[Bar]:
    """Median, lowest and highest of each."""

    def ratio(work: str, peer: str) -> Middle | None:
        rounds = results.get(work, {}).get(peer)
        return rounds.ratio("a second") if rounds else None

    batch = results.get("batch", {})
    return [
        Bar("drain, times BullMQ on Node", 3.5, ratio("drain", "bullmq")),
        Bar("drain, times Celery", 35, ratio("drain", "celery")),
        Bar("send_many of plain messages, a second", 200_000, bide_of(batch, "plain")),
        Bar("send_many with times of their own, a second", 160_000, bide_of(batch, "a second")),
        Bar("send_many with times of their own, times a ZADD pipeline", 0.9, ratio("batch", "zset")),
        Bar("send one by one, times a bare ZADD", 0.65, ratio("single", "zset")),
    ]
