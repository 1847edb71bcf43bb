"""Workers on one SQLite file or server, killed, stopped and asked to end at random, and what all of them wrote down, judged.

    outcome = run(folder, minutes=10, workers=10, seed=1)
    print(outcome)

or `python -m benchmarks.worker_chaos --minutes 10 --workers 10`. Senders, and one who cancels, reschedules and
requeues, are at work beside them, without faults. A worker that has ended has a successor at once.
"""

import argparse
import contextlib
import itertools
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bide import Info, Queue, errors
from bide.prove import History, Record, Recorded, Report, check, read
from bide.prove.workload import TOPICS
from tests.sqlite import chaos as crowd
from tests.sqlite.chaos_actors import FILE, file_of, note_url, url_of
from tests.sqlite.chaos_clock import WallClock, followed
from tests.worker.chaos_actors import CRASHED, GRACE, LEASE
from tests.worker.chaos_lives import KINDS, OVERTIME, TICK, Life, Process
from tests.worker.chaos_mishaps import CUT_OFF, NO_CONNECTION

START = 30.0  # seconds that a process may take until it has claimed something
SETTLE = 90.0  # seconds in which all that is left is to be done, when there are no faults any more
PATIENCE = 60.0  # seconds that a slow machine is given to make all faults
MOST = 20  # complaints, then no worker has a successor any more
REQUEUE = 0.5  # seconds
LOOK = 0.25  # seconds, for the processes of supervisors
MISHAPS = ("start no", "fail in", "hang in", "cut", "fill", "set")
LOGS = ("hang", "fail to flush")
LOST = ("lost in attempt #: its handler is told", "after its leases had ended")  # what workers say of leases
SENDERS = ("sender", "async-sender", "meddler")


