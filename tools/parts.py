"""All tests, as `make test-all` runs them: in parts, one after the other. A part that has passed on a commit is not run again.

python -m tools.parts              run what has not passed on this commit
python -m tools.parts PART …       run these, also if they have passed
python -m tools.parts --list       say which there are, which have passed, and how long each took

What has passed is noted in build/parts.json. While something is not committed, nothing is.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
NOTES = Path("build/parts.json")
REST = "rest"
# Folders of tests whose parts take some half an hour at most; all others are the rest.
FOLDERS: Mapping[str, Sequence[str]] = {
    "redis": ["redis"],
    "contract": ["contract", "model", "negative"],
    "servers": ["postgres", "rabbitmq", "servers", "sqlite"],
    "worker": ["worker", "tasks", "policies"],
}
# Files of such a folder that take that long by themselves, since they wait or have long matrices, are parts of their own.
FILES: Mapping[str, Sequence[str]] = {
    "redis-histories": ["test_long_histories.py"],
    "redis-away": ["test_shard_away.py", "test_part_*.py", "test_failovers.py", "test_sweeps_*.py", "test_outbox_*.py"],
    "worker-killed": ["test_chaos.py", "test_*_killed.py", "test_dying.py"],
}
ALL = ("-m", "slow or not slow")


class Part(NamedTuple):
    command: Sequence[str]
    long: bool = False  # with the long matrices


def parts(root: Path) -> dict[str, Part]:
    """All of them: those that take the least first."""
    found = {"check": Part(["make", "check"]), "bench-check": Part(["make", "bench-check"]), "lowest": Part(["make", "lowest"])}
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    pythons = [root / ".venv/bin/python", *sorted(root.glob(".venv-3.*/bin/python"))]
    parallel = os.environ.get("PARALLEL", "").split()
    for python in pythons:
        version = python.parts[-3].removeprefix(".venv").removeprefix("-")
        for name, folders in grouped(root).items():
            run = [str(python), "-m", "pytest", *folders, *parallel]
            if not version:
                apart = [
                    f"--ignore={file}" for each in FILES for file in files(root, each) if str(Path(file).parent) in folders
                ]
                found[name] = Part([*run, *apart, *ALL], long=True)
            elif version != here:
                found[f"{name}-{version}"] = Part(run)
    for name in FILES:
        found[name] = Part([str(pythons[0]), "-m", "pytest", *files(root, name), *parallel, *ALL], long=True)
    return found


def files(root: Path, part: str) -> list[str]:
    """Those of a part that are apart from their folder, whose name it begins with."""
    folder = root / "tests" / part.partition("-")[0]
    return [str(path.relative_to(root)) for pattern in FILES[part] for path in sorted(folder.glob(pattern))]


def grouped(root: Path) -> dict[str, list[str]]:
    """The folders of each part. One that nobody has named is in the rest."""
    named = {folder: name for name, folders in FOLDERS.items() for folder in folders}
    found: dict[str, list[str]] = {name: [] for name in [*FOLDERS, REST]}
    for path in sorted((root / "tests").iterdir()):
        if any(path.glob("test_*.py")) or any(path.glob("*/test_*.py")):
            found[named.get(path.name, REST)].append(f"tests/{path.name}")
    return found


def commit(root: Path) -> str:
    """Which it is; empty if something is not committed."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    return "" if git("status", "--porcelain") else git("rev-parse", "HEAD")


class Notes:
    """Which parts have passed on this commit, and how many seconds each took."""

    def __init__(self, root: Path) -> None:
        self._path = root / NOTES
        self.commit = commit(root)
        known = json.loads(self._path.read_text(encoding="utf-8")) if self._path.exists() else {}
        self.passed: dict[str, float] = known.get(self.commit, {}) if self.commit else {}

    def add(self, root: Path, part: str, seconds: float) -> bool:
        """Note that it has passed, unless the tree is another one by now. Whether it is noted."""
        if not self.commit or commit(root) != self.commit:
            return False
        self.passed[part] = round(seconds, 1)
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps({self.commit: self.passed}, indent=1) + "\n", encoding="utf-8")
        return True


def listed(known: Mapping[str, Part], passed: Mapping[str, float]) -> str:
    return "\n".join(f"{name:<14} {f'passed in {passed[name] / 60:.1f} min' if name in passed else '–'}" for name in known)


def main(arguments: Sequence[str], root: Path = ROOT, known: Mapping[str, Part] | None = None) -> int:
    known = parts(root) if known is None else known
    parser = argparse.ArgumentParser(prog="python -m tools.parts", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(known))
    parser.add_argument("--list", action="store_true", help="say which have passed on this commit")
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.parts if name not in known]:
        parser.error(f"there is no part {unknown[0]}; there is: {', '.join(known)}")
    notes = Notes(root)
    if asked.list:
        print(listed(known, notes.passed))
        return 0
    if not notes.commit:
        print("Something is not committed, so what passes is not noted: the next call runs it again.", flush=True)
    left = asked.parts or [name for name in known if name not in notes.passed]
    failed: list[str] = []
    for number, name in enumerate(left, 1):
        print(f"== part {number} of {len(left)}: {name}", flush=True)
        began = time.monotonic()
        env = os.environ | {"CI": "1"} | ({"BIDE_LONG": "1"} if known[name].long else {})  # a missing server fails
        code = subprocess.run(known[name].command, cwd=root, env=env, check=False).returncode
        took = time.monotonic() - began
        told = f"failed, with exit code {code}" if code else "passed" if notes.add(root, name, took) else "passed, not noted"
        print(f"== {name}: {told}, {took / 60:.1f} min", flush=True)
        if code:
            failed.append(name)
    if failed:
        print(f"Failed: {', '.join(failed)}. `python -m tools.parts {failed[0]}` runs one again.", file=sys.stderr)
        return 1
    there = [name for name in known if name not in notes.passed]
    print(f"Left on this commit: {', '.join(there)}." if there else f"All parts have passed on {notes.commit[:8]}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
