"""bide's TimerWheel, inside one process: handlers run in its threads, and one that takes long stops no other."""

import threading
from collections.abc import Callable

from bide import TimerWheel


class Timers:
    def __init__(self) -> None:
        self.wheel = TimerWheel()
        self.handle: Callable[[str], None] = print

    def fire(self, body: str) -> None:
        self.handle(body)


def connect(url: str) -> Timers:
    return Timers()


def send(timers: Timers, body: str, delay: float) -> None:
    timers.wheel.schedule(delay, timers.fire, body)


def work(timers: Timers, handle: Callable[[str], None]) -> None:
    timers.handle = handle
    with timers.wheel:  # its threads call the handlers until the end of the block
        threading.Event().wait()
