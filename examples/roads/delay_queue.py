"""A heap inside the process, as Java's DelayQueue is one: the consumer sleeps until its first item is due."""

import heapq
import threading
import time
from collections.abc import Callable


class DelayQueue:
    def __init__(self) -> None:
        self.items: list[tuple[float, str]] = []  # they end with the process
        self.changed = threading.Condition()

    def put(self, body: str, delay: float) -> None:
        with self.changed:
            heapq.heappush(self.items, (time.monotonic() + delay, body))
            self.changed.notify()

    def take(self) -> str:
        with self.changed:
            while not self.items or self.items[0][0] > time.monotonic():
                self.changed.wait(self.items[0][0] - time.monotonic() if self.items else None)
            return heapq.heappop(self.items)[1]


def connect(url: str) -> DelayQueue:
    return DelayQueue()


def send(queue: DelayQueue, body: str, delay: float) -> None:
    queue.put(body, delay)


def work(queue: DelayQueue, handle: Callable[[str], None]) -> None:
    while True:
        handle(queue.take())
