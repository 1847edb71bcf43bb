"""Sends in the background of processes that end, fork, or can't reach their engine."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bide import Queue

PATIENCE = 60


def run(code: str, url: str) -> "subprocess.CompletedProcess[str]":
    program = "import os, sys, threading\nfrom bide import AsyncQueue, Queue\n" + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, url], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/bide.db"


def bodies(url: str) -> list[object]:
    with Queue(url) as queue:
        return sorted(each.body for each in queue.messages("t", limit=1_000))


ENDS = {
    "at its end": "",
    "by sys.exit": "sys.exit(0)",
    "by an error": "raise ValueError",
    "by a signal that exits": "import signal; signal.signal(15, lambda *_: sys.exit(0)); os.kill(os.getpid(), 15)",
    "in a loop that has ended": "import asyncio; asyncio.run(main())",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_a_process_that_ends_sends_the_rest(url: str, end: str) -> None:
    done = run(
        f"""
        queue = Queue(sys.argv[1])
        async def main():
            AsyncQueue(sys.argv[1]).later("t", -1)
        for n in range(300):
            queue.later("t", n)
        {end}
        """,
        url,
    )
    assert done.stderr.strip().splitlines()[-1:] == (["ValueError"] if "ValueError" in end else [])
    assert bodies(url) == [*([-1] if "main" in end else []), *range(300)]


def test_a_dead_engine_does_not_hold_up_the_end_of_a_process() -> None:
    done = run(
        """
        from bide.queue import later
        later.PATIENCE = 0.2
        import logging
        logging.basicConfig(format="%(message)s")
        queue = Queue("redis://127.0.0.1:1/0")
        queue.later("t")
        """,
        "",
    )
    assert done.returncode == 0
    assert "1 message could not be sent in time: lost" in done.stderr


@pytest.mark.skipif(not hasattr(sys.modules["os"], "fork"), reason="no fork")
def test_a_forked_child_sends_its_own_and_not_what_its_parent_took(url: str) -> None:
    done = run(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        queue = Queue(sys.argv[1])
        from bide.queue.later import Later
        send, gate = Later._send, threading.Event()
        Later._send = lambda *args: (gate.wait(20), send(*args))[1]  # nothing is sent before the fork
        for n in range(3):
            queue.later("t", n)
        child = os.fork()
        gate.set()
        if not child:
            assert queue.flush(0) == (0, 0, 0)
            queue.later("t", 3)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert queue.flush() == (0, 3, 0)
        """,
        url,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert bodies(url) == [0, 1, 2, 3]


def test_a_signal_handler_that_meets_the_buffer_is_told_and_hangs_nothing(url: str) -> None:
    done = run(
        """
        from bide import Unavailable
        queue = Queue(sys.argv[1])
        background = queue.session.setup.later
        told = []
        import signal
        def handler(*_):
            try:
                queue.later("t", 1)
            except Unavailable as error:
                told.append(str(error))
        signal.signal(signal.SIGUSR1, handler)
        with background._lock:
            os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert len(told) == 1 and "signal handler" in told[0], told
        """,
        url,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert bodies(url) == [1]