class Director:
    def __init__(
        self, folder: Path, seed: int, rate: float, plant: str, *, clock: bool, only: Sequence[str] | None = None
    ) -> None:
        self.folder = folder
        self.history = History(folder / "director.jsonl", "director")
        self.clock = WallClock.new(folder) if clock or url_of(folder) != file_of(folder) else None
        self.lives: list[Life] = []
        self.here: list[Life] = []
        self.orphans: list[Process] = []
        self.crowd = [crowd.Life(folder, role, f"{role}-1", seed, rate) for role in SENDERS]
        self.stops: list[tuple[Path, int]] = []  # whose history, and since when
        self.complaints: list[str] = []
        self.longest_end = 0.0
        self.chance = random.Random(seed)
        self._seed = seed
        self._plant = plant
        self.only = only
        self.buried: set[str] = set()  # what somebody saw buried because its last lease had ended
        self._numbers = itertools.count(1)
        self._next_look = 0.0

    def start(self, kind: str) -> None:
        life = Life(self.folder, kind, f"{kind}-{next(self._numbers)}", self._seed, self._plant, self.only)
        self.lives.append(life)
        self.here.append(life)

    # faults: False if there is nobody to have them yet

    def kill(self) -> bool:
        """A worker that is alone, a supervisor, or a process of one."""
        life, process = self._choose()
        if life is None or process is None:
            return False
        whole = process is life.process
        what = "a process of a supervisor" if not whole else "a supervisor" if life.supervised else "a worker"
        with self.history.fault(f"kill {what}", f"{life.name} {process.pid}") as fault:
            if process.send(signal.SIGKILL) or process.gone(OVERTIME):
                fault.landed("ended by SIGKILL")
        life.killed = life.killed or whole
        return True

    def stop(self) -> bool:
        """For longer than a lease; most often when it has just been handed something."""
        life, process = self._choose()
        if life is None or process is None:
            return False
        whole = process is life.process and life.supervised
        fault = self.history.fault("stop a supervisor" if whole else "stop a worker process", f"{life.name} {process.pid}")
        for left in reversed(range(40)):
            if not process.send(signal.SIGSTOP) or not process.stands_still():
                return True  # it has ended by itself, and will have to say why
            if whole or not left or _holds(life.history_of(process)):
                break
            process.send(signal.SIGCONT)
            time.sleep(TICK / 2)
        process.stopped = fault, time.monotonic_ns(), time.monotonic() + LEASE * self.chance.uniform(1.3, 2.0)
        return True

    def suspend(self) -> bool:
        """All workers at once, as a machine that is put to sleep: nobody is left to take back what they hold."""
        awake = self._awake()
        if not awake:
            return False
        seconds = LEASE * self.chance.uniform(1.2, 1.6)
        fault = self.history.fault("suspend the machine", f"{len(awake)} workers")
        asleep = []
        for life in awake:
            life.look_for_children()
            for process in _processes(life):
                if process.send(signal.SIGSTOP):
                    process.stopped = fault, time.monotonic_ns(), time.monotonic() + seconds
                    asleep.append(process)
        return bool(asleep)

    def set_the_clock(self) -> bool:
        """The wall clock of all processes, by seconds or minutes, forward or back."""
        assert self.clock is not None
        by = self.chance.choice((-1, 1)) * self.chance.uniform(5.0, 300.0)
        with self.history.fault("set the clock") as fault:
            self.clock.set(by)
            fault.landed(f"by {by:+.1f} s, and so by {self.clock.ahead():+.1f} s in all")
        return True

    def ask_to_end(self) -> bool:
        """By SIGTERM; of its logs most hang by then, or can't be flushed."""
        awake = [life for life in self._awake() if life.works()]
        if not awake:
            return False
        life = self.chance.choice(awake)
        logs = "" if life.kind == "in-code" else self.chance.choice(("", *LOGS))  # Python itself waits for those in code
        life.spoil_logs(logs)
        what = "ask a supervisor to end" if life.supervised else "ask a worker to end"
        life.ending = self.history.fault(f"{what} whose logs {logs}" if logs else what, life.name)
        life.told = time.monotonic()
        life.process.send(signal.SIGTERM)
        return True

    def _awake(self) -> list[Life]:
        return [
            life
            for life in self.here
            if life.told is None and not life.killed and all(each.stopped is None for each in _processes(life))
        ]

    def _choose(self) -> tuple[Life | None, Process | None]:
        awake = [life for life in self._awake() if life.works()]
        if not awake:
            return None, None
        [life] = self.chance.choices(awake, [3 if life.supervised else 1 for life in awake])
        life.look_for_children()
        under = [child for child in life.children.values() if not child.gone()]
        return life, self.chance.choice(under) if under and self.chance.random() < 0.8 else life.process

    # what goes on beside them

    def tend(self, *, replace: bool = True) -> None:
        """Let go on what has stood still for long enough, and give a successor to what has ended."""
        look = time.monotonic() >= self._next_look
        if look:
            self._next_look = time.monotonic() + LOOK
        for life in list(self.here):
            for process in _processes(life):
                if process.stopped is not None and process.stopped[2] <= time.monotonic():
                    self._let_go_on(life, process)
            if look:
                life.look_for_children()
            if life.process.gone():
                self._has_ended(life)
                if replace and len(self.complaints) < MOST:
                    self.start(life.kind)
            elif life.told is not None and time.monotonic() - life.told > GRACE + OVERTIME:
                self.complaints.append(f"{life.name} does not end {GRACE + OVERTIME:g} s after it was asked to")
                life.killed = True
                life.process.send(signal.SIGKILL)

    def _let_go_on(self, life: Life, process: Process) -> None:
        assert process.stopped is not None
        (fault, since, _), process.stopped = process.stopped, None
        fault.landed(f"stood still for {(time.monotonic_ns() - since) / 1e9:.2f} s")
        self.stops.append((life.history_of(process), since))
        process.send(signal.SIGCONT)

    def _has_ended(self, life: Life) -> None:
        code = life.code(OVERTIME)
        if life.told is not None and life.ending is not None:
            took = time.monotonic() - life.told
            self.longest_end = max(self.longest_end, took)
            if code == 0:
                life.ending.landed(f"ended after {took:.2f} s")
        expected = {0, CRASHED} if life.told is not None else {-signal.SIGKILL} if life.killed else {CRASHED}
        if code not in expected and not life.killed:
            self.complaints.append(f"{life.name} ended with {code}")
        self.orphans += life.children.values()
        self.here.remove(life)

    def all_go_on(self) -> None:
        for life in self.here:
            for process in _processes(life):
                if process.stopped is not None:
                    time.sleep(max(0.0, process.stopped[2] - time.monotonic()))
                    self._let_go_on(life, process)

    def end_all(self) -> None:
        """By SIGTERM, each as soon as it listens to signals: before that one would end it as it ends any process."""
        until = time.monotonic() + START + GRACE + OVERTIME
        while self.here and time.monotonic() < until:
            for life in self.here:
                if life.told is None and life.works():
                    life.told = time.monotonic()
                    life.process.send(signal.SIGTERM)
            self.tend(replace=False)
            time.sleep(TICK)
        self.complaints += [f"{life.name} has not ended" for life in self.here]
        for orphan in self.orphans:
            if not orphan.gone(GRACE + OVERTIME):
                self.complaints.append(f"process {orphan.pid} has outlived its supervisor")
                orphan.send(signal.SIGKILL)
            orphan.close()

    def look_at(self, dead: Iterable[Info]) -> list[str]:
        """The ids of these dead letters; those that a lost lease has buried are remembered."""
        found = list(dead)
        self.buried.update(each.id for each in found if (each.last_error or "").startswith("The lease of attempt"))
        return [each.id for each in found]

    def clean_up(self) -> None:
        for life in self.here:
            life.clean_up()
        for each in self.crowd:
            each.clean_up()


