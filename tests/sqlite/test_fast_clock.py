"""A process whose time is wrong doesn't carry the others with it, and what a wrong clock has done can be mended."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bide import Finding, ManualClock, Queue
from bide.clock import MS
from bide.engines.sqlite import clock
from bide.engines.sqlite.clock import MachineClock, kernel_ns

SECOND = 1_000 * MS
HOUR = 3_600 * SECOND
USE = """
    import sys, time
    off, real = int(sys.argv[2]), time.time_ns
    time.time_ns = lambda: real() + off
    from bide import Queue
    with Queue(sys.argv[1]) as queue:
        print(queue.send("t", "sent", delay="1h").due)
        queue.send("t", "taken")
        [delivery] = queue.receive("t", wait=5)
        delivery.ack()
        print(delivery.due + round(1_000 * delivery.lateness))
"""

# what the machine says


class Time:
    """The time of a process and the kernel's, both turned by hand."""

    def __init__(self) -> None:
        self.own = self.kernel = 1_000 * HOUR
        self.asked = 0
        self.stamps = True

    def go(self, by: int) -> None:
        self.own += by
        self.kernel += by

    def kernel_ns(self) -> int | None:
        self.asked += 1
        return self.kernel if self.stamps else None


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Time]:
    turned = Time()
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: turned.own)
        patched.setattr(clock, "kernel_ns", turned.kernel_ns)
        yield turned


def test_the_kernel_stamps_a_time_like_the_clocks() -> None:
    stamp = kernel_ns()
    assert stamp is not None
    assert abs(stamp - time.time_ns()) < HOUR


def test_a_time_that_goes_on_evenly_is_compared_now_and_then(at: Time) -> None:
    clock = MachineClock()
    for _ in range(300):
        at.go(SECOND // 10)
        assert clock.now_ns() == at.own
    assert at.asked == 3  # at first, and every ten seconds


def test_a_jump_that_the_kernel_confirms_is_made_at_once(at: Time) -> None:
    clock = MachineClock()
    for by in (SECOND, HOUR, -HOUR, 1_000 * HOUR):
        at.go(by)
        assert clock.now_ns() == at.own


@pytest.mark.parametrize("off", [HOUR, -HOUR, 20 * SECOND])
def test_a_time_that_the_kernel_does_not_confirm_is_not_used(off: int, at: Time, caplog: pytest.LogCaptureFixture) -> None:
    clock = MachineClock()
    clock.now_ns()
    at.own += off
    for _ in range(3):
        at.go(SECOND)
        assert clock.now_ns() == at.kernel
    at.own -= off
    assert clock.now_ns() == at.own
    assert len(caplog.records) == 1
    assert "ManualClock" in caplog.text


def test_a_time_that_runs_too_fast_is_found_out(at: Time) -> None:
    clock = MachineClock()
    for _ in range(100):
        at.own += 2 * SECOND
        at.kernel += SECOND
        assert clock.now_ns() - at.kernel <= 10 * SECOND


def test_where_nothing_is_stamped_the_time_is_believed(at: Time) -> None:
    at.stamps = False
    clock = MachineClock()
    at.own += HOUR
    assert clock.now_ns() == at.own


# several processes


def marks(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [mark for (mark,) in connection.execute("select mark from engine")]


@pytest.mark.parametrize("off", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_a_process_with_a_wrong_time_leaves_that_of_the_file_right(
    off: int, url: str, path: Path, start: Callable[..., Any]
) -> None:
    with closing(Queue(url)) as queue:
        queue.send("t", 0, delay="2h")
        half = datetime.now(UTC) + timedelta(minutes=30)
        queue.send("half", 1, at=half)
        before = time.time_ns()
        child = start(USE, url, off)
        due, taken = int(child.line()), int(child.line())
        warned = child.complaint()
        after = time.time_ns()
        assert "SQLite goes by the machine's" in warned
        assert before // MS - 1_000 <= due - 3_600_000 <= after // MS + 1_000
        assert before // MS - 1_000 <= taken <= after // MS + 1_000
        assert max(marks(path)) < time.time_ns() + 10 * SECOND
        assert queue.receive("half") == []
        assert queue.send("now", 1).due * MS < time.time_ns() + 10 * SECOND


# the doctor


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "bide", "doctor", *arguments], capture_output=True, text=True, check=False)


def poison(url: str) -> None:
    """As by a clock of the whole machine that was an hour ahead, with a lease of a minute."""
    with closing(Queue(url, clock=ManualClock(datetime.now(UTC) + timedelta(hours=1)))) as queue:
        queue.send("held", 1)
        assert queue.receive("held", lease=60)


def engine_time(url: str) -> Finding:
    return next(each for each in Queue(url).examine() if each.name == "engine time")


def test_a_time_that_agrees_is_well(url: str) -> None:
    with closing(Queue(url)) as queue:
        queue.send("t", 1)
    assert engine_time(url) == Finding("engine time", "agrees with the clock")


def test_a_file_whose_time_is_ahead_is_found_and_mended(url: str, path: Path) -> None:
    poison(url)
    found = engine_time(url)
    assert found.level == "bad"
    assert "bide doctor --fix" in found.advice
    assert run("--url", url).returncode == 1

    done = run("--url", url, "--fix")
    assert (done.returncode, done.stderr) == (0, "")
    assert "mended" in done.stdout
    assert engine_time(url).level == "ok"
    assert max(marks(path)) <= time.time_ns()
    with closing(Queue(url)) as queue:
        assert queue.send("t", 1, delay=60).due < (time.time_ns() + 70 * SECOND) // MS
        [held] = queue.messages("held")
        assert held.lease_until is not None
        assert held.lease_until < (time.time_ns() + 70 * SECOND) // MS  # a minute from now, not an hour
    assert "nothing: there is nothing to repair" in run("--url", url, "--fix").stdout


def test_where_nothing_is_to_be_mended_fix_says_so(url: str) -> None:
    with closing(Queue(url)) as queue:
        queue.send("t", 1)
    for place, answer in ((url, "nothing: there is nothing to repair"), ("memory://", "nothing: --fix can't repair")):
        done = run("--url", place, "--fix")
        assert (done.returncode, done.stderr) == (0, "")
        assert answer in done.stdout


def test_a_file_in_use_is_not_mended_and_says_so(url: str) -> None:
    poison(url)
    with closing(Queue(url)) as queue:
        queue.stats()
        done = run("--url", url, "--fix")
        assert done.returncode != 0
        assert "in use" in done.stderr
        queue.send("t", 1)
        assert engine_time(url).level == "bad"


def test_nothing_is_made_to_be_mended(url: str, path: Path) -> None:
    assert run("--url", url, "--fix").returncode == 0
    assert not path.exists()
    assert run("--url", "memory://", "--fix").returncode == 0
