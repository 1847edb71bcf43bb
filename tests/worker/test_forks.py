"""A handler that forks: its child ends where the handler ends, and is no second worker."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.processes import Shop, open_shop

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

FORKS = """
class Odd(Exception):
    pass

def body(how):
    pid = os.fork()
    if pid:
        begun = time.monotonic()
        while time.monotonic() - begun < 15:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                say("child", how, os.waitstatus_to_exitcode(status))
                return
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        say("child", how, "lived on")
    elif how == "raise":
        raise Odd("in the child")
    elif how == "exit":
        sys.exit(7)
    elif how == "exit with words":
        sys.exit("that was it")

@queue.task("sync")
def sync(how):
    body(how)

@queue.task("async")
async def in_loop(how):
    body(how)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        made.write(FORKS)
        yield made


@pytest.mark.parametrize("topic", ["sync", "async"])
def test_the_child_ends_with_the_handler_as_a_script_would(shop: Shop, topic: str) -> None:
    codes = {"return": 0, "raise": 1, "exit": 7, "exit with words": 1}
    for how in codes:
        shop.queue.send(topic, {"how": how}, max_attempts=1)
    worker = shop.start("--grace", "10s", "--threads", "2")
    said = {line.words[1]: line.words[2] for line in shop.said("child", count=4)}
    shop.empty()
    code, _ = worker.stop()
    assert said == codes
    assert code == 0, worker.err
    assert "Odd: in the child" in worker.err
    assert "that was it" in worker.err
    assert shop.counts().dead == 0
