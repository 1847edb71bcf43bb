"""What it costs to enter a gate and to leave it, in SQLite and in PostgreSQL, one by one and in batches of a hundred.

`python -m benchmarks.gate_pairs` prints medians of rounds that take turns, with the lowest and the highest, in µs a pair. Each
pair is at a gate of its own, at the same gate each time, or at one at which ten thousand wait. Names choose the engines.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing

from bide.engines.base import Settings
from bide.engines.gates import Entry, Held, Spend
from bide.engines.registry import source
from bide.engines.sync import Engine
from tests.servers.postgres import PostgresServer

ROUNDS, LEASE, WAITING = 5, 60_000, 10_000
LONE = 100  # pairs in a round, one by one
HUNDREDS = 5  # batches in a round


def pairs(engine: Engine, size: int, times: int, gate: Callable[[int], str]) -> float:
    begin = time.perf_counter()
    for n in range(times):
        entries = [Entry(gate(n * size + place), f"h{place}", LEASE, size) for place in range(size)]
        entered = engine.gates.enter(entries)
        held = [Held(entry.gate, entry.holder, each.token) for entry, each in zip(entries, entered, strict=True)]
        assert all(engine.gates.leave(held).answers)
    return (time.perf_counter() - begin) / times / size * 1e6


def waited_for(engine: Engine, times: int) -> float:
    """A waiter is called, and enters; and a new one comes."""
    [entered] = engine.gates.enter([Entry("crowded", "0", LEASE)])
    token, holder = entered.token, "0"
    for start in range(0, WAITING, 1_000):
        engine.gates.enter([Entry("crowded", f"w{n}", LEASE, waiter=f"w{n}") for n in range(start, start + 1_000)])
    begin = time.perf_counter()
    for n in range(times):
        [called] = engine.gates.leave([Held("crowded", holder, token)]).called
        holder, new = called.waiter, f"n{n}"
        [entered, _] = engine.gates.enter(
            [Entry("crowded", holder, LEASE, waiter=holder), Entry("crowded", new, LEASE, waiter=new)]
        )
        token = entered.token
    return (time.perf_counter() - begin) / times * 1e6


def spends(engine: Engine, size: int, times: int) -> float:
    begin = time.perf_counter()
    for n in range(times):
        engine.gates.spend([Spend(f"r{n % 3}", 10**6, 1_000)] * size)
    return (time.perf_counter() - begin) / times / size * 1e6


def run(name: str, engine: Engine) -> None:
    own = iter(range(10**9))
    work: dict[str, Callable[[], float]] = {
        "a pair one by one, each at a gate of its own": lambda: pairs(engine, 1, LONE, lambda _: f"own {next(own)}"),
        "a pair one by one, at the same gate": lambda: pairs(engine, 1, LONE, lambda _: "same"),
        "a pair in hundreds, each at a gate of its own": lambda: pairs(engine, 100, HUNDREDS, lambda _: f"own {next(own)}"),
        "a pair in hundreds, at the same gate": lambda: pairs(engine, 100, HUNDREDS, lambda _: "wide"),
        f"leave, enter and wait where {WAITING:,} wait": lambda: waited_for(engine, LONE),
        "a spend one by one": lambda: spends(engine, 1, LONE),
        "a spend in hundreds": lambda: spends(engine, 100, HUNDREDS),
    }
    found: dict[str, list[float]] = {what: [] for what in work}
    for number in range(ROUNDS):
        for what, each in work.items():
            if "wait" not in what or not number:
                found[what].append(each())
    for what, costs in found.items():
        print(f"{name}: {what}: {statistics.median(costs):,.0f} µs [{min(costs):,.0f}–{max(costs):,.0f}]", flush=True)


def in_a_file() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="bide-bench-") as folder,
        closing(source(Settings(url=f"sqlite:///{folder}/bide.db")).sync()) as engine,
    ):
        engine.open()
        run("SQLite", engine)


def in_a_database() -> None:
    with PostgresServer(fsync=True) as server, closing(source(Settings(url=server.url)).sync()) as engine:
        engine.open()
        run("PostgreSQL", engine)


if __name__ == "__main__":
    for each in sys.argv[1:] or ["sqlite", "postgres"]:
        {"sqlite": in_a_file, "postgres": in_a_database}[each]()
