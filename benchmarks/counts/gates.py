"""What locks and limits cost the Redis server: a place taken and given back, alone and in batches, and a rate."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from bide.engines.gates import Entry, Held, Spend
from bide.engines.sync import Engine

HOUR = 3_600_000
NOW = 1_800_000_000_000
LINES = (0, 100_000)  # that wait at a gate
ONES = 100
BATCH = 100

Step: TypeAlias = tuple[str, int, Callable[[], object]]
"""A path's name, how often it is done, and what to do."""


def steps(engine: Engine) -> Iterator[Step]:
    locks = [f"lock {i}" for i in range(BATCH)]
    yield "lock: enter + leave one", ONES, lambda: one_by_one(engine, locks)
    yield "lock: enter + leave 100", BATCH, lambda: go_through(engine, locks)
    yield "limit of 100: enter + leave 100", BATCH, lambda: go_through(engine, ["limit"] * BATCH)
    for line in LINES:
        held = with_line(engine, f"line of {line}", line)
        yield f"lock, {line or 'none'} wait: leave, call, enter", ONES, lambda held=held: hand_on(engine, held)  # type: ignore[misc]
    yield "rate: spend one", ONES, lambda: [engine.gates.spend([Spend("rate", 1_000, 60_000)], now=NOW) for _ in range(ONES)]
    spends = [Spend(f"rate {i}", 1_000, 60_000) for i in range(BATCH)]
    yield "rate: spend of 100", BATCH, lambda: engine.gates.spend(spends, now=NOW)


def go_through(engine: Engine, gates: Sequence[str]) -> None:
    """In and out again."""
    entered = engine.gates.enter([Entry(gate, f"h{i}", HOUR, BATCH) for i, gate in enumerate(gates)], now=NOW)
    held = [Held(gate, f"h{i}", got.token) for i, (gate, got) in enumerate(zip(gates, entered, strict=True))]
    assert all(engine.gates.leave(held, now=NOW).answers)


def one_by_one(engine: Engine, gates: Sequence[str]) -> None:
    for gate in gates:
        go_through(engine, [gate])


def with_line(engine: Engine, gate: str, line: int) -> list[Held]:
    """Who is inside of a gate at which so many wait."""
    [entered] = engine.gates.enter([Entry(gate, "h", HOUR)], now=NOW)
    for first in range(0, max(line, 1), 1_000):
        some = range(first, min(line, first + 1_000))
        engine.gates.enter([Entry(gate, f"h{i}", HOUR, 1, f"w{i}") for i in some], now=NOW)
    return [Held(gate, "h", entered.token)]


def hand_on(engine: Engine, held: list[Held]) -> None:
    """Each leaves, and whoever is called enters; without a line, the same one again."""
    for _ in range(ONES):
        gone = held.pop()
        called = engine.gates.leave([gone], now=NOW).called
        waiter = called[0].waiter if called else None
        [entered] = engine.gates.enter([Entry(gone.gate, "h", HOUR, 1, waiter)], now=NOW)
        assert entered.token is not None
        held.append(Held(gone.gate, "h", entered.token))
