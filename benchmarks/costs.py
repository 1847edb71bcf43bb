"""What work with a server costs: things a second, and µs of CPU a thing, which the noise of a machine moves less."""

import gc
import os
import random
import resource
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from benchmarks.measure import Figure, figure
from bide import Outgoing

HOUR = 3_600  # seconds
PART = 100_000  # messages that are made before they are sent


def body(size: int = 100) -> dict[str, Any]:
    """As it is stored, it has so many bytes."""
    plain: dict[str, Any] = {"order": 42, "customer": "c-1234567", "note": ""}
    return plain | {"note": "x" * (size - len(msgspec.json.encode(plain)))}


class Cost(NamedTuple):
    """Of one thing; `rate` is how many of them a second."""

    rate: float
    client: float  # µs of CPU, of this process
    server: float  # and of the server


class Meter:
    """Measures what happens between start and stop, of this process and of a server that it uses."""

    def __init__(self) -> None:
        self._server = self._own = self._wall = 0.0

    def fresh(self) -> str:
        """The URL of the server, where nothing is left of the work before."""
        raise NotImplementedError

    def server(self) -> float:
        """Seconds of CPU that the server has used."""
        raise NotImplementedError

    def start(self) -> None:
        gc.collect()
        self._server, self._own, self._wall = self.server(), own(), time.perf_counter()

    def stop(self, count: int) -> Cost:
        wall, mine, servers = time.perf_counter() - self._wall, own() - self._own, self.server() - self._server
        return Cost(count / wall, 1e6 * mine / count, 1e6 * servers / count)


def own() -> float:
    """Seconds of CPU that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def figures(name: str, costs: list[Cost], bar: str = "") -> list[Figure]:
    return [
        figure(name, "a second", [cost.rate for cost in costs], bar),
        figure("… client's CPU", "µs", [cost.client for cost in costs]),
        figure("… server's CPU", "µs", [cost.server for cost in costs]),
    ]


def load() -> Figure:
    """How busy the machine was in the last minute, with us and with others."""
    return figure("load average at the end", "", [os.getloadavg()[0]])


def spread(
    count: int, begin: float, seconds: float, what: Any, *, keys: bool = False, seed: int = 1
) -> Iterator[list[Outgoing]]:
    """Messages that fall due at random in a stretch of time that begins so many seconds from now, in parts to be sent."""
    chance = random.Random(seed)
    for first in range(0, count, PART):
        yield [
            Outgoing(what, delay=begin + chance.random() * seconds, key=f"order:{number}" if keys else None)
            for number in range(first, min(count, first + PART))
        ]