def _processes(life: Life) -> Sequence[Process]:
    return [life.process, *life.children.values()]


def _holds(history: Path) -> bool:
    """Whether a process has something in its hands: the last that it wrote down is that."""
    with history.open("rb") as lines:
        lines.seek(max(0, lines.seek(0, os.SEEK_END) - 4_096))
        last = lines.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
    return b'"op":"handle","result":"invoke"' in last or b'"op":"deliver"' in last


class Outcome(NamedTuple):
    report: Report
    refused_after_stops: int  # endings by a process that had been stopped with the delivery in its hands
    troubles: Mapping[str, int]  # with the engine, as users and logs tell of it
    complaints: Sequence[str]
    words: Mapping[str, int]  # what workers have logged, without its numbers
    integrity: str
    longest_end: float  # seconds from SIGTERM to the end
    left_after: float  # seconds that all took to be done when there were no faults any more
    seconds: float

    @property
    def good(self) -> bool:
        """Nothing is broken, and what was to be shown was shown."""
        return self.report.valid is True and not self.troubles and not self.complaints and self.integrity == "ok"

    def __str__(self) -> str:
        counts, broken = self.report.counts, {name: len(found) for name, found in self.report.violations.items()}
        landed = {kind: done for kind, (_, done) in self.report.faults.items()}
        lines = {
            "kills landed": sum(done for kind, done in landed.items() if kind.startswith("kill")),
            "stops landed": sum(done for kind, done in landed.items() if kind.startswith(("stop", "suspend"))),
            "mishaps landed": sum(done for kind, done in landed.items() if kind.startswith(MISHAPS)),
            "asked to end": sum(done for kind, done in landed.items() if kind.startswith("ask")),
            "accepted": counts["accepted"],
            "delivered": counts["delivered"],
            "handled": counts["handled"],
            "duplicates explained": sum(many for cause, many in self.report.duplicates.items() if cause != "unexplained"),
            "duplicates unexplained": self.report.duplicates.get("unexplained", 0),
            "lost": broken.get("no loss", 0),
            "early": broken.get("never early", 0),
            "acked without having been handled": broken.get("handled", 0),
            "stale endings accepted": broken.get("fencing", 0),
            "stale endings refused": counts["refused"],
            "of these after a stop": self.refused_after_stops,
            "troubles with the engine": sum(self.troubles.values()),
            "complaints": len(self.complaints),
        }
        page = [f"{count:>12,} {name}" for name, count in lines.items()]
        page += [f"{self.longest_end:>12.1f} seconds from SIGTERM to the end, at most"]
        page += [f"{self.left_after:>12.1f} seconds until all was done, without faults"]
        page += [f"{self.integrity:>12} integrity", f"{self.seconds:>12.1f} seconds under load", ""]
        page += [f"{count:>12,} logged: {words}" for words, count in self.words.items()]
        page += [f"TROUBLE: {name}: {count:,} times" for name, count in self.troubles.items()]
        page += [f"COMPLAINT: {each}" for each in self.complaints]
        return "\n".join([*page, "", str(self.report)])


