"""What goes on while messages move: `actors.py work URL LOG`, and `actors.py send URL LOG RATE FIRST`. SIGTERM ends each."""

import random
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bide import Queue
from tests.move.chain import TOPIC, message

ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())


def work(url: str, log: str) -> None:
    """Handle what is due, and write the number and the engine's due time and now of each."""
    with Queue(url) as queue, Path(log).open("a", buffering=1) as file:
        while not ended.is_set():
            for delivery in queue.receive(TOPIC, limit=50, wait=0.5):
                with delivery:
                    file.write(f"{delivery.body['order']} {time.time_ns() // 1_000_000}\n")


def send(url: str, log: str, rate: int, first: int) -> None:
    """Send so many a second, some due soon, and write the number and the due time of each that was accepted."""
    chance, number = random.Random(first), first
    with Queue(url) as queue, Path(log).open("a", buffering=1) as file:
        while not ended.wait(1 / rate):
            each = message(number, chance.choice([0, 1, 5, 86_400]))
            sent = queue.send(TOPIC, each.body, delay=each.delay, key=each.key, priority=each.priority)
            file.write(f"{number} {sent.due}\n")
            number += 1


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    if role == "work":
        work(*arguments)
    else:
        send(arguments[0], arguments[1], int(arguments[2]), int(arguments[3]))
