"""bide on one SQLite file beside Huey's SqliteHuey, by turns: single sends, and the drain of plain tasks by one worker process.

Both write ahead and sync each commit (`journal_mode=wal`, `synchronous=full`), but for bide's claims, which need not be on the
disk. bide looks at its log every 4,000 pages, and Huey every 1,000; Huey caches 8 MB of pages, and bide 2. First on the disk of
the temporary folder, where syncing is most of the time, then on a file in memory, where it is none.
Before sends are measured, each side has written so much that its log has its full size: a log that grows is slower to sync.
bide has a message back when its worker dies. Huey deletes it before its handler is called.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.costs import body, load, own
from benchmarks.measure import RUNS, Figure, figure
from benchmarks.peers.install import NotInstalled, environment
from bide import Queue
from bide.engines.sqlite import file

BODY = body()
MEMORY = Path("/dev/shm")
WARM = 2_100  # sends: at two pages each, more than a log holds (file.PAGES_BETWEEN_CHECKPOINTS; 1,000 with Huey)
ROOT = Path(__file__).resolve().parents[1]
WAYS = {"send, due in 15 minutes": 900.0, "send, due at once": 0.0}


class Took(NamedTuple):
    """Of one message, in µs."""

    wall: float
    cpu: float


class Place(NamedTuple):
    name: str
    folder: str | None
    sends: int
    huey: int  # messages of its drain, each of which is a commit
    drain: int = 20_000


def run() -> list[Figure]:
    places = [Place("on disk", None, 500, 1_000), Place("in memory", str(MEMORY), 5_000, 10_000)]
    try:
        huey = environment("huey") / "bin"
    except NotInstalled as missing:
        print(f"Huey is left out: {missing}. The figures of bide stand alone.")
        huey = None
    lines: list[Figure] = []
    for place in places:
        if place.folder is None or MEMORY.is_dir():
            lines += _sends(place, huey) + _drains(place, huey)
    return [*lines, load()]


def _sends(place: Place, huey: Path | None) -> list[Figure]:
    ours: dict[str, list[Took]] = {way: [] for way in WAYS}
    theirs: dict[str, list[Took]] = {way: [] for way in WAYS}
    with (
        tempfile.TemporaryDirectory(prefix="bide-bench-", dir=place.folder) as folder,
        Queue(_url(folder)) as queue,
        _huey_sends(huey, folder) as send_huey,
    ):
        _send(queue, WARM, 900)
        send_huey(WARM, 900)
        _tell_settings(place, folder)
        for _ in range(RUNS):
            for way, delay in WAYS.items():
                ours[way].append(_send(queue, place.sends, delay))
                theirs[way] += send_huey(place.sends, delay)
    return [line for way in WAYS for line in _lines(f"{way}, {place.name}", ours[way], theirs[way])]


def _drains(place: Place, huey: Path | None) -> list[Figure]:
    ours: list[Took] = []
    theirs: list[Took] = []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory(prefix="bide-bench-", dir=place.folder) as folder:
            ours.append(_drain(folder, place.drain))
            theirs += _drain_huey(huey, folder, place.huey)
    return _lines(f"drain, {place.name}", ours, theirs)


def _lines(what: str, ours: list[Took], theirs: list[Took]) -> list[Figure]:
    lines = [
        figure(f"{what}", "a second", [1e6 / each.wall for each in ours]),
        figure("… CPU", "µs", [each.cpu for each in ours]),
    ]
    if theirs:
        pairs = list(zip(ours, theirs, strict=True))
        lines += [
            figure("… Huey", "a second", [1e6 / each.wall for each in theirs]),
            figure("… Huey's CPU", "µs", [each.cpu for each in theirs]),
            figure("… bide's rate to Huey's", "%", [100 * other.wall / each.wall for each, other in pairs]),
            figure("… bide's CPU to Huey's", "%", [100 * each.cpu / other.cpu for each, other in pairs]),
        ]
    return lines


def _url(folder: str) -> str:
    return f"sqlite:///{folder}/bide.db"


def _send(queue: Queue, count: int, delay: float) -> Took:
    began, cpu = time.perf_counter(), own()
    for _ in range(count):
        queue.send("t", BODY, delay=delay)
    return Took(1e6 * (time.perf_counter() - began) / count, 1e6 * (own() - cpu) / count)


def _drain(folder: str, many: int) -> Took:
    with Queue(_url(folder)) as queue:
        queue.send_many("t", [BODY] * many)
    told = {"BIDE_BENCH_URL": _url(folder), "BIDE_BENCH_MANY": str(many)}
    return _told_by([sys.executable, "-m", "bide", "worker", "benchmarks.drained:queue"], told, many)


def _drain_huey(huey: Path | None, folder: str, many: int) -> list[Took]:
    if huey is None:
        return []
    with _huey_sends(huey, folder) as send:
        send(many, 0)
    consumer = [str(huey / "huey_consumer"), "benchmarks.huey_sqlite.huey", "--quiet", "--workers", "1"]
    return [_told_by(consumer, _huey_told(folder, many), many)]


def _told_by(command: list[str], told: dict[str, str], many: int) -> Took:
    """What a worker says when it has handled all messages."""
    with subprocess.Popen(
        command, env=os.environ | told, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as worker:
        assert worker.stdout is not None
        said = json.loads(next(line for line in worker.stdout if line.startswith("{")))
        worker.terminate()
    return Took(1e6 * said["seconds"] / many, 1e6 * said["cpu"] / many)


@contextmanager
def _huey_sends(huey: Path | None, folder: str) -> Iterator[Callable[[int, float], list[Took]]]:
    """A process that sends with Huey as often as it is told to; what it took, or nothing without Huey."""
    if huey is None:
        yield lambda count, delay: []
        return
    command = [str(huey / "python"), "-c", "from benchmarks.huey_sqlite import main; main()"]
    environ = os.environ | _huey_told(folder, 0)
    with subprocess.Popen(command, env=environ, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def send(count: int, delay: float) -> list[Took]:
            stdin.write(f"{count} {delay}\n")
            stdin.flush()
            said = json.loads(stdout.readline())
            _settings["Huey"] = said["settings"]
            return [Took(1e6 * said["seconds"] / count, 1e6 * said["cpu"] / count)]

        yield send
        stdin.close()


def _huey_told(folder: str, many: int) -> dict[str, str]:
    return {"BIDE_BENCH_FILE": f"{folder}/huey.db", "BIDE_BENCH_BODY": json.dumps(BODY), "BIDE_BENCH_MANY": str(many)}


_settings: dict[str, dict[str, Any]] = {}


def _tell_settings(place: Place, folder: str) -> None:
    """How durable the commits of both are, as SQLite says."""
    with closing(file.opened(f"{folder}/bide.db")) as connection:
        names = ("journal_mode", "synchronous")
        _settings["bide"] = {name: connection.execute(f"pragma {name}").fetchone()[0] for name in names}
    told = "; ".join(
        f"{side} " + ", ".join(f"{name} {value}" for name, value in each.items()) for side, each in _settings.items()
    )
    print(f"{place.name}: {told}")
    assert len(set(map(str, _settings.values()))) == 1, "one side is less durable than the other"
