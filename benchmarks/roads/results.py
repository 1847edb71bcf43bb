"""Keeps the figures of the last run in build/roads, and those that the docs quote beside this file."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

QUOTED = Path(__file__).with_name("results.json")
LAST = Path(__file__).resolve().parents[2] / "build" / "roads" / "results.json"

Results: TypeAlias = Mapping[str, Sequence[Mapping[str, float]]]
"""By the way's name, one set of figures a round."""


def load(path: Path) -> tuple[Results, str]:
    """The figures, and on which machine they were measured."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    return plain["ways"], plain["machine"]


def save(results: Results, machine: str, path: Path) -> None:
    ways = {
        name: [{what: float(f"{value:.4g}") for what, value in figures.items()} for figures in rounds]
        for name, rounds in results.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine, "ways": ways}, indent=1) + "\n", encoding="utf-8")
