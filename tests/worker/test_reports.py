"""What workers tell of themselves: who they are, what they run, and what they did in the last hour."""

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from bide import AsyncQueue, ManualClock, Queue, Unsupported, WorkerInfo
from bide.cli.workers import SILENT, state
from bide.engines.base import NewMessage
from bide.ids import exact_version, process_name
from bide.queue.schedules.records import WORKERS
from bide.queue.workers import KEPT, Minutes, Process, Work, key, report
from bide.worker import chores
from tests.cli.running import BIDE, plain_environment
from tests.worker.conftest import EVERY_ENGINE, place
from tests.worker.processes import PATIENCE, Shop, open_shop
from tests.worker.processes import until as until_seen

MINUTE = 60_000


@pytest.fixture(params=EVERY_ENGINE)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return place(request, tmp_path)


async def test_a_worker_tells_who_it_is_and_what_it_does(
    queue: AsyncQueue, working: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "TOLD", 0.01)

    @queue.task("mail", max_attempts=1)
    async def mail(number: int) -> None:
        if not number:
            raise ValueError

    @queue.task("waits")
    async def waits() -> None:
        await over.wait()

    over = asyncio.Event()
    await mail.send_many({"number": each} for each in range(5))
    await waits.send()
    async with working(queue):
        known: list[WorkerInfo] = []

        async def told() -> bool:
            known[:] = await queue.workers()  # none, if its message is replaced while Redis is read
            return [(each.done, each.failed, each.running) for each in known] == [(4, 1, {"waits": 1})]

        await until(told)
        [found] = known
        over.set()
    assert (found.name, found.pid, found.version) == (process_name(os.getpid()), os.getpid(), exact_version())
    assert found.host == socket.gethostname()
    assert list(found.topics) == ["mail", "waits"]
    assert not found.stopped
    assert found.started <= found.seen
    assert (sum(each.done for each in found.minutes), sum(each.failed for each in found.minutes)) == (4, 1)
    assert max(each.lateness for each in found.minutes) >= 0
    [found] = await queue.workers()
    assert (found.stopped, found.running, found.done) == (True, {}, 5)
    # which nobody sees among the messages of the queue
    assert await queue.topics() == ["mail"]
    assert (await queue.stats()).scheduled == 0


async def test_two_workers_with_one_name_are_two(queue: AsyncQueue, working: Any, until: Any) -> None:
    @queue.task("mail")
    async def mail() -> None: ...

    async with working(queue), working(queue):

        async def both() -> bool:
            return len(await queue.workers()) == 2

        await until(both)
    name = process_name(os.getpid())
    assert [(each.name, each.stopped) for each in await queue.workers()] == [(name, True), (name, True)]


async def test_an_engine_that_breaks_down_once_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.worker.chores.TOLD", 0.0)
    told = asyncio.Event()

    class Breaks:
        tries = 0

        async def put(self, messages: object) -> None:
            self.tries += 1
            if self.tries < 3:
                raise ZeroDivisionError
            told.set()

    reporter = chores.Reporter(cast("Any", Breaks()), ["t"], lambda now: Work({}, 0, 0, []), lambda: 0)
    running = asyncio.create_task(reporter.run())
    await asyncio.wait_for(told.wait(), PATIENCE)
    running.cancel()


def test_what_was_told_is_there_for_an_hour() -> None:
    clock = ManualClock()
    with Queue("memory://", clock=clock) as queue:
        engine = queue.session.engine()
        process, work = Process("a", 1, "1", ["t"], 0), Work({}, 0, 0, [])
        engine.put([NewMessage(WORKERS, b"not ours", KEPT, key="x"), report(key("a:1"), process, work)])
        assert [each.name for each in queue.workers()] == ["a:1"]
        clock.advance(KEPT / 1000 - 1)
        engine.put([report(key("b:1"), process, work)])
        clock.advance(2)
        engine.tend()
        assert [each.name for each in queue.workers()] == ["b:1"]


def test_an_engine_that_keeps_no_keys_says_so() -> None:
    with Queue("amqp://localhost") as queue, pytest.raises(Unsupported, match="can't keep what workers tell of themselves"):
        queue.workers()


def test_minutes_add_up_and_the_last_sixty_are_kept() -> None:
    minutes = Minutes()
    minutes.late(300)
    minutes.late(200)
    assert minutes.until(10 * MINUTE + 5, 4, 1) == [(10 * MINUTE, 4, 1, 300)]
    minutes.late(100)
    assert minutes.until(10 * MINUTE + 59_999, 6, 1) == [(10 * MINUTE, 6, 1, 300)]
    assert minutes.until(11 * MINUTE, 6, 1) == [(10 * MINUTE, 6, 1, 300)]  # an idle one is left out
    assert minutes.until(12 * MINUTE, 6, 3) == [(10 * MINUTE, 6, 1, 300), (12 * MINUTE, 0, 2, 0)]
    assert minutes.until(71 * MINUTE, 6, 3) == [(12 * MINUTE, 0, 2, 0)]
    for each in range(200):
        found = minutes.until((100 + each) * MINUTE, 7 + each, 3)
    assert len(found) == 60


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        made.write('@queue.task("mail")\nasync def mail():\n    say("mail")\n')
        yield made


def bide(shop: Shop, *arguments: str) -> str:
    command = [*BIDE, "workers", "--url", shop.url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=plain_environment(), check=True).stdout


def test_one_that_was_killed_is_told_of_with_its_successor(shop: Shop) -> None:
    worker = shop.start("--processes", "1")
    [first] = until_seen(shop.queue.workers)
    os.kill(first.pid, 9)
    until_seen(lambda: len(shop.queue.workers()) == 2)
    assert worker.stop()[0] == 0
    before, after = sorted(shop.queue.workers(), key=lambda each: each.started)
    assert (before.pid, before.stopped, after.stopped) == (first.pid, False, True)


def test_the_command_lists_them(shop: Shop) -> None:
    worker = shop.start()
    [found] = until_seen(shop.queue.workers)
    heading, line = bide(shop).splitlines()
    assert heading.split()[:3] == ["worker", "state", "runs"]
    assert line.split()[:3] == [found.name, "works", "0"]
    assert json.loads(bide(shop, "--json"))["worker"] == found.name
    assert worker.stop()[0] == 0
    assert bide(shop) == ""
    assert "stopped" in bide(shop, "--all")


def test_a_silent_worker_is_told_apart() -> None:
    info = WorkerInfo("a:1", "a", 1, "1", ["t"], 0, 0, False, {}, 0, 0, [])
    assert (state(info, SILENT), state(info, SILENT + 1)) == ("works", "silent")
