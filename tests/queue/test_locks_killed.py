"""queue.lock while its holder and those that wait for it are killed: the dead keep nobody waiting one after the other."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bide import Call, Hook, Queue

WAITERS = 4
LONG = 60.0  # seconds
PROGRAM = """
import sys
from bide import Hook, Queue

class Entered(Hook):
    def after(self, call):
        if call.verb == "enter":
            print(call.asked[0].holder, call.answer[0].token is not None, flush=True)

with Queue(sys.argv[1], hooks=[Entered()]).lock("order:42", ttl="1s", wait="60s"):
    sys.stdin.read()
"""


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("redis", marks=pytest.mark.server),
        pytest.param("postgres", marks=pytest.mark.server),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/bide.db"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


class Program:
    """It takes the lock, or waits for it."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-c", PROGRAM, url]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.name, _, self.got = self.process.stdout.readline().strip().rpartition(" ")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def programs(url: str) -> Iterator[list[Program]]:
    """One after the other: the first has the lock, the others wait."""
    with ExitStack() as stack:
        made = []
        for _ in range(1 + WAITERS):
            made.append(Program(url))
            stack.callback(made[-1].kill)
        assert [each.got for each in made] == ["True"] + ["False"] * WAITERS
        yield made


class Calls(Hook):
    """Knows whose turn it was."""

    def __init__(self) -> None:
        self.called: set[str] = set()

    def after(self, call: Call) -> None:
        if call.verb in ("leave", "tend") and call.error is None:
            self.called.update(each.waiter for each in call.answer.called)


@pytest.mark.always
def test_any_number_of_waiters_that_were_killed_costs_no_more_than_one_turn(url: str, programs: list[Program]) -> None:
    calls = Calls()
    for each in programs:
        each.process.send_signal(signal.SIGKILL)
    with Queue(url, hooks=[calls]) as queue, queue.lock("order:42", wait=LONG) as lock:
        assert not lock.lost
    assert len(calls.called & {each.name for each in programs}) <= 1
