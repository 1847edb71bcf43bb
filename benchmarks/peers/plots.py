"""Draws the pictures: `python plots.py FOLDER <series.json`, with matplotlib."""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

OURS, OTHERS, SECOND = "#c2410c", "#94a3b8", "#475569"
SMALL = {"dpi": 90, "metadata": {"Software": None}, "bbox_inches": "tight"}


def bars(axes: Any, title: str, values: dict[str, list[float]], *, most_first: bool = True) -> None:
    """A bar for each, from one that is best on top, with a line from its lowest to its highest round."""
    names = sorted(values, key=lambda name: values[name][0], reverse=not most_first)
    medians = [values[name][0] for name in names]
    spread = [[values[name][0] - values[name][1] for name in names], [values[name][2] - values[name][0] for name in names]]
    colours = [OURS if name.startswith("bide") else OTHERS for name in names]
    axes.barh(names, medians, xerr=spread, color=colours, error_kw={"elinewidth": 1, "ecolor": SECOND})
    axes.set_xscale("log")
    for place, median in enumerate(medians):
        text = f"{float(f'{median:.3g}'):,.0f}" if median >= 100 else f"{median:.3g}"
        axes.annotate(text, (values[names[place]][2], place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.margins(x=0.2)
    axes.set_xlim(left=min(medians, default=1) / 3)
    axes.set_title(title, fontsize=10, loc="left")
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def speed(series: dict[str, Any], folder: Path) -> None:
    titles = {"single": "sent one by one", "batch": "sent in batches", "drain": "drain", "burst": "burst"}
    figure, grid = plt.subplots(2, 2, figsize=(11, 10), layout="constrained")
    for axes, (work, title) in zip(grid.flat, titles.items(), strict=True):
        bars(axes, f"{title}: messages a second (log scale)", series.get(work, {}).get("a second", {}))
    figure.savefig(folder / "speed.png", **SMALL)


def lateness(series: dict[str, Any], folder: Path) -> None:
    """From the median to the 99th percentile; early messages are in the table."""
    found = series.get("lateness", {})
    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    names = sorted(found.get("p99 ms", {}), key=lambda name: found["p99 ms"][name][0], reverse=True)
    for place, name in enumerate(names):
        low, high = (max(0.1, found[what][name][0]) for what in ("p50 ms", "p99 ms"))
        colour = OURS if name.startswith("bide") else SECOND
        axes.plot([low, high], [place, place], color=colour, linewidth=3, alpha=0.5)
        axes.plot(low, place, "o", color=colour)
        axes.plot(high, place, "|", color=colour, markersize=12)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xscale("log")
    axes.set_title("lateness, ms (log scale): ● half of the messages, | 99 of 100", fontsize=10, loc="left")
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "lateness.png", **SMALL)


def costs(series: dict[str, Any], folder: Path) -> None:
    figure, grid = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    bars(grid[0], "bytes that a pending message takes (log scale)", series.get("memory", {}).get("bytes", {}), most_first=False)
    commands = series.get("idle", {}).get("commands a second", {})
    bars(grid[1], "commands a second of an idle worker (log scale)", commands, most_first=False)
    figure.savefig(folder / "costs.png", **SMALL)


if __name__ == "__main__":
    given, place = json.load(sys.stdin), Path(sys.argv[1])
    for draw in (speed, lateness, costs):
        draw(given, place)