def run(
    folder: Path,
    *,
    minutes: float,
    workers: int,
    seed: int,
    rate: float = 150.0,
    faults: float = 1.0,
    plant: str = "",
    kinds: Sequence[str] = (),
    clock: bool = False,
    only: Sequence[str] | None = None,
) -> Outcome:
    """Chaos for so long; then no more faults, until all is done; then all end, and their histories are judged.

    rate: messages a second, of each of two senders. faults: a second, of all kinds. plant: a fault for the checker to
    find, see `chaos_plants`. kinds: of workers; all in turn unless given. clock: the machine's wall clock is set again and
    again, and that of single processes. An engine in a file goes by it, so that nothing can be judged by the clock then; a
    server has a clock of its own, which stays as it is: there single processes have a wrong time in every run. Monotonic
    clocks, by which histories are written, and the datetime.now() of Python can't be set. only: the mishaps that may befall
    workers, and no other faults at all. None of them excuses a lease that is lost, so that is judged too.
    """
    director = Director(folder, seed, rate, plant, clock=clock, only=only)
    chosen = list(itertools.islice(itertools.cycle(kinds or KINDS), workers))
    with director.history, followed(folder), Queue(url_of(folder)) as queue:
        try:
            for kind in chosen:
                director.start(kind)
            _wait_for_work(director)
            with _reviving(director, seed):
                seconds = _rage(director, minutes * 60, faults, clock=clock)
            left_after = _settle(director, queue)
            for topic in TOPICS:
                director.look_at(queue.messages(topic, state="dead", limit=1_000))
            director.end_all()
        finally:
            director.clean_up()
        crowd.drain(Recorded(queue, director.history), 30.0)
    steady = not clock or url_of(folder) != file_of(folder)
    return _judged(director, seconds, left_after, steady=steady)


def _judged(director: Director, seconds: float, left_after: float, *, steady: bool) -> Outcome:
    paths = sorted(director.folder.glob("*.jsonl"))
    words, troubles, complaints = _heard(director.lives)
    troubles.update(record.outcome for path in paths for record in read(path) if record.outcome in crowd.ENGINE_ERRORS)
    complaints += [said for each in director.crowd if (said := each.complaint())]
    if left_after >= SETTLE:
        complaints.append(f"{left_after:.0f} s after the last fault, there was still something to do")
    report = check(paths, steady=steady)
    if director.only is not None:
        complaints += _lost_leases(director, report, words)
    return Outcome(
        report=report,
        refused_after_stops=sum(_refused(path, since) for path, since in director.stops if path.exists()),
        troubles=troubles,
        complaints=[*director.complaints, *complaints],
        words=dict(words.most_common(20)),
        integrity=crowd.integrity(file) if (file := director.folder / FILE).exists() else "ok",
        longest_end=director.longest_end,
        left_after=left_after,
        seconds=seconds,
    )


def _lost_leases(director: Director, report: Report, words: Mapping[str, int]) -> Iterable[str]:
    """Nothing has befallen the workers that excuses a lost lease."""
    if again := report.duplicates.get("lease", 0):
        yield f"{again} messages were handed out again because a lease had ended, and no mishap explains it"
    if director.buried:
        yield f"{len(director.buried)} messages were buried because a lease had ended, and no mishap explains it"
    for said, count in words.items():
        if any(lost in said for lost in LOST):
            yield f"workers said {count} times, and no mishap explains it: {said}"


RENEWED = "All leases are renewed again."  # as they could not be for a while, of which the judge has heard
OUT_OF_TIME = ("The engine could not be told how ", "The engine did not take back in time ")
"""What a stop says that had not enough time; tests of stops show what it does when it has."""


def _heard(lives: Iterable[Life]) -> tuple[Counter[str], Counter[str], list[str]]:
    """What workers have logged: all of it by its kind, what tells of trouble with the engine, and what no worker should say."""
    words, troubles, complaints = Counter[str](), Counter[str](), list[str]()
    for life in lives:
        for each in life.words():
            said = re.sub(r"\b(?=[\w.]*\d)[\w.]+", "#", each["message"])
            said = re.sub(r" of (?:mail|orders|orders\.eu)\b", " of #", said)[:100]
            words[f"{each['level']} {said}"] += 1
            if ("thread" in each["message"] and "start" in each["message"]) or NO_CONNECTION in each["message"]:
                continue  # they were kept from it, and say so
            if each["message"] == RENEWED:
                continue
            if each["message"].startswith(OUT_OF_TIME):
                continue  # an engine may be slow to answer on a busy machine: the leases keep the promise then
            if "can't" in each["message"] or "could not be" in each["message"]:
                troubles[each["message"]] += 1
            elif each["level"] == "critical" or each["logger"] in ("asyncio", "bide.heartbeat", "bide.engine", "threading"):
                complaints.append(f"{life.name} said: {each['message']} {each.get('traceback', '')}")
    return words, troubles, complaints


def _wait_for_work(director: Director) -> None:
    until = time.monotonic() + START
    while not all(life.works() for life in director.here) and time.monotonic() < until:
        time.sleep(TICK)


