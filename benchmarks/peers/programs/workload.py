"""What all programs here share: the messages, what a handler does with one, and how to send them. Only the standard library.

Each program is started by the runner, in the environment of its peer: `python on_<peer>.py send MODE …` sends messages and
prints how many in how many seconds; what runs the worker is in the registry. PEER_URL is the server, PEER_RECORDS the file
for the handler's lines, PEER_WORK what is measured. With PEER_SLOW a handler takes 50 ms, and says when it starts.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

URL = os.environ["PEER_URL"]
WORK = os.environ.get("PEER_WORK", "")
SLOW = 0.05 if os.environ.get("PEER_SLOW") else 0.0

SIZE = 100  # bytes of a payload
FAR = 3_600.0  # seconds: not due while anybody measures
PART = 1_000  # messages in a batch
AT_ONCE = 50  # coroutines, of a client that has no batches

Item = tuple[str, float | None]
"""A payload, and when it is due; None: now."""

_records = -1


def payload(number: int, due: float) -> str:
    return f"{number}:{due:.6f}:".ljust(SIZE, "x")


def _record(what: str, payload: str) -> None:
    """Writes a line. Due and now are on the same machine, so their difference is how late it is."""
    global _records  # noqa: PLW0603 - a worker's processes open it when they handle their first message
    if _records < 0:
        _records = os.open(os.environ["PEER_RECORDS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    number, due, _ = payload.split(":", 2)
    os.write(_records, f"{what} {number} {due} {time.time():.6f}\n".encode())


def handle(payload: str) -> None:
    if SLOW:
        _record("started", payload)
        time.sleep(SLOW)
    _record("done", payload)


async def handle_in_loop(payload: str) -> None:
    if SLOW:
        _record("started", payload)
        await asyncio.sleep(SLOW)
    _record("done", payload)


def parts(items: Sequence[Item], size: int = PART) -> list[Sequence[Item]]:
    return [items[first : first + size] for first in range(0, len(items), size)]


def send_at_once(send: Callable[[str, float | None], Awaitable[Any]]) -> Callable[[Sequence[Item]], Awaitable[None]]:
    """For clients without batches: so many sends at the same time."""

    async def send_many(items: Sequence[Item]) -> None:
        for part in parts(items, AT_ONCE):
            await asyncio.gather(*(send(text, due) for text, due in part))

    return send_many


def main(send: Callable[[str, float | None], Any], send_many: Callable[[list[Item]], Any]) -> None:
    """Sends what the command line says.

    single SECONDS             one by one, for so long, due in an hour
    ready COUNT                due now
    spread COUNT BEGIN LENGTH  due in so many seconds, spread evenly over a stretch of time, sent in any order
    """
    mode, values = _asked()
    count = 0
    if mode == "single":
        send(*_one(0))  # connected
        begin = time.perf_counter()
        while time.perf_counter() - begin < values[0]:
            send(*_one(count))
            count += 1
    else:
        items = _items(mode, values)
        begin, count = time.perf_counter(), len(items)
        send_many(items)
    _tell(count, time.perf_counter() - begin)


async def main_in_loop(
    send: Callable[[str, float | None], Awaitable[Any]], send_many: Callable[[list[Item]], Awaitable[Any]]
) -> None:
    """The same with functions that are awaited."""
    mode, values = _asked()
    count = 0
    if mode == "single":
        await send(*_one(0))
        begin = time.perf_counter()
        while time.perf_counter() - begin < values[0]:
            await send(*_one(count))
            count += 1
    else:
        items = _items(mode, values)
        begin, count = time.perf_counter(), len(items)
        await send_many(items)
    _tell(count, time.perf_counter() - begin)


def _asked() -> tuple[str, list[float]]:
    mode, *numbers = sys.argv[2:]
    return mode, [float(number) for number in numbers]


def _one(number: int) -> tuple[str, float]:
    due = time.time() + FAR
    return payload(number, due), due


def _tell(count: int, seconds: float) -> None:
    print(json.dumps({"count": count, "seconds": seconds}), flush=True)


def _items(mode: str, values: list[float]) -> list[Item]:
    return _ready(int(values[0])) if mode == "ready" else _spread(int(values[0]), *values[1:])


def _ready(count: int) -> list[Item]:
    return [(payload(number, time.time()), None) for number in range(count)]


def _spread(count: int, begin: float, length: float) -> list[Item]:
    first = time.time() + begin
    dues = [first + length * number / count for number in range(count)]
    random.Random(1).shuffle(dues)
    return [(payload(number, due), due) for number, due in enumerate(dues)]
