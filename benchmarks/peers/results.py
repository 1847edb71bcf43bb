"""Keeps figures as JSON: those of the last runs in build/peers, and those that the docs quote beside this file."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.peers.peer import BUILD
from benchmarks.peers.summary import Rounds

LAST = BUILD / "results.json"
QUOTED = Path(__file__).with_name("results.json")

Results: TypeAlias = Mapping[str, Mapping[str, Rounds]]
"""By work and peer."""


def load(path: Path) -> Results:
    plain: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["works"] if path.exists() else {}
    return {work: {peer: Rounds(**rounds) for peer, rounds in peers.items()} for work, peers in plain.items()}


def machine(path: Path) -> str:
    return str(json.loads(path.read_text(encoding="utf-8"))["machine"])


def keep(work: str, found: Mapping[str, Rounds], path: Path = LAST) -> None:
    """Adds these figures to what is there; those of the same work and peer are replaced."""
    save(merged(load(path), {work: found}), path, this_machine())


def merged(older: Results, newer: Results) -> Results:
    """All of both; where both have figures of the same work and peer, the newer ones."""
    return {**older, **{work: {**older.get(work, {}), **found} for work, found in newer.items()}}


def save(results: Results, path: Path, machine: str) -> None:
    plain = {
        work: {
            peer: {**asdict(each), "figures": _rounded(each.figures), "beside": _rounded(each.beside)}
            for peer, each in peers.items()
        }
        for work, peers in results.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine, "works": plain}, indent=1) + "\n", encoding="utf-8")


def _rounded(rounds: Any) -> list[dict[str, float]]:
    return [{what: float(f"{value:.5g}") for what, value in figures.items()} for figures in rounds]


def this_machine() -> str:
    """Its kind, without its name."""
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"].partition(" (")[0]
    except OSError:
        system = platform.system()
    redis = _version("redis-server", "v=")
    postgres = _version("psql", "(PostgreSQL) ")
    node, python = _version("node", "v"), platform.python_version()
    return f"{os.cpu_count()} cores, {system}, Redis {redis}, PostgreSQL {postgres}, Python {python}, Node {node}"


def _version(program: str, before: str) -> str:
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return "–"
    return told.partition(before)[2].split()[0] if before in told else "–"
