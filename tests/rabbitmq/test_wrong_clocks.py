"""Machines whose clocks are minutes off send and receive: nothing comes early, nor minutes late. The broker's clock counts."""

import subprocess
import sys

import pytest

from bide import Queue
from tests.worker.processes import PATIENCE

MINUTES = 300  # seconds
DELAYS = (0.0, 0.5, 2.0)
SENDER = """
import sys, time

real, real_ns, off = time.time, time.time_ns, int(sys.argv[2])
time.time = lambda: real() + off
time.time_ns = lambda: real_ns() + off * 10**9
from bide import Queue

with Queue(sys.argv[1]) as queue:
    for delay in map(float, sys.argv[3:]):
        queue.send("mail", [time.monotonic(), delay], delay=delay)
"""
RECEIVER = """
import sys, time

real, real_ns, off = time.time, time.time_ns, int(sys.argv[2])
time.time = lambda: real() + off
time.time_ns = lambda: real_ns() + off * 10**9
from bide import Queue

with Queue(sys.argv[1]) as queue:
    for _ in sys.argv[3:]:
        while not (found := queue.receive("mail", wait="5s")):
            pass
        sent, delay = found[0].body
        print(time.monotonic() - sent - delay)
        found[0].ack()
"""


def run(program: str, url: str, off: int) -> str:
    command = [sys.executable, "-c", program, url, str(off), *map(str, DELAYS)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout


@pytest.mark.parametrize(
    ("sender", "receiver"),
    [
        (-MINUTES, MINUTES),
        (MINUTES, -MINUTES),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((0, 0), (0, MINUTES), (MINUTES, MINUTES), (-MINUTES, 0))),
    ],
)
def test_clocks_that_are_minutes_off_make_nothing_early_nor_minutes_late(
    rabbitmq_shared_url: str, sender: int, receiver: int
) -> None:
    with Queue(rabbitmq_shared_url) as queue:
        queue.receive("mail")  # makes the ladder, which takes seconds
    run(SENDER, rabbitmq_shared_url, sender)
    late = [float(line) for line in run(RECEIVER, rabbitmq_shared_url, receiver).split()]
    assert len(late) == len(DELAYS)
    assert min(late) >= 0
