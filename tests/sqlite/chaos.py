"""Kills and stops processes at random while they use one SQLite file, or a server, and judges what they have written down.

    outcome = run(folder, kills=200, stops=20, messages=100_000, seconds=120, seed=1)
    print(outcome)

or `python tests/sqlite/chaos.py --kills 200 …`. A process that was killed has a successor at once.
"""

import argparse
import contextlib
import itertools
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import bide
from bide import Queue, errors
from bide.prove import History, Record, Recorded, Report, check, read
from bide.prove.operation import Fault
from bide.prove.workload import TOPICS
from tests.sqlite.chaos_actors import FILE, LEASE, note_url, url_of

ROOT = Path(__file__).resolve().parents[2]
CROWD = ("sender", "sender", "async-sender", "taker", "taker", "taker", "async-taker", "meddler", "meddler")
WRITERS = ("writer",) * 8
TICK = 0.01
PATIENCE = 20.0  # seconds that a slow machine is given to accept enough
TRIES = 60  # to stop one just when it has been handed something
ENOUGH_TO_END = 45.0  # seconds: more than an engine waits for the lock
ENGINE_ERRORS = frozenset(
    name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, errors.EngineError)
)


class Outcome(NamedTuple):
    report: Report
    kills: int  # that ended a process
    stops: int  # that outlasted a lease
    refused_after_stops: int  # endings by a process that had been stopped with the delivery in its hands
    engine_errors: Mapping[str, int]  # that reached a user, by name
    complaints: Sequence[str]  # of processes that ended in another way than they should
    integrity: str
    seconds: float

    @property
    def good(self) -> bool:
        return self.report.valid is True and not self.engine_errors and not self.complaints and self.integrity == "ok"

    def __str__(self) -> str:
        counts, broken = self.report.counts, {name: len(found) for name, found in self.report.violations.items()}
        lines = {
            "kills": self.kills,
            "stops": self.stops,
            "accepted": counts["accepted"],
            "delivered": counts["delivered"],
            "lost": broken.get("no loss", 0),
            "unexpected": broken.get("nothing unexpected", 0),
            "early": broken.get("never early", 0),
            "stale endings accepted": broken.get("fencing", 0),
            "stale endings refused": counts["refused"],
            "of these after a stop": self.refused_after_stops,
            "unexplained duplicates": self.report.duplicates.get("unexplained", 0),
            "engine errors": sum(self.engine_errors.values()),
            "processes that failed": len(self.complaints),
        }
        page = [f"{count:>12,} {name}" for name, count in lines.items()]
        page += [f"{self.integrity:>12} integrity", f"{self.seconds:>12.1f} seconds under load", ""]
        page += [f"{name}: {count:,} times" for name, count in self.engine_errors.items()]
        return "\n".join([*page, *self.complaints, str(self.report)])


