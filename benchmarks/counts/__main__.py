"""`python -m benchmarks.counts [part …]`: what each path costs in calls and instructions, beside those of baseline.json.

Counts hardly change from run to run, so one that is more than 3 % above its baseline is a loss, and the exit code is 1.
Instructions depend on the build of Redis and of Python: those of other versions than the baseline's are shown, not judged.
"""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import redis

from benchmarks.counts import callgrind, client, server

BASELINE = Path(__file__).with_name("baseline.json")
WORSE = 1.03
Counts: TypeAlias = Mapping[str, Mapping[str, float]]

CALLS, SERVER, CLIENT = "calls of Redis by its script", "instructions of the server", "instructions of the client"
PARTS: Mapping[str, Callable[[], tuple[str, Mapping[str, float]]]] = {
    "calls": lambda: (CALLS, server.calls()),
    "server": lambda: (SERVER, server.instructions()),
    "client": lambda: (CLIENT, client.instructions()),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.counts", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"what to count: {', '.join(PARTS)}; all, unless named")
    parser.add_argument("--write", action="store_true", help="make these figures the baseline of their part")
    arguments = parser.parse_args()
    if not callgrind.there():
        print("This needs valgrind. On Debian: apt install valgrind", file=sys.stderr)
        return 2
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {sorted(unknown)[0]}; there is: {', '.join(PARTS)}")
    versions = _versions()
    counts = dict(PARTS[name]() for name in arguments.parts or PARTS)
    baseline = json.loads(BASELINE.read_text())
    if arguments.write:
        if arguments.parts and versions != baseline["versions"]:
            parser.error("the baseline is of other versions, so write all of its parts together")
        rounded = {part: {name: round(value, 3) for name, value in these.items()} for part, these in counts.items()}
        BASELINE.write_text(json.dumps({"versions": versions, "counts": baseline["counts"] | rounded}, indent=1) + "\n")
        print(f"The baseline is written: {BASELINE}")
        return 0
    return 1 if show(counts, baseline["counts"], judged(versions, baseline["versions"])) else 0


def show(counts: Counts, baseline: Counts, judged: set[str]) -> int:
    """Prints a table for each part; returns how many paths are judged worse, or are no longer measured."""
    bad = 0
    for part, found in counts.items():
        note = "" if part in judged else " (not judged: the baseline is of other versions)"
        print(f"\n== {part}, for one message{note}\n{'':<48} {'baseline':>12} {'now':>12}")
        for name in [*found, *(baseline[part].keys() - found.keys())]:
            was, now = baseline[part].get(name), found.get(name)
            worse = part in judged and (now is None or (was is not None and now > was * WORSE))
            bad += worse
            print(f"{name:<48} {_number(was)} {_number(now)} {_ratio(was, now):>7}{'  WORSE' if worse else ''}")
    if bad:
        print(f"\n{bad} paths cost more than 3 % above the baseline. If that is meant: python -m benchmarks.counts --write")
    return bad


def _number(value: float | None) -> str:
    return f"{'–':>12}" if value is None else f"{value:>12,.3f}" if value < 1_000 else f"{value:>12,.0f}"


def _ratio(was: float | None, now: float | None) -> str:
    return "" if not was or now is None else f"{100 * (now / was - 1):+.0f} %"


def _versions() -> Mapping[str, str]:
    told = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
    fields = dict(word.split("=", 1) for word in told.split() if "=" in word)
    return {
        "machine": platform.machine(),
        "Redis": f"{fields['v']} {fields['build']}",
        "Python": platform.python_version(),
        "redis-py": redis.__version__,
    }


def judged(now: Mapping[str, Any], then: Mapping[str, Any]) -> set[str]:
    """Calls are the same everywhere; instructions where the programs are."""
    judged = {CALLS}
    if all(now[name] == then[name] for name in ("machine", "Redis")):
        judged.add(SERVER)
    if all(now[name] == then[name] for name in ("machine", "Python", "redis-py")):
        judged.add(CLIENT)
    return judged


if __name__ == "__main__":
    sys.exit(main())
