"""Schedules while workers are killed: each planned instant is sent once, and none is left out."""

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from bide.queue.deliveries import planned_of
from tests.worker.processes import Running, Shop, engines, open_shop

KILLS, WORKERS = (60, 4) if "BIDE_LONG" in os.environ else (5, 3)
STEP = 200  # ms
HANDLERS = f"""
@queue.every("{STEP}ms", topic="tick", missed="all", backoff=SOON, max_attempts=20)
async def tick():
    delivery = current()
    say("tick", round(delivery.planned_at.timestamp() * 1000), delivery.id, delivery.attempt)
    await asyncio.sleep(0.05)
"""


@pytest.fixture(params=engines(often="postgres"))
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    url = "" if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_url")
    with open_shop(tmp_path, url) as made:
        made.write(HANDLERS)
        yield made


@pytest.mark.always
@pytest.mark.timeout(900)
def test_each_planned_instant_is_one_message_and_none_is_left_out(shop: Shop) -> None:
    dice = random.Random(15)

    def start() -> Running:
        return shop.ready("--lease", "1s")

    workers = [start() for _ in range(WORKERS)]
    shop.said("tick", count=3)
    for _ in range(KILLS):
        victim = workers.pop(dice.randrange(len(workers)))
        shop.said("tick", count=len(shop.lines("tick")) + 1)  # the victim may be in a handler, or about to plan
        time.sleep(dice.random() * STEP / 1000)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        workers.append(start())
    seen = len(shop.lines("tick"))
    shop.said("tick", count=seen + 10)
    for worker in workers:
        worker.stop()
    messages: dict[int, set[str]] = defaultdict(set)
    for line in shop.lines("tick"):
        _, planned, message, _ = line.words
        messages[planned].add(message)
    waiting = shop.queue.messages("tick", limit=100)  # the next one, and what was given back by those that were stopped
    for each in waiting:
        messages[planned_of(each.headers) or 0].add(each.id)
    assert waiting
    assert {len(each) for each in messages.values()} == {1}
    assert {after - before for before, after in pairwise(sorted(messages))} == {STEP}
    assert shop.counts("tick").dead == 0
