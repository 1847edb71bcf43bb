"""How late a worker on Redis calls its handlers, above a process that only sleeps; both by turns, in asyncio and in uvloop."""

from collections import Counter

from benchmarks.costs import load
from benchmarks.lateness import in_loop, loops, of_sleep, of_worker, part
from benchmarks.measure import Figure, figure
from benchmarks.redis_meter import Meter
from bide.engines.guard.hooks import Call, Hook
from tests.servers.redis import RedisServer

RUNS = 3  # each takes as long as its messages are apart
SLOW, FAST = (2_000, 100), (25_000, 5_000)  # messages, and how many a second
FEW = 500
SHARES = {"p50": 0.5, "p99": 0.99}
MORE = {"p50": "<= 0.7", "p99": "<= 2"}


class Counted(Hook):
    """A hook that counts the calls of each verb."""

    def __init__(self) -> None:
        self.calls = Counter[str]()

    def before(self, call: Call) -> None:
        self.calls[call.verb] += 1


def run() -> list[Figure]:
    with RedisServer() as server:
        meter = Meter(server)
        sleeps: list[list[float]] = []
        slow: dict[str, list[list[float]]] = {name: [] for name in loops()}
        fast: list[list[float]] = []
        for _ in range(RUNS):
            sleeps.append(of_sleep(*SLOW))
            for name, loop in loops().items():
                meter.empty()
                slow[name].append(in_loop(loop, of_worker(meter.url, *SLOW)))
            meter.empty()
            fast.append(in_loop(loops()[""], of_worker(meter.url, *FAST)))
        lines = [
            figure(f"100/s, time.sleep, {name}", "ms", [part(each, share) for each in sleeps]) for name, share in SHARES.items()
        ]
        for name, runs in slow.items():
            lines += _above(f"100/s, worker{name}", runs, sleeps)
            lines.append(_claims(meter, name))
        lines += [
            figure(f"5,000/s, worker, {name}", "ms", [part(each, share) for each in fast]) for name, share in SHARES.items()
        ]
        lines.append(figure("5,000/s, worker, earliest", "ms", [each[0] for each in fast], ">= 0"))
        return [*lines, load()]


def _above(what: str, runs: list[list[float]], sleeps: list[list[float]]) -> list[Figure]:
    lines = []
    for name, share in SHARES.items():
        lines.append(figure(f"{what}, {name}", "ms", [part(each, share) for each in runs]))
        above = [part(ours, share) - part(bare, share) for ours, bare in zip(runs, sleeps, strict=True)]
        lines.append(figure(f"… above time.sleep's {name}", "ms", above, MORE[name]))
    return [*lines, figure(f"{what}, earliest", "ms", [each[0] for each in runs], ">= 0")]


def _claims(meter: Meter, name: str) -> Figure:
    """In runs of their own, as it takes time to count."""
    shares = []
    for _ in range(RUNS):
        meter.empty()
        counted = Counted()
        in_loop(loops()[name], of_worker(meter.url, FEW, 100, [counted]))
        shares.append(counted.calls["claim"] / FEW)
    return figure(f"100/s, worker{name}: claims a message", "", shares, "<= 1.4")
