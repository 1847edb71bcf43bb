"""A small run with all that can go wrong on the users' side: threads that send, receive, change and die, writing histories.

    paths = run(lambda: Queue("memory://load"), folder, seed=1)
    print(check(paths, steady=True))

Each thread stands for a process: it has a queue and a history of its own, and when it dies it forgets what it held.
"""

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread

from bide.errors import LeaseLost
from bide.queue import Queue
from bide.testing.history.sync.recorded import Recorded
from bide.testing.history.workload.actors import FUTURE, LEASE, PAUSED, TOPICS, WAIT, Changer, Producer, Receiver, Slowcoach
from bide.testing.history.workload.stage import Stage

__all__ = ["run"]


def run(
    make_queue: Callable[[], Queue], folder: Path, *, seed: int, messages: int = 4_000, patience: float = 10.0
) -> list[Path]:
    """Do all that, drain the queue, and answer with the histories.

    make_queue: each thread calls it for a queue of its own; all of one place that is empty. folder: for the histories.
    patience: seconds that draining may take; what is left by then is looked at as it is. No faults may be on by then.
    """
    stage = Stage(make_queue, folder, seed, messages // 2)
    producers = [stage.start(Producer, f"producer-{number}") for number in (1, 2)]
    others = [stage.start(Receiver, f"receiver-{number}") for number in (1, 2)]
    others += [stage.start(Slowcoach, f"slowcoach-{number}") for number in (1, 2, 3)]
    changer = stage.start(Changer, "changer")
    for thread in producers:
        thread.join()
    stage.all_sent.set()
    changer.join()
    with make_queue() as queue, stage.history("drain") as history:
        _drain(Recorded(queue, history), stage, others, patience)
    if stage.errors:
        raise stage.errors[0]
    return stage.paths


def _drain(queue: Recorded, stage: Stage, others: Iterable[Thread], patience: float) -> None:
    """Faults off: receive until nothing is left but what is paused, what is planned, and the dead."""
    until = time.monotonic() + patience
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
