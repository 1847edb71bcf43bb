"""Writes what was measured into docs/comparison.md, and draws the pictures beside it."""

import json
import re
import subprocess
from pathlib import Path

from benchmarks.peers.install import environment
from benchmarks.peers.registry import BOTH, PEERS
from benchmarks.peers.results import LAST, QUOTED, Results, load, machine, merged, save
from benchmarks.peers.summary import bide_of
from benchmarks.peers.table import tables

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, PICTURES = DOCS / "comparison.md", DOCS / "comparison"
PART = re.compile(r"(<!-- measured: peers -->\n).*?(<!-- end -->)", re.DOTALL)


def written(text: str, results: Results, machine: str) -> str:
    """The page with its measured part as it should be."""
    return PART.sub(lambda found: f"{found[1]}{tables(results, machine)}{found[2]}", text)


def write() -> None:
    """Makes the figures of the last runs those that the docs quote. What was not measured keeps its older figures."""
    if machine(LAST) != machine(QUOTED):
        print(f"Left out: the older figures, which are of another machine ({machine(QUOTED)}).")
        save(load(LAST), QUOTED, machine(LAST))
    else:
        save(merged(load(QUOTED), load(LAST)), QUOTED, machine(LAST))
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), load(QUOTED), machine(QUOTED)), encoding="utf-8")
    draw(load(QUOTED))


def draw(results: Results) -> None:
    """The pictures, by matplotlib in an environment of its own."""
    python = environment("plots") / "bin" / "python"
    PICTURES.mkdir(exist_ok=True)
    program = Path(__file__).with_name("plots.py")
    subprocess.run([python, program, PICTURES], input=json.dumps(_series(results)), text=True, check=True)


def _series(results: Results) -> dict[str, dict[str, dict[str, tuple[float, float, float]]]]:
    """By work, figure and title: median, lowest, highest. Without what was measured beside other programs, but for sizes."""
    wanted = {
        **dict.fromkeys(("single", "batch", "drain", "burst"), ("a second",)),
        "lateness": ("p50 ms", "p99 ms"),
        "memory": ("bytes",),
        "idle": ("commands a second",),
    }
    series: dict[str, dict[str, dict[str, tuple[float, float, float]]]] = {}
    for work in wanted.keys() & results.keys():
        shown = {peer: rounds for peer, rounds in results[work].items() if rounds.quiet or work == "memory"}
        for what in wanted[work]:
            found = {ours.title: bide_of(shown, what, ours) for ours in BOTH}
            found |= {peer.title: shown[peer.name].of(what) for peer in PEERS.values() if peer.name in shown}
            series.setdefault(work, {})[what] = {title: tuple(each) for title, each in found.items() if each}  # type: ignore[misc]
    return series
