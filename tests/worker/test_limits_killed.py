"""Limits and locks while workers are killed: never too many at once, and what the dead held is free in time."""

import itertools
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bide import Outgoing
from tests.worker.processes import Line, Running, Shop, alive, engines, open_shop, until

KILLS, MESSAGES, WORKERS = (100, 3_000, 4) if "BIDE_LONG" in os.environ else (6, 240, 3)
LEASE = 2.0  # seconds
HANDLERS = """
import random

async def work(kind, n):
    say("begin", kind, n, current().token)
    await asyncio.sleep(random.choice([0, 0, 0.002, 0.02]))
    say("end", kind, n, current().token)

@queue.task("locked", lock="order:{order}", backoff=SOON, lock_wait="10m")
async def locked(order: int, n: int):
    await work(f"lock {order}", n)

@queue.task("few", concurrency=2, backoff=SOON)
async def few(n: int):
    await work("few", n)

@queue.task("each", concurrency=2, per="{user}", backoff=SOON)
async def each(user: int, n: int):
    await work(f"user {user}", n)

@queue.task("rate", rate="20/100ms", backoff=SOON)
async def rate(n: int):
    say("began", n)

@queue.task("paced", rate="20/100ms", per="{user}", backoff=SOON)
async def paced(user: int, n: int):
    say("paced", user, n)

@queue.task("plain", backoff=SOON)
async def plain(n: int):
    say("plain", n)
"""


@pytest.fixture(params=engines(often="redis"))
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    url = "" if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_url")
    with open_shop(tmp_path, url) as made:
        made.write(HANDLERS)
        yield made


class Stay(NamedTuple):
    """Somebody inside of a limit, from when until when at most."""

    begin: float
    end: float
    pid: int
    n: int


def stays(lines: list[Line], died: dict[int, float]) -> dict[str, list[Stay]]:
    """By limit. A stay that has no end ended with its process."""
    found: dict[str, list[Stay]] = defaultdict(list)
    ended = {(line.pid, *line.words[1:]): line.at for line in lines if line.words[0] == "end"}
    for line in lines:
        if line.words[0] == "begin":
            _, kind, n, token = line.words
            end = ended.get((line.pid, kind, n, token), died.get(line.pid))
            assert end is not None, f"{line} never ended, and its process was not killed"
            found[kind].append(Stay(line.at, end, line.pid, n))
    return found


def most_at_once(inside: list[Stay]) -> int:
    steps = sorted([(each.begin, 1) for each in inside] + [(each.end, -1) for each in inside])
    return max(itertools.accumulate(step for _, step in steps))


@pytest.mark.always
@pytest.mark.timeout(1_200 if "BIDE_LONG" in os.environ else 180)
def test_limits_hold_while_workers_are_killed(shop: Shop) -> None:
    chance = random.Random(seed := random.randrange(10**6))
    print(f"seed {seed}")
    for topic, more in (("locked", "order"), ("few", ""), ("each", "user"), ("rate", ""), ("paced", "user"), ("plain", "")):
        items = [{"n": n} | ({more: n % 7} if more else {}) for n in range(MESSAGES)]
        shop.queue.send_many(topic, [Outgoing(each, max_attempts=50) for each in items])
    workers: list[Running] = []
    died: dict[int, float] = {}

    def start() -> None:
        workers.append(shop.start("--lease", f"{LEASE}s", "--grace", "1s", "--concurrency", "20"))

    for _ in range(WORKERS):
        start()
    for _ in range(KILLS):
        _see(shop, chance.randrange(20, 200))
        victim = workers.pop(chance.randrange(len(workers)))
        died[victim.pid] = _killed(victim)
        start()
    until(lambda: not _left(shop), lambda: str(shop.counts()), patience=120)
    for each in workers:
        each.stop()
    lines = shop.lines()
    for kind, inside in stays(lines, died).items():
        assert most_at_once(inside) <= (1 if kind.startswith("lock") else 2), kind
    began = sorted(line.at for line in lines if line.words[0] == "began")
    # each says when its handler began to run, which is a moment after it was let in
    assert max(_within(began, at, 0.1) for at in began) <= 2 * 20
    for topic in ("locked", "few", "each", "rate", "paced", "plain"):
        stats = shop.counts(topic)
        assert (stats.scheduled, stats.ready, stats.leased, stats.dead) == (0, 0, 0, 0)


def test_another_worker_takes_over_a_rate_when_the_one_that_took_all_of_it_is_killed(shop: Shop) -> None:
    shop.queue.send_many("rate", [{"n": n} for n in range(6_000)])
    workers = {worker.pid: worker for worker in (shop.start("--lease", f"{LEASE}s"), shop.start("--lease", f"{LEASE}s"))}

    def alone() -> int | None:
        """The process of all that began in the last tenths of a second."""
        last = {line.pid for line in shop.lines()[-60:]}
        return last.pop() if len(last) == 1 and len(shop.lines()) >= 60 else None

    leader = until(alone, lambda: str(Counter(line.pid for line in shop.lines())))
    _killed(workers.pop(leader))
    [other] = workers
    before = sum(line.pid == other for line in shop.lines())
    until(lambda: sum(line.pid == other for line in shop.lines()) >= before + 60)


def _see(shop: Shop, count: int) -> None:
    """Until handlers have said so much more, or nothing is left to do."""
    before = len(shop.lines())
    until(lambda: len(shop.lines()) >= before + count or not _left(shop))


def _killed(worker: Running) -> float:
    """When it was surely gone."""
    worker.send(signal.SIGKILL)
    until(lambda: not alive(worker.pid))
    return time.monotonic()


def _left(shop: Shop) -> int:
    stats = shop.counts()
    return stats.scheduled + stats.ready + stats.leased


def _within(times: list[float], end: float, window: float) -> int:
    return sum(end - window < at <= end for at in times)
