"""Batches while workers are killed: each item is written, and written again only if its worker died before it could say so."""

import os
import random
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide import Outgoing
from tests.worker.processes import Running, Shop, alive, engines, open_shop, until

KILLS, MESSAGES = (60, 20_000) if "BIDE_LONG" in os.environ else (6, 1_200)
HANDLERS = """
import random

@queue.task("likes", batch=50, linger="10ms", backoff=SOON)
async def write(likes: list[int]):
    await asyncio.sleep(random.choice([0, 0.01, 0.05]))
    say("wrote", likes)

@queue.task("sync", batch=50, linger="10ms", backoff=SOON)
def write_sync(likes: list[int]):
    time.sleep(random.choice([0, 0.01, 0.05]))
    say("wrote in a thread", likes)
"""


@pytest.fixture(params=engines(often="sqlite"))
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    url = "" if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_url")
    with open_shop(tmp_path, url) as made:
        made.write(HANDLERS)
        yield made


@pytest.mark.always
@pytest.mark.timeout(1_200 if "BIDE_LONG" in os.environ else 180)
def test_nothing_is_lost_and_nothing_is_written_twice_but_by_the_dead(shop: Shop) -> None:
    chance = random.Random(seed := random.randrange(10**6))
    print(f"seed {seed}")
    for topic in ("likes", "sync"):
        shop.queue.send_many(topic, [Outgoing(n, max_attempts=100) for n in range(MESSAGES)])
    workers: list[Running] = []
    died: set[int] = set()

    def start() -> None:
        workers.append(shop.start("--lease", "2s", "--grace", "1s", "--concurrency", "4"))

    for _ in range(2):
        start()
    for _ in range(KILLS):
        _see(shop, chance.randrange(1, 8))
        victim = workers.pop(chance.randrange(len(workers)))
        victim.send(signal.SIGKILL)
        pid = victim.pid
        until(lambda: not alive(pid))  # noqa: B023  (it is asked at once)
        died.add(pid)
        start()
    until(lambda: not _left(shop), lambda: str(shop.counts()), patience=120)
    for each in workers:
        each.stop()
    assert shop.counts().dead == 0
    for kind in ("wrote", "wrote in a thread"):
        by: dict[int, list[int]] = defaultdict(list)
        for line in shop.lines(kind):
            for n in line.words[1]:
                by[n].append(line.pid)
        assert sorted(by) == list(range(MESSAGES))
        twice = {n: pids for n, pids in by.items() if len(pids) > 1}
        assert all(set(pids[:-1]) <= died for pids in twice.values()), twice


def _see(shop: Shop, count: int) -> None:
    """Until handlers have said so much more, or nothing is left to do."""
    before = len(shop.lines())
    until(lambda: len(shop.lines()) >= before + count or not _left(shop))


def _left(shop: Shop) -> int:
    stats = shop.counts()
    return stats.scheduled + stats.ready + stats.leased
