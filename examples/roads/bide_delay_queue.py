"""bide's DelayQueue, inside one process: several threads may wait in `take`."""

from collections.abc import Callable

from bide import DelayQueue


def connect(url: str) -> DelayQueue[str]:
    return DelayQueue()


def send(queue: DelayQueue[str], body: str, delay: float) -> None:
    queue.put(body, delay)


def work(queue: DelayQueue[str], handle: Callable[[str], None]) -> None:
    while True:
        handle(queue.take())
