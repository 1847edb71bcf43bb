"""Make the sync twin of every async source, so that the two can't drift apart.

A source is a file under src/bide with a line `# unasync: <target>`, the target being relative to the file. Targets stand in
folders named `sync`, which searches, diffs and reviews leave out: see .ignore and .gitattributes.
Without arguments this writes the targets; with --check it only says which of them are missing, stale or orphaned.
"""

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMAND = "python tools/unasync.py"
FOLDER = "sync"

# In this order, over the whole text, comments and docstrings too. A rule that changes nothing anywhere is an error.
RULES: tuple[tuple[str, str], ...] = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"(?<![\w)\]])\(await ([\w.]+(?:\([^()]*\))?)\)", r"\1"),  # (await one.two(three)).four
    (r"\bawait ", ""),
    (r"\bAsyncGenerator\[(.+?), None\]", r"Generator[\1, None, None]"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\bAwaitable\[(\w+(?:\[\w+\])?)\]", r"\1"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\basyncio\.(Condition|Event|Lock|Semaphore)\b", r"threading.\1"),
    (r"\bimport asyncio\b", "import threading"),
    (r"(?<=[. ])aio\b", "sync"),
)

MARKER = re.compile(r"^# unasync: (\S+)\n", re.MULTILINE)
HEADER = "# Generated from {source} by tools/unasync.py; change that file instead.\n"
GENERATED = re.compile(r"^# Generated from \S+ by tools/unasync\.py;")
LEFTOVERS = {"async", "await", "asyncio", "__aenter__", "__aexit__", "__aiter__", "__anext__"}


class UnasyncError(Exception):
    """A source that has no sync twin, in a sentence for whoever wrote it."""


def translate(text: str, used: set[str]) -> str:
    """The text after all rules; those that changed something are added to `used`."""
    for pattern, replacement in RULES:
        text, count = re.subn(pattern, replacement, text)
        if count:
            used.add(pattern)
    return text


def tidy(text: str, target: Path) -> str:
    """The text with sorted imports, no unused ones, and in the format of the project."""
    ruff = [sys.executable, "-m", "ruff"]
    stdin = ["--quiet", "--stdin-filename", str(target), "-"]
    for step in (["check", "--select", "I,F401", "--fix", "--exit-zero"], ["format"]):
        done = subprocess.run([*ruff, *step, *stdin], input=text, capture_output=True, text=True, encoding="utf-8", check=False)
        if done.returncode:
            raise UnasyncError(f"the sync twin is not valid Python:\n{done.stderr.strip()}")
        text = done.stdout
    return text


def refuse_leftovers(text: str) -> None:
    """Async words that no rule has met would make a twin that only looks sync."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in LEFTOVERS:
            raise UnasyncError(f"no rule takes the async out of: {token.line.strip()}")


def generate(package: Path) -> dict[Path, str]:
    """What every target under the package has to contain."""
    wanted: dict[Path, str] = {}
    used: set[str] = set()
    for source in sorted(package.rglob("*.py")):
        text = source.read_text(encoding="utf-8")
        marker = MARKER.search(text)
        if marker is None:
            continue
        target = Path(os.path.normpath(source.parent / marker[1]))
        if target.parent.name != FOLDER:
            raise UnasyncError(f"{source}: {marker[1]} is not in a folder named {FOLDER}, as all that is generated")
        if target in wanted:
            raise UnasyncError(f"{source}: {marker[1]} is already the target of another source")
        if target.exists() and not GENERATED.match(target.read_text(encoding="utf-8")):
            raise UnasyncError(f"{source}: {marker[1]} was written by hand, so it is not overwritten")
        header = HEADER.format(source=Path(os.path.relpath(source, target.parent)).as_posix())
        try:
            wanted[target] = tidy(header + translate(text.replace(marker[0], "", 1), used), target)
            refuse_leftovers(wanted[target])
        except UnasyncError as error:
            raise UnasyncError(f"{source}: {error}") from None
    idle = [pattern for pattern, _ in RULES if pattern not in used]
    if idle:
        raise UnasyncError("these rules of tools/unasync.py change nothing, so remove them:\n  " + "\n  ".join(idle))
    return wanted


def orphans(package: Path, wanted: dict[Path, str]) -> list[Path]:
    """Files that say they are generated, but from nothing that is still there."""
    claims = (path for path in sorted(package.rglob("*.py")) if GENERATED.match(path.read_text(encoding="utf-8")))
    return [path for path in claims if path not in wanted]


def hidden(package: Path, wanted: dict[Path, str]) -> list[Path]:
    """Files with code that nothing has generated, in a folder that searches and reviews leave out."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob(f"{FOLDER}/*.py")) if path not in wanted}
    return [path for path, text in texts.items() if not GENERATED.match(text) and len(ast.parse(text).body) > 1]


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    if list(arguments) not in ([], ["--check"]):
        print(f"usage: {COMMAND} [--check]", file=sys.stderr)
        return 2
    package = root / "src" / "bide"
    try:
        wanted = generate(package)
    except UnasyncError as error:
        print(error, file=sys.stderr)
        return 1
    faults = [
        f"{path.relative_to(root)} says it is generated, but no source names it: remove one or mend the other"
        for path in orphans(package, wanted)
    ]
    faults += [
        f"{path.relative_to(root)} was written by hand, and nobody sees it in a folder named {FOLDER}: put it elsewhere"
        for path in hidden(package, wanted)
    ]
    for path, text in wanted.items():
        current = path.read_text(encoding="utf-8") if path.exists() else None
        if current == text:
            continue
        if arguments:
            state = "is missing" if current is None else "does not match its source"
            faults.append(f"{path.relative_to(root)} {state}: run `{COMMAND}`")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"wrote {path.relative_to(root)}")
    print("\n".join(faults) or f"unasync: {len(wanted)} sync files match their sources", file=sys.stderr if faults else None)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
