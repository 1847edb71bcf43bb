"""Processes of workers on Redis that are killed with a hundred messages in their hands: all of them come back."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.processes import Shop, open_shop, until

HELD = 100
HANDLERS = """
@queue.task("t", max_attempts=5)
async def handle(n):
    say("got", n, current().attempt)
    if current().attempt == 1:
        await asyncio.sleep(600)
"""


@pytest.fixture
def shop(tmp_path: Path, redis_url: str) -> Iterator[Shop]:
    with open_shop(tmp_path, redis_url) as made:
        made.write(HANDLERS)
        made.queue.send_many("t", [{"n": n} for n in range(HELD)])
        yield made


def came_back(shop: Shop, killed: float) -> float:
    """Seconds until the last of them was in somebody's hands again; each was done once."""
    again = shop.said("got", count=2 * HELD)[HELD:]
    assert sorted(line.words[1] for line in again) == list(range(HELD))
    assert all(line.words[2] == 2 for line in again)
    until(lambda: not shop.queue.stats().topics)
    return max(line.at for line in again) - killed


@pytest.mark.always
def test_what_a_killed_worker_held_is_back_when_its_lease_has_ended(shop: Shop) -> None:
    worker = shop.start("--lease", "2s", "--concurrency", str(HELD))
    first = shop.said("got", count=HELD)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    shop.start("--lease", "2s", "--concurrency", str(HELD))
    print(f"back after {came_back(shop, first[-1].at):.2f} s with a lease of 2 s")


def test_what_a_supervised_process_held_is_back_at_once(shop: Shop) -> None:
    worker = shop.start("--processes", "1", "--lease", "100s", "--concurrency", str(HELD))
    first = shop.said("got", count=HELD)
    [child] = {line.pid for line in first}
    os.kill(child, signal.SIGKILL)
    print(f"back after {came_back(shop, first[-1].at):.2f} s under the supervisor")
    assert worker.stop()[0] == 0
