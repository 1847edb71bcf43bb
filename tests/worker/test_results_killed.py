"""Kept results while workers are killed: a message that is gone was done, its result is there, and who waits comes."""

import contextlib
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide import ResultPending
from tests.worker.processes import Running, Shop, alive, engines, open_shop, until

KILLS, MESSAGES, WORKERS = (100, 3_000, 4) if "BIDE_LONG" in os.environ else (6, 300, 3)
LEASE = 2.0  # seconds
HANDLERS = """
import random

@queue.task("square", keep="1h", backoff=SOON)
async def square(n: int) -> int:
    await asyncio.sleep(random.choice([0, 0, 0.002, 0.02]))
    say("square", n)
    return n * n

@queue.task("total", keep="1h", backoff=SOON)
async def total() -> int:
    say("total")
    return sum([await queue.result(each, timeout=0) for each in current().depends_on])
"""


@pytest.fixture(params=engines(often="redis"))
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    url = "" if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_url")
    with open_shop(tmp_path, url) as made:
        made.write(HANDLERS)
        yield made


@pytest.mark.always
@pytest.mark.timeout(1_200 if "BIDE_LONG" in os.environ else 180)
def test_every_message_has_its_result_while_workers_are_killed(shop: Shop) -> None:
    """Every ten of them have one that waits for all ten; at its deadline it would come too late."""
    chance = random.Random(seed := random.randrange(10**6))
    print(f"seed {seed}")
    square = shop.queue.task("square", keep="1h", max_attempts=50)(_square)
    total = shop.queue.task("total", keep="1h", max_attempts=50)(_total)
    sent = square.send_many({"n": n} for n in range(MESSAGES))
    tens = [sent[first : first + 10] for first in range(0, MESSAGES, 10)]
    totals = [total.options(depends_on=some).send() for some in tens[::2]]
    workers: list[Running] = []

    def start() -> None:
        workers.append(shop.start("--lease", f"{LEASE}s", "--grace", "1s", "--concurrency", "20"))

    for _ in range(WORKERS):
        start()
    for _ in range(KILLS):
        _see(shop, chance.randrange(10, 60))
        _kill(workers.pop(chance.randrange(len(workers))))
        start()
        # While they go on: each is done with its value, or goes on
        for n in chance.sample(range(MESSAGES), 10):
            with contextlib.suppress(ResultPending):
                assert shop.queue.result(sent[n], timeout=0) == n * n
    totals += [total.options(depends_on=some).send() for some in tens[1::2]]  # of many, all ten are done
    assert [shop.queue.result(each, timeout=120) for each in sent] == [n * n for n in range(MESSAGES)]
    squares = [sum(n * n for n in range(first, first + 10)) for first in range(0, MESSAGES, 10)]
    assert [shop.queue.result(each, timeout=120) for each in totals] == [*squares[::2], *squares[1::2]]
    until(lambda: not _left(shop), lambda: str(shop.counts()))
    for each in workers:
        each.stop()


def _see(shop: Shop, count: int) -> None:
    """Until handlers have said so much more, or nothing is left to do."""
    before = len(shop.lines())
    until(lambda: len(shop.lines()) >= before + count or not _left(shop))


def _square(n: int) -> int:
    return n * n


def _total() -> int:
    return 0


def _kill(worker: Running) -> None:
    worker.send(signal.SIGKILL)
    until(lambda: not alive(worker.pid))


def _left(shop: Shop) -> int:
    stats = shop.counts()
    return stats.scheduled + stats.ready + stats.leased
