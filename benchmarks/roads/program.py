"""A way's sender or consumer, in a process of its own with the way's Python: it needs nothing but that way.

`program.py WAY URL FILE PERIOD ROLE`: a consumer appends a line to FILE for each message: its body, and when it was handled. A
sender reads what to send from its input, a JSON object a line, and answers with the seconds that it took. A role of `both` is
for ways inside one process. PERIOD is how often a way looks, if it polls; 0 leaves its own.
"""

import importlib
import json
import os
import sys
import threading
import time
from typing import Any

SIZE = 100  # bytes of a body


def body(work: str, number: int, due: float) -> str:
    return f"{work}:{number}:{due:.6f}:".ljust(SIZE, "x")


def send(way: Any, place: Any, work: str, delays: list[float], rate: float, at: float) -> float:
    """Each message with its delay from now, or all of them due `at` one time; so many a second, or as fast as it goes."""
    begin = time.time()
    for number, delay in enumerate(delays):
        if rate:
            time.sleep(max(0.0, begin + number / rate - time.time()))
        due = at or time.time() + delay
        way.send(place, body(work, number, due), max(0.0, due - time.time()))
    return time.time() - begin


def main(name: str, url: str, path: str, period: str, role: str) -> None:
    way = importlib.import_module(f"examples.roads.{name}")
    place = way.connect(url)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(body: str) -> None:
        os.write(file, f"{body} {time.time():.6f}\n".encode())  # in one piece

    def work() -> None:
        way.work(place, handle, **({"period": float(period)} if float(period) else {}))

    if role == "work":
        work()
    if role == "both":
        threading.Thread(target=work, daemon=True).start()
    for line in sys.stdin:
        print(send(way, place, **json.loads(line)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
