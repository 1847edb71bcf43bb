"""How processes end whose logs hang or fail: in time, with their exit code, and with their attempts counted."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.processes import Running, Shop, open_shop, until

MARGIN = 3.0  # seconds more than is promised, for a machine that is busy with something else
PROMISED = 1.5  # seconds after the grace

# What handlers do to the logs of their process.
LOGS = {
    "a full pipe": """
read, write = os.pipe()
os.set_blocking(write, False)
while True:
    try:
        os.write(write, b"x")
    except BlockingIOError:
        break
os.set_blocking(write, True)  # and its reading end stays open
os.dup2(write, 2)
""",
    "a handler that hangs": """
class Stuck(logging.Handler):
    def emit(self, record):
        time.sleep(1000)

logging.getLogger().addHandler(Stuck())
""",
    "a flush that raises": """
class Deaf(logging.Handler):
    def emit(self, record): pass
    def flush(self): raise RuntimeError("the service for logs is down")

logging.getLogger().addHandler(Deaf())
""",
    "a flush that hangs": """
class Slow(logging.Handler):
    def emit(self, record): pass
    def flush(self): time.sleep(1000)

logging.getLogger().addHandler(Slow())
""",
}
HANDLERS = """
import logging

def spoil_logs():
    {spoil}

@queue.task("talks", backoff=SOON)
def talks():
    spoil_logs()
    say("talks")
    logging.getLogger("mine").error("so it is")

@queue.task("leaves")
async def leaves():
    spoil_logs()
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 1000)
    say("leaves")

@queue.task("exit", backoff=SOON)
async def exits(code):
    say("exit", current().attempt)
    spoil_logs()
    asyncio.get_running_loop().call_later(0.01, sys.exit, code)
    await asyncio.sleep(1000)
"""
logs = pytest.mark.parametrize("how", LOGS)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        yield made


def write(shop: Shop, spoil: str = "pass") -> None:
    shop.write(HANDLERS.replace("{spoil}", spoil.strip().replace("\n", "\n    ")))


@pytest.mark.parametrize(
    ("topic", "how", "options"),
    [
        *(("talks", how, options) for how in LOGS for options in ((), ("--processes", "1"))),
        ("leaves", "a flush that raises", ()),
    ],
)
def test_a_stop_ends_in_time(shop: Shop, topic: str, how: str, options: tuple[str, ...]) -> None:
    write(shop, LOGS[how])
    shop.queue.send(topic)
    worker = shop.start("--grace", "200ms", *options)
    shop.said(topic)
    code, took = worker.stop()
    print(f"{how} {options}: {took - 0.2:.2f} s after the grace")
    assert code == 0, worker.err
    assert took < 0.2 + PROMISED + MARGIN


SUPERVISOR = """
import logging

@queue.task("wait")
async def wait():
    say("wait", os.getpid())
    await asyncio.sleep(1000)

class Stuck(logging.Handler):
    def emit(self, record):
        say("stuck")
        time.sleep(1000)

if "--lifeline" not in sys.argv:
    logging.getLogger("bide.supervisor").addHandler(Stuck())
"""


def test_a_supervisor_whose_logs_hang_ends_all_its_processes_in_time(shop: Shop) -> None:
    shop.write(SUPERVISOR)
    sent = shop.queue.send_many("wait", [None] * 2)
    worker = shop.start("--processes", "2", "--concurrency", "1", "--grace", "200ms", "--lease", "100s")
    first, _ = shop.said("wait", count=2)
    os.kill(first.pid, signal.SIGKILL)
    shop.said("stuck")
    code, took = worker.stop()
    print(f"{took - 0.2:.2f} s after the grace")
    assert code == 0, worker.err
    left = [info for each in sent if (info := shop.queue.get(each.id)) is not None]
    assert sorted(each.attempt for each in left) == [0, 1]  # nobody could give back what the killed process held


@logs
def test_a_message_that_ends_its_process_is_buried(shop: Shop, how: str) -> None:
    write(shop, LOGS[how])
    shop.queue.send("exit", {"code": 3}, max_attempts=2)
    worker = shop.start("--processes", "1", "--lease", "100s", "--grace", "2s")
    [dead] = shop.dead("exit")
    assert [line.words[1] for line in shop.lines("exit")] == [1, 2]
    assert "exit code 3" in (dead.last_error or "")
    assert worker.stop()[0] == 0


@logs
def test_it_is_buried_without_a_supervisor_too(shop: Shop, how: str) -> None:
    write(shop, LOGS[how])
    shop.queue.send("exit", {"code": 3}, max_attempts=2)
    arguments = ("--lease", "500ms", "--grace", "2s")
    workers: list[Running] = [shop.start(*arguments)]

    def buried() -> bool:
        if workers[-1].process.poll() is not None:
            workers.append(shop.start(*arguments))
        return shop.counts("exit").dead == 1

    until(buried)
    assert [line.words[1] for line in shop.lines("exit")] == [1, 2]
    assert [each.process.poll() for each in workers[:2]] == [3, 3]


@pytest.mark.parametrize(("code", "ends_with"), [(256, 1), (261, 1), (2**40, 1), (-1, 255), ("words", 1)])
def test_no_exit_code_looks_like_a_stop_or_has_the_message_come_back_uncounted(
    shop: Shop, code: object, ends_with: int
) -> None:
    """0 is no code of a failure, and 5 is for the supervisor. The system keeps eight bits."""
    write(shop)
    shop.queue.send("exit", {"code": code}, max_attempts=1)
    assert shop.ended("--lease", "500ms")[0] == ends_with
    assert shop.counts("exit").leased == 1  # until its lease ends: then the attempt counts
