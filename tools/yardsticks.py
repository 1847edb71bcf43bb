"""The yardsticks of the house: figures that may only fall, and totals that are printed.

python -m tools.yardsticks            compare with tools/yardsticks.json; the exit code is 1 if one is worse
python -m tools.yardsticks --record   write today's figures there; only lower ones

Generated files don't count. Frames and files of a message are counted as in tools/trips.py, on a Redis that is started for it.
Without redis-server they are left out, but not where CI is set.
"""

import ast
import json
import math
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.trips import measured

ROOT = Path(__file__).resolve().parents[1]
RECORD = Path("tools/yardsticks.json")
GLOSSARY = Path("docs/contributing/glossary.md")
SHORT = 100  # lines
GENERATED = "# Generated from "
BUDGETS = {"sight": (("metrics", "otel", "sentry"), 2_000)}  # of faces: their rooms, and lines
SUFFIXES = {".py", ".lua", ".sql"}

Figures = dict[str, int]


def written(root: Path) -> dict[Path, str]:
    """The files of the package that people write, and their texts."""
    paths = [path for path in sorted((root / "src/bide").rglob("*")) if path.suffix in SUFFIXES]
    texts = {path.relative_to(root): path.read_text(encoding="utf-8") for path in paths}
    return {path: text for path, text in texts.items() if not text.startswith(GENERATED)}


def classes(text: str) -> Iterator[str]:
    """The names of a module's classes. One that is for asyncio, and its other half, are one pair with one name."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            yield node.name.removeprefix("Async")


def job(path: Path) -> str:
    """What a module is for. Files of the same name in several engines do the same job, so their classes may be called alike."""
    of_engine = path.parts[2] == "engines" and len(path.parts) > 4
    return path.stem if of_engine else str(path)


def glossary(root: Path) -> int:
    text = (root / GLOSSARY).read_text(encoding="utf-8")
    return len(re.findall(r"^\| (?!word \||---)", text, re.MULTILINE))


def of_words(root: Path) -> Figures:
    modules = {path: text for path, text in written(root).items() if path.suffix == ".py" and path.name != "__init__.py"}
    named: dict[str, set[str]] = {}
    for path, text in modules.items():
        for name in classes(text):
            named.setdefault(name, set()).add(job(path))
    short = sum(len(text.splitlines()) < SHORT for text in modules.values())
    return {
        f"modules under {SHORT} lines, per thousand": math.ceil(1000 * short / len(modules)),
        "class names that several modules have": sum(len(jobs) > 1 for jobs in named.values()),
        "modules in -ing": sum(path.stem.endswith("ing") for path in modules),
        "words of the glossary": glossary(root),
    }


def of_trips() -> Figures:
    found: Figures = {}
    for name, trip in measured().items():
        found[f"frames a message: {name}"] = math.ceil(trip.frames)
        found[f"files: {name}"] = trip.files
    return found


def worse(now: Mapping[str, int], recorded: Mapping[str, int]) -> Iterator[str]:
    for name, figure in now.items():
        if name not in recorded:
            yield f"{name}: {figure}, and {RECORD} has no figure of it: run `python -m tools.yardsticks --record`"
        elif figure > recorded[name]:
            more = figure - recorded[name]
            yield f"{name}: {figure}, which is {more} more than the {recorded[name]} of {RECORD}. It may only fall."


def budgets(root: Path) -> Iterator[str]:
    """How much each face has used of its lines."""
    for face, (rooms, most) in BUDGETS.items():
        lines = sum(len(text.splitlines()) for path, text in written(root).items() if path.parts[2].split(".")[0] in rooms)
        yield f"{face}: {lines:,} of {most:,} lines" + (f", which is {lines - most:,} too many" if lines > most else "")


def totals(root: Path) -> str:
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for path, text in written(root).items():
        room = path.parts[2] if len(path.parts) > 3 else "bide"
        files[room] += 1
        lines[room] += len(text.splitlines())
    rooms = ", ".join(f"{room} {files[room]}/{lines[room]:,}" for room in sorted(files))
    return f"{files.total()} files, {lines.total():,} lines; by room: {rooms}"


def main(arguments: list[str], root: Path = ROOT) -> int:
    if arguments not in ([], ["--record"]):
        print(__doc__, file=sys.stderr)
        return 2
    counted = shutil.which("redis-server") is not None
    if not counted and os.environ.get("CI"):
        print("yardsticks: there is no redis-server to count frames with: run `make servers`", file=sys.stderr)
        return 1
    record = root / RECORD
    recorded = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    now = of_words(root) | (of_trips() if counted else {})
    if arguments:
        kept = recorded | {name: min(figure, recorded.get(name, figure)) for name, figure in now.items()}
        record.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
        print(f"yardsticks: wrote {RECORD}")
        recorded = kept
    if faults := list(worse(now, recorded)):
        print("\n".join(faults), file=sys.stderr)
        return 1
    for name, figure in now.items():
        if figure < recorded[name]:
            print(f"yardsticks: {name} has fallen from {recorded[name]} to {figure}: `--record` keeps it there")
    left_out = "" if counted else "; frames and files of a message were not counted, as there is no redis-server"
    print(f"yardsticks: {len(now)} figures, none is worse{left_out}; {totals(root)}; {', '.join(budgets(root))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