def _rage(director: Director, seconds: float, faults: float, *, clock: bool) -> float:
    """Faults at random instants, until all have been made."""
    began = time.monotonic()
    many = max(6, round(seconds * faults)) if director.only is None else 0
    kinds = [director.kill, director.kill, director.stop, director.stop, director.ask_to_end, director.suspend]
    kinds += [director.set_the_clock] * (2 * clock)
    chosen = list(itertools.islice(itertools.cycle(kinds), many))
    director.chance.shuffle(chosen)
    plan = sorted(zip((director.chance.uniform(0.3, seconds) for _ in chosen), range(many), strict=True), reverse=True)
    while (gone := time.monotonic() - began) < seconds or (plan and gone < 2 * seconds + PATIENCE):
        director.tend()
        if plan and plan[-1][0] <= gone and chosen[plan[-1][1]]():
            plan.pop()
        time.sleep(TICK)
    director.all_go_on()
    return time.monotonic() - began


@contextlib.contextmanager
def _reviving(director: Director, seed: int) -> Iterator[None]:
    """Give some of what is buried a new life, again and again. In a thread: a process that stands still may have the lock."""
    over = threading.Event()

    def revive() -> None:
        chance = random.Random(f"{seed} reviver")
        folder = director.folder
        with Queue(url_of(folder)) as plain, History(folder / "reviver.jsonl", "reviver") as history:
            queue = Recorded(plain, history)
            while not over.wait(REQUEUE):
                topic = chance.choice(TOPICS)
                dead = director.look_at(plain.messages(topic, state="dead", limit=10))
                if dead:
                    queue.requeue(topic, dead, delay=0.05)

    thread = threading.Thread(target=revive, name="reviver")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _settle(director: Director, queue: Queue) -> float:
    """Nobody sends any more: how long it takes until the workers have done all that is left."""
    for each in director.crowd:
        each.tell_to_end()
    for each in director.crowd:
        each.wait()
    began = time.monotonic()
    while time.monotonic() - began < SETTLE:
        director.tend()
        stats = queue.stats().topics
        if not any(each.scheduled or each.ready or each.leased for each in stats.values()):
            break
        time.sleep(10 * TICK)
    return time.monotonic() - began


def _refused(history: Path, since: int) -> int:
    """The endings that a process tried after a stop, of what it had been handed before, and that were refused."""
    held: set[str | None] = set()
    asked: dict[int, Record] = {}
    refused = 0
    for record in read(history):
        if record.op == "deliver" and record.mono <= since:
            held.add(f"{record.id} {record.token}")
        elif record.result == "invoke" and record.op in ("ack", "retry", "release", "bury"):
            asked[record.call] = record
        elif record.outcome == errors.LeaseLost.__name__ and record.mono > since and record.call in asked:
            about = asked[record.call]
            refused += f"{about.id} {about.token}" in held
    return refused


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--rate", type=float, default=150, help="messages a second, of each of two senders")
    parser.add_argument("--faults", type=float, default=1.0, help="a second")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--clock", action="store_true", help="set the machine's wall clock, as all processes see it")
    parser.add_argument("--calm", action="store_true", help="nothing befalls the workers: then no lease may be lost")
    parser.add_argument("--cut-off", action="store_true", help="as --calm, but heartbeats get no connection for a while")
    parser.add_argument("--kinds", nargs="+", default=(), choices=tuple(KINDS), help="of workers; all in turn unless given")
    parser.add_argument("--plant", default="", help="a fault for the checker to find")
    parser.add_argument("--folder", type=Path, help="keep all files there; it must be new")
    parser.add_argument("--url", help="where the messages are to be; a SQLite file in the folder unless given")
    asked = parser.parse_args(arguments)
    folder = (asked.folder or Path(tempfile.mkdtemp(prefix="bide-chaos-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if asked.url:
        note_url(folder, asked.url)
    print(f"seed {asked.seed}, in {folder}", flush=True)
    how = {"rate": asked.rate, "faults": asked.faults, "plant": asked.plant, "clock": asked.clock}
    only = (CUT_OFF,) if asked.cut_off else () if asked.calm else None
    outcome = run(folder, minutes=asked.minutes, workers=asked.workers, seed=asked.seed, only=only, kinds=asked.kinds, **how)
    print(outcome)
    print(f"verdict: {'good' if outcome.good else outcome.report.valid if outcome.report.valid == 'unknown' else 'NOT GOOD'}")
    if outcome.good and not asked.folder:
        shutil.rmtree(folder)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
