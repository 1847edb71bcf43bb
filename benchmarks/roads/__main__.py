"""`python -m benchmarks.roads [WAY …]`: the ways to delay a message do the same work, in turns, in one run.

Progress goes to standard error, and the figures to build/roads/results.json after each way. --write makes them those of
docs/roads.md. All of it takes about half an hour.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.peers.install import NotInstalled
from benchmarks.peers.results import this_machine
from benchmarks.roads.programs import Failed
from benchmarks.roads.results import LAST, QUOTED, load, save
from benchmarks.roads.table import spreads, table
from benchmarks.roads.ways import ALL_WAYS, Way
from benchmarks.roads.works import Figures, one_round

NAMES = [way.name for way in ALL_WAYS]
DOCS = Path(__file__).resolve().parents[2] / "tools" / "docs.py"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roads", description=__doc__)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"all, unless named: {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--kept", action="store_true", help="measure nothing: use the figures of the last run")
    parser.add_argument("--write", action="store_true", help="write the tables of docs/roads.md")
    arguments = parser.parse_args()
    if unknown := set(arguments.ways) - set(NAMES):
        parser.error(f"there is no way {sorted(unknown)[0]}; there is: {', '.join(NAMES)}")
    if arguments.rounds < 1:
        parser.error("--rounds must be 1 or more")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    if not arguments.kept:
        measure([way for way in ALL_WAYS if way.name in (arguments.ways or NAMES)], arguments.rounds)
    results, machine = load(LAST)
    print(f"{table(results, machine)}\n{spreads(results)}")
    if arguments.write:
        save(results, machine, QUOTED)
        subprocess.run([sys.executable, str(DOCS)], check=True)
    return 0


def measure(ways: list[Way], rounds: int) -> None:
    """All of these in turn, again and again, so that a noisy machine is noisy to all. Figures of others are kept."""
    kept = load(LAST)[0] if LAST.exists() and len(ways) < len(ALL_WAYS) else {}
    found: dict[str, list[Figures]] = {name: list(kept.get(name, [])) for name in NAMES}
    found |= {way.name: [] for way in ways}
    for number in range(rounds):
        for way in ways:
            begin = time.monotonic()
            try:
                figures = one_round(way)
            except (Failed, NotInstalled) as reason:
                tell(f"{number + 1}: {way.name} gave no figure: {reason}")
                continue
            found[way.name].append(figures)
            shown = ", ".join(f"{value:,.4g} {what}" for what, value in figures.items())
            tell(f"{number + 1}: {way.name}, {time.monotonic() - begin:.0f} s: {shown}")
            machine = f"{this_machine()}; load average {os.getloadavg()[0]:.1f}"
            save({name: each for name, each in found.items() if each}, machine, LAST)


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