class Life:
    """One process, from its start to its end."""

    def __init__(self, folder: Path, role: str, name: str, seed: int, rate: float) -> None:
        self.role = role
        self.name = name
        self.history = folder / f"{name}.jsonl"
        self._words = folder / f"{name}.err"
        self._killed = False
        self.stopped: tuple[Fault, int, float] | None = None  # the fault, since when, and until when
        env = {**os.environ, "PYTHONPATH": str(Path(bide.__file__).parents[1])}
        with self._words.open("wb") as words:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.sqlite.chaos_actors", role, name, str(folder), str(seed), str(rate)],
                stdin=subprocess.PIPE,
                stderr=words,
                env=env,
                cwd=ROOT,
            )

    def kill(self) -> bool:
        """Whether that is what ended it."""
        self._process.kill()
        self._killed = self._process.wait() == -signal.SIGKILL
        self._let_go()
        return self._killed

    def stop(self) -> bool:
        """Whether it stands still."""
        if self._process.poll() is not None:
            return False
        self._process.send_signal(signal.SIGSTOP)
        seen = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return seen is not None and seen.si_code == os.CLD_STOPPED

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def holds(self) -> bool:
        """Whether it has just been handed something: the last that it wrote down is that."""
        with self.history.open("rb") as lines:
            lines.seek(max(0, lines.seek(0, os.SEEK_END) - 4_096))
            last = lines.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
        return b'"op":"receive","result":"ok"' in last and b'"count":0' not in last

    def tell_to_end(self) -> None:
        self._let_go()

    def wait(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENOUGH_TO_END)

    def clean_up(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._let_go()

    def complaint(self) -> str | None:
        """What it had to say, and how it ended, if nobody killed it."""
        words = self._words.read_text(encoding="utf-8", errors="replace")
        code = self._process.returncode
        return None if not words and (self._killed or code == 0) else f"{self.name} ended with {code}: {words}"

    def _let_go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()


class Director:
    def __init__(self, folder: Path, seed: int, rate: float) -> None:
        self.folder = folder
        self.history = History(folder / "director.jsonl", "director")
        self.lives: list[Life] = []
        self.here: list[Life] = []  # those that live
        self.kills = 0
        self.stops: list[tuple[Life, int]] = []  # who, and since when: those that outlasted a lease
        self.chance: random.Random = random.Random(seed)
        self._seed = seed
        self._rate = rate
        self._numbers = itertools.count(1)
        self._accepted = 0
        self._offsets: Counter[Path] = Counter()

    def start(self, role: str) -> None:
        life = Life(self.folder, role, f"{role}-{next(self._numbers)}", self._seed, self._rate)
        self.lives.append(life)
        self.here.append(life)

    def kill(self) -> bool:
        """A random process; its successor comes at once. False if there is none to kill yet."""
        awake = [life for life in self.here if life.stopped is None]
        if not awake:
            return False
        life = self.chance.choice(awake)
        with self.history.fault(f"kill a {life.role}", life.name) as fault:
            if life.kill():
                self.kills += 1
                fault.landed("ended by SIGKILL")
        self.here.remove(life)
        self.start(life.role)
        return True

    def stop(self) -> bool:
        """A random process, for longer than a lease; most often one that has just been handed something.

        False if there is none to stop yet.
        """
        awake = [life for life in self.here if life.stopped is None and life.history.exists()]
        takers = [life for life in awake if "taker" in life.role]
        if takers and self.chance.random() < 0.8:
            life, wanted = self.chance.choice(takers), True
        elif awake:
            life, wanted = self.chance.choice(awake), False
        else:
            return False
        fault = self.history.fault(f"stop a {life.role}", life.name)
        for left in reversed(range(TRIES)):
            if not life.stop():
                return True  # it has ended by itself, and will have to say why
            if not wanted or not left or life.holds():
                break
            life.go_on()
            time.sleep(TICK / 2)
        now = time.monotonic_ns()
        life.stopped = fault, now, now / 1e9 + LEASE * self.chance.uniform(1.3, 2.0)
        return True

    def let_go_on(self, *, all_of_them: bool = False) -> None:
        for life in self.here:
            if life.stopped is not None and (all_of_them or life.stopped[2] <= time.monotonic()):
                (fault, since, until), life.stopped = life.stopped, None
                time.sleep(max(0.0, until - time.monotonic()))
                fault.landed(f"stood still for {(time.monotonic_ns() - since) / 1e9:.2f} s")
                self.stops.append((life, since))
                life.go_on()

    def accepted(self) -> int:
        """How many sends have been accepted, as far as the histories say."""
        for life in self.lives:
            if "sender" in life.role or life.role == "writer":
                with contextlib.suppress(FileNotFoundError), life.history.open("rb") as lines:
                    lines.seek(self._offsets[life.history])
                    new = lines.read()
                    whole = new[: new.rfind(b"\n") + 1]
                    self._offsets[life.history] += len(whole)
                    self._accepted += whole.count(b'"op":"send","result":"ok"')
        return self._accepted

    def refused_after_stops(self) -> int:
        """How many endings were refused to processes that had been stopped with the delivery in their hands."""
        return sum(_refused(life.history, since) for life, since in self.stops)

    def end(self, lives: Iterable[Life]) -> None:
        lives = list(lives)
        for life in lives:
            life.tell_to_end()
        for life in lives:
            life.wait()
            life.clean_up()
            self.here.remove(life)


def run(
    folder: Path,
    *,
    kills: int,
    stops: int,
    messages: int,
    seconds: float,
    seed: int,
    crowd: Sequence[str] = CROWD,
    stories: int = 3,
    url: str | None = None,
) -> Outcome:
    """Chaos for so many seconds, or longer if fewer messages were accepted, but not for ever; then drain and judge."""
    if url is not None:
        note_url(folder, url)
    senders = sum("sender" in role for role in crowd)
    director = Director(folder, seed, 1.2 * messages / seconds / max(1, senders))
    with director.history:
        try:
            for role in crowd:
                director.start(role)
            took = _rage(director, kills, stops, messages, seconds)
            _settle(director)
        finally:
            for life in director.lives:
                life.clean_up()
        with Queue(url_of(folder)) as queue:
            drain(Recorded(queue, director.history), 60.0)
    paths = [path for path in (director.history.log.path, *(life.history for life in director.lives)) if path.exists()]
    return Outcome(
        report=check(paths, steady=True, stories=stories),
        kills=director.kills,
        stops=len(director.stops),
        refused_after_stops=director.refused_after_stops(),
        engine_errors=Counter(record.outcome for path in paths for record in read(path) if record.outcome in ENGINE_ERRORS),
        complaints=[words for life in director.lives if (words := life.complaint())],
        integrity=integrity(folder / FILE) if url is None else "ok",
        seconds=took,
    )


def _rage(director: Director, kills: int, stops: int, messages: int, seconds: float) -> float:
    """Faults at random instants, until all have been made and enough was accepted."""
    began = time.monotonic()
    faults = [*[director.kill] * kills, *[director.stop] * stops]
    director.chance.shuffle(faults)
    instants = sorted(director.chance.uniform(0.5, seconds) for _ in faults)
    plan = list(zip(instants, faults, strict=True))[::-1]
    look = 0.0
    while (gone := time.monotonic() - began) < 2 * seconds + PATIENCE:
        director.let_go_on()
        if plan and plan[-1][0] <= gone and plan[-1][1]():
            plan.pop()
            continue
        if not plan and gone >= seconds and gone >= look:
            look = gone + 0.5
            if director.accepted() >= 1.1 * messages:  # some are of a key that had a message already
                if not stops or director.refused_after_stops():
                    break
                director.stop()  # those that were stopped had nothing in their hands, or were killed before they ended it
        time.sleep(TICK)
    director.let_go_on(all_of_them=True)
    return time.monotonic() - began


def _settle(director: Director) -> None:
    """No more faults: the senders end first, and the others when what is due has been taken."""
    director.end([life for life in director.here if "taker" not in life.role])
    until = time.monotonic() + ENOUGH_TO_END
    with Queue(url_of(director.folder)) as queue:
        while any(_stirs(queue)) and time.monotonic() < until and director.here:
            time.sleep(10 * TICK)
    director.end(list(director.here))


def _stirs(queue: Queue) -> Iterator[bool]:
    for topic in TOPICS:
        each = queue.stats(topic)
        yield bool(each.pending or each.leased)


def drain(queue: Recorded, patience: float) -> None:
    """Receive until nothing is left but the dead, and look."""
    until = time.monotonic() + patience
    while any(_stirs(queue.plain)) and time.monotonic() < until:
        for each in queue.receive(*TOPICS, limit=100, wait=LEASE / 4, lease="10s"):
            with contextlib.suppress(errors.LeaseLost):  # its history says so
                each.ack()
    queue.look()


def _refused(history: Path, since: int) -> int:
    """The endings that a process tried after a stop, of what it had been handed before, and that were refused."""
    held: set[str | None] = set()
    asked: dict[int, Record] = {}
    refused = 0
    for record in read(history):
        if record.op == "deliver" and record.mono <= since:
            held.add(f"{record.id} {record.token}")
        elif record.result == "invoke" and record.token is not None:
            asked[record.call] = record
        elif record.outcome == errors.LeaseLost.__name__ and record.mono > since:
            about = asked[record.call]
            refused += f"{about.id} {about.token}" in held
    return refused


def integrity(path: Path) -> str:
    """`ok`, or what is wrong with the file."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return "; ".join(row[0] for row in connection.execute("pragma integrity_check"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--messages", type=int, default=100_000, help="to be accepted, at least")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--writers", action="store_true", help="eight processes that write all the time, and no faults")
    parser.add_argument("--url", help="of a server that is used instead of a file")
    parser.add_argument("--folder", type=Path, help="keep all files there; it must be new")
    asked = parser.parse_args(arguments)
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="bide-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    kills, stops, crowd = (0, 0, WRITERS) if asked.writers else (asked.kills, asked.stops, CROWD)
    messages = 0 if asked.writers else asked.messages
    print(f"seed {asked.seed}, in {folder}", flush=True)
    outcome = run(
        folder,
        kills=kills,
        stops=stops,
        messages=messages,
        seconds=asked.seconds,
        seed=asked.seed,
        crowd=crowd,
        url=asked.url,
    )
    print(outcome)
    if outcome.good and not asked.folder:
        shutil.rmtree(folder)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
