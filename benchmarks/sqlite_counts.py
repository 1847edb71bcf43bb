"""`python -m benchmarks.sqlite_counts`: what each path of the SQLite engine does for one message.

Statements and transactions are those that SQLite's trace tells. Syncs are calls of fsync and fdatasync, counted by strace. Hops
are pieces of work that an event loop gives to a thread of the engine. Instructions are those of the Python process, counted by
valgrind in a run of their own.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.counts import client
from bide.blocking import SerialThread
from bide.engines.sqlite import file
from bide.engines.sqlite.writer import Writer

PATHS = (
    "send one, sync",
    "send one of a task, sync",
    "receive + ack one, sync",
    "send_many",
    "send from many coroutines",
    "worker",
)
COLUMNS = ("statements", "transactions", "syncs", "hops", "instructions")
NEEDED = ("strace", "valgrind", "callgrind_control")


def main() -> int:
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        print(f"This needs {', '.join(missing)}. On Debian: apt install strace valgrind", file=sys.stderr)
        return 2
    print(f"{'for one message':<32}" + "".join(f"{name:>14}" for name in COLUMNS), flush=True)
    for name in PATHS:
        many, _ = client.PATHS[name]
        found = _counted(name, many) | {"instructions": _fresh(partial(_instructions, name))}
        print(f"{name:<32}" + "".join(_cell(found.get(column, 0) / many) for column in COLUMNS), flush=True)
    return 0


def _instructions(name: str, url: str) -> int:
    return client.counted(name, url, client.PATHS[name][0])


def _cell(value: float) -> str:
    return f"{value:>14,.0f}" if value >= 1_000 else f"{value:>14.3f}"


def _fresh(work: Callable[[str], Any]) -> Any:
    with tempfile.TemporaryDirectory(prefix="bide-bench-") as folder:
        return work(f"sqlite:///{folder}/bide.db")


def _counted(name: str, many: int) -> dict[str, int]:
    """What a path does from when it is ready until it is done. strace is there for all of that time."""

    def run(url: str) -> dict[str, int]:
        log = f"{url.removeprefix('sqlite://')}.strace"
        tracing = ["strace", "-f", "--quiet=attach,exit", "-e", "trace=fsync,fdatasync,write", "-e", "signal=none", "-o", log]
        command = [*tracing, sys.executable, "-m", "benchmarks.sqlite_counts", name, url, str(many)]
        told = subprocess.run(command, input="go\nend\n", capture_output=True, text=True, check=True).stdout
        between = re.split(r'write\(1, "(?:ready|done)', Path(log).read_text(encoding="utf-8"))[1]
        syncs = len(re.findall(r"\b(?:fsync|fdatasync)\(", between))
        counts: dict[str, int] = json.loads(told.splitlines()[-1])
        return counts | {"syncs": syncs}

    found: dict[str, int] = _fresh(run)
    return found


def _count(name: str, url: str, many: int) -> None:
    """In a process of its own: a path, with all that is counted in Python."""
    counts: Counter[str] = Counter()
    connect, submit, do, ready, done = file.connect, Writer.submit, SerialThread.do, client.ready, client.done

    def traced(path: str, *, read_only: bool = False) -> Any:
        connection = connect(path, read_only=read_only)
        connection.set_trace_callback(note)
        return connection

    def note(statement: str) -> None:
        counts["statements"] += 1
        counts["transactions"] += statement.startswith("begin")

    def submitted(self: Writer, *arguments: Any, **options: Any) -> Any:
        counts["hops"] += 1
        return submit(self, *arguments, **options)

    def done_apart(self: SerialThread, *arguments: Any) -> Any:
        counts["hops"] += 1
        return do(self, *arguments)

    def told_ready() -> None:
        ready()
        counts.clear()

    def told_done() -> None:
        found = dict(counts)
        done()
        print(json.dumps(found), flush=True)

    file.connect, Writer.submit, SerialThread.do = traced, submitted, done_apart  # type: ignore[method-assign, assignment]
    client.ready, client.done = told_ready, told_done
    client.PATHS[name][1](url, many)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _count(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
