"""The table of docs/lateness.md tells of each cause on each engine, and no kept figure is over its bound."""

import json
from pathlib import Path
from typing import Any

import pytest

KEPT = Path(__file__).resolve().parents[2] / "benchmarks" / "lateness_at_worst.json"
ALWAYS = {"normal", "all busy"}
OUTLIVES = ALWAYS | {"worker killed", "supervised process killed"}
SERVER = OUTLIVES | {"server frozen", "failover", "without a server"}
WAKES = SERVER | {"wake-up lost"}
CAUSES = {
    "memory": ALWAYS,
    "SQLite": OUTLIVES,
    "Redis": WAKES,
    "Redis Cluster": WAKES,
    "PostgreSQL": WAKES,
    "RabbitMQ": SERVER,
}


def kept() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(KEPT.read_text(encoding="utf-8"))["figures"]["lateness_at_worst"]
    return found


@pytest.mark.parametrize("engine", CAUSES)
def test_each_cause_that_an_engine_has_was_measured(engine: str) -> None:
    names = [each["name"].rpartition(", ") for each in kept()]
    assert {cause for cause, _, of in names if of == engine} == CAUSES[engine]


def test_no_kept_figure_is_over_its_bound_or_early() -> None:
    bounds = {each["name"]: (each["low"], each["high"], each["bar"]) for each in kept() if each["bar"]}
    assert len(bounds) == sum(len(causes - {"without a server"}) for causes in CAUSES.values())
    for name, (low, high, bar) in bounds.items():
        assert 0 <= low <= high <= float(bar.removeprefix("<= ")), name
