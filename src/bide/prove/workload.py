"""A small run with all that can go wrong on the users' side: threads that send, receive, change and die, and record it all.

    paths = run(lambda: Queue("memory://load"), folder, seed=1)
    print(check(paths, steady=True))

Each thread stands for a process: it has its own queue and its own history, and when it dies it loses what it held.
"""

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread

from bide.errors import LeaseLost
from bide.prove.actors import FUTURE, LEASE, PAUSED, TOPICS, WAIT, Changer, Producer, ReceivingActor, Slowcoach, Stage
from bide.prove.sync import Recorded
from bide.queue import Queue


def run(
    make_queue: Callable[[], Queue], folder: Path, *, seed: int, messages: int = 4_000, timeout: float = 10.0
) -> list[Path]:
    """Do all that, drain the queue, and return the paths of the histories.

    make_queue: each thread calls it for its own queue; all lead to the same messages, none at first. folder: for the
    histories. timeout: seconds that draining may take; what is left then is recorded as it is. Injected faults must have
    ended by then.
    """
    stage = Stage(make_queue, folder, seed, messages // 2)
    producers = [stage.start(Producer, f"producer-{number}") for number in (1, 2)]
    others = [stage.start(ReceivingActor, f"receiver-{number}") for number in (1, 2)]
    others += [stage.start(Slowcoach, f"slowcoach-{number}") for number in (1, 2, 3)]
    changer = stage.start(Changer, "changer")
    for thread in producers:
        thread.join()
    stage.all_sent.set()
    changer.join()
    with make_queue() as queue, stage.history("drain") as history:
        _drain(Recorded(queue, history), stage, others, timeout)
    if stage.errors:
        raise stage.errors[0]
    return stage.paths


def _drain(queue: Recorded, stage: Stage, others: Iterable[Thread], timeout: float) -> None:
    """Receive until nothing is left but paused, scheduled and dead messages."""
    until = time.monotonic() + timeout
    for topic in TOPICS:
        queue.resume(topic)  # in case it could not be
    while any(queue.plain.stats(topic).pending for topic in TOPICS) and time.monotonic() < until:
        stage.wait_for_received(1, WAIT)
    stage.stop.set()
    for thread in others:
        thread.join()
    queue.send_many(PAUSED, [1, 2, 3])
    queue.pause(PAUSED)
    queue.send(FUTURE, delay=3_600)
    while any(each.pending or each.leased for each in map(queue.plain.stats, TOPICS)) and time.monotonic() < until:
        for each in queue.receive(*TOPICS, limit=100, wait=LEASE, lease="10s"):
            with contextlib.suppress(LeaseLost):  # its history says so
                each.ack()
    queue.look()
