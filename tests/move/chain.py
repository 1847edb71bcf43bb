"""Messages that move from queue to queue while senders and workers go on, and the mover is killed: what became of each.

Each message has a number. At the end, every number that was accepted was handled once, or waits in the last queue as it was
sent: nothing else may have become of it.
"""

import argparse
import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from bide import Outgoing, Queue
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

TOPIC = "order.cancel"
PART = 10_000
HOUR = 3_600
EVERY = 4  # messages of which one has a key
SOON = 50  # messages of which one falls due while all this goes on
ACTORS = Path(__file__).with_name("actors.py")


class Leg(NamedTuple):
    """One move, from a queue to the next one."""

    moved: int
    seconds: float
    kills: int
    answer: dict[str, object]  # of the last run


class Seen(NamedTuple):
    """What became of all messages."""

    legs: Sequence[Leg]
    sent: int
    handled: int
    waiting: int
    lost: Sequence[int]
    twice: Sequence[int]
    early: Sequence[int]
    changed: Sequence[int]  # wait with another due time or key

    @property
    def rate(self) -> float:
        return sum(each.moved for each in self.legs) / sum(each.seconds for each in self.legs)

    def faults(self) -> dict[str, Sequence[int]]:
        named = {"lost": self.lost, "twice": self.twice, "early": self.early, "changed": self.changed}
        return {name: each[:10] for name, each in named.items() if each}

    def lines(self) -> Iterator[str]:
        for number, leg in enumerate(self.legs, 1):
            rate = leg.moved / leg.seconds
            yield f"leg {number}: {leg.moved:,} moved in {leg.seconds:,.0f} s, {rate:,.0f}/s, mover killed {leg.kills} times"
        yield f"sent {self.sent:,}; handled {self.handled:,}; waiting {self.waiting:,}; {self.rate:,.0f} moved a second"
        yield f"lost {len(self.lost)}, doubled {len(self.twice)}, early {len(self.early)}, changed {len(self.changed)}"


def key_of(number: int) -> str | None:
    return None if number % EVERY else f"order:{number}"


def message(number: int, delay: float) -> Outgoing:
    return Outgoing({"order": number}, delay=delay, key=key_of(number), priority="low" if number % 7 == 0 else "normal")


def fill(url: str, count: int, dues: "array[int]", chance: random.Random) -> None:
    with Queue(url) as queue:
        for first in range(0, count, PART):
            numbers = range(first, min(count, first + PART))
            delays = [chance.uniform(1, 120) if n % SOON == 0 else chance.uniform(12, 36) * HOUR for n in numbers]
            sent = queue.send_many(TOPIC, [message(n, d) for n, d in zip(numbers, delays, strict=True)])
            dues.extend(each.due for each in sent)


@contextmanager
def actor(role: str, url: str, log: Path, *more: object) -> Iterator[None]:
    """A worker or a sender in a process of its own, asked to end at the end."""
    command = [sys.executable, str(ACTORS), role, url, str(log), *map(str, more)]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
        if code:
            raise RuntimeError(f"The {role} ended with code {code}.")


def move(
    source: str, destination: str, kills: int, after: float, chance: random.Random, said: IO[bytes], count: int = 0
) -> Leg:
    """Move all, killing the mover so often at random moments, about so many seconds after its start. The first `count` numbers
    are those that wait in the first queue: of them it is told how many were moved."""
    command = [sys.executable, "-m", "bide", "move", source, destination, "--json"]
    seconds, killed = 0.0, 0
    while True:
        began = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said) as mover:
            try:
                out, _ = mover.communicate(timeout=chance.uniform(0.5, 1.5) * after if killed < kills else None)
            except subprocess.TimeoutExpired:
                mover.kill()
                killed += 1
        seconds += time.monotonic() - began
        if mover.returncode == -signal.SIGKILL:
            continue
        if mover.returncode:
            raise RuntimeError(f"bide move ended with code {mover.returncode}: {out.decode()}")
        moved = sum(number < count for number, _, _ in left_in(destination)) if count else 0
        return Leg(moved, seconds, killed, json.loads(out))


def run(count: int, kills: int, seed: int, folder: Path, queues: Sequence[str], *, rate: int, after: float) -> Seen:
    """Fill the first queue and move it all along, with a sender and a worker at each end."""
    chance = random.Random(seed)
    dues = array("q")
    fill(queues[0], count, dues, chance)
    legs: list[Leg] = []
    share = [kills // (len(queues) - 1) + (each < kills % (len(queues) - 1)) for each in range(len(queues) - 1)]
    with (folder / "said.txt").open("ab") as said:
        for number, (source, destination) in enumerate(itertools.pairwise(queues)):
            with (
                actor("work", source, folder / f"handled-{number}-old"),
                actor("work", destination, folder / f"handled-{number}-new"),
                actor("send", destination, folder / f"sent-{number}-new", rate, count + (2 * number + 1) * 10**9),
            ):
                with actor("send", source, folder / f"sent-{number}-old", rate, count + 2 * number * 10**9):
                    legs.append(move(source, destination, share[number], after, chance, said, count))
                move(source, destination, 0, after, chance, said)  # what was sent meanwhile
    return judge(legs, folder, queues, dues)


def judge(legs: Sequence[Leg], folder: Path, queues: Sequence[str], filled: Sequence[int]) -> Seen:
    due_of = dict(enumerate(filled))
    for file in folder.glob("sent-*"):
        due_of |= {int(number): int(due) for number, due in map(str.split, file.read_text().splitlines())}
    handled, early = Counter[int](), list[int]()
    for file in folder.glob("handled-*"):
        for number, when in (map(int, line.split()) for line in file.read_text().splitlines()):
            handled[number] += 1
            if when < due_of[number]:
                early.append(number)
    waiting, changed = Counter[int](), list[int]()
    for url in queues:
        for number, due, key in left_in(url):
            waiting[number] += 1
            if url != queues[-1] or key != key_of(number) or due != due_of[number]:
                changed.append(number)
    lost = [number for number in due_of if not handled[number] and not waiting[number]]
    twice = [number for number in due_of if handled[number] + waiting[number] > 1]
    return Seen(legs, len(due_of), handled.total(), waiting.total(), lost, twice, early, changed)


def left_in(url: str) -> Iterator[tuple[int, int, str | None]]:
    with Queue(url) as queue:
        after: str | None = None
        while True:
            page = queue.messages(TOPIC, limit=1_000, after=after)
            yield from ((each.body["order"], each.due, each.key) for each in page)
            after = page.after
            if after is None:
                return


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.moving", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rate", type=int, default=20, help="messages a second that each sender sends meanwhile")
    parser.add_argument("--after", type=float, default=15.0, help="seconds after which the mover is killed, about")
    parser.add_argument("--seed", type=int, default=17)
    asked = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bide-moving-")))
        redis, postgres = stack.enter_context(RedisServer()), stack.enter_context(PostgresServer(fsync=True))
        queues = [f"sqlite:///{folder}/first.db", redis.url, postgres.url, f"sqlite:///{folder}/last.db"]
        seen = run(asked.messages, asked.kills, asked.seed, folder, queues, rate=asked.rate, after=asked.after)
        print("\n".join(seen.lines()), flush=True)
        if seen.faults():
            print(seen.faults())
            print((folder / "said.txt").read_text())
    return 1 if seen.faults() else 0
