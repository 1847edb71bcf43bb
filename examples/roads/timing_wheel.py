"""A timing wheel inside the process: a circle of slots, a tick for each, and laps for what is further away than one turn."""

import threading
import time
from collections.abc import Callable

TICK, SLOTS = 0.1, 512  # as in Netty


class Wheel:
    def __init__(self) -> None:
        self.slots: list[list[tuple[int, str]]] = [[] for _ in range(SLOTS)]  # they end with the process
        self.begin, self.tick = time.monotonic(), 0
        self.lock = threading.Lock()

    def put(self, body: str, delay: float) -> None:
        with self.lock:
            tick = max(self.tick, int((time.monotonic() + delay - self.begin) / TICK)) + 1
            self.slots[tick % SLOTS].append((tick, body))

    def turn(self) -> list[str]:
        time.sleep(max(0.0, self.begin + (self.tick + 1) * TICK - time.monotonic()))
        with self.lock:
            self.tick += 1
            slot = self.slots[self.tick % SLOTS]
            self.slots[self.tick % SLOTS] = [each for each in slot if each[0] > self.tick]
            return [body for tick, body in slot if tick <= self.tick]


def connect(url: str) -> Wheel:
    return Wheel()


def send(wheel: Wheel, body: str, delay: float) -> None:
    wheel.put(body, delay)


def work(wheel: Wheel, handle: Callable[[str], None]) -> None:
    while True:
        for body in wheel.turn():
            handle(body)  # while this takes long, the wheel stands still
