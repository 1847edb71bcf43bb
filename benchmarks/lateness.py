"""How late a worker calls its handlers, and how late a process is that does nothing but sleep until such instants.

`python -m benchmarks.lateness COUNT RATE` is that process: it prints how late it was each time, in ms.
"""

import asyncio
import importlib
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from bide import AsyncQueue, Outgoing, Worker, current
from bide.engines.guard.hooks import Hook

BEGIN = 1_000  # ms from now to the first instant

Loop: TypeAlias = Callable[[], asyncio.AbstractEventLoop]


def loops() -> Mapping[str, Loop]:
    """asyncio's own, and uvloop's if it is installed."""
    found: dict[str, Loop] = {"": asyncio.new_event_loop}
    if importlib.util.find_spec("uvloop") is not None:
        found[", uvloop"] = importlib.import_module("uvloop").new_event_loop
    return found


def in_loop(loop: Loop, main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)


def instants(count: int, rate: int) -> Sequence[int]:
    """Milliseconds, so many a second."""
    first = time.time_ns() // 1_000_000 + BEGIN
    return [first + number * 1_000 // rate for number in range(count)]


def part(lates: Sequence[float], share: float) -> float:
    """The lateness that this share of them did not exceed."""
    return lates[int(len(lates) * share)]


async def of_worker(url: str, count: int, rate: int, hooks: Sequence[Hook] = ()) -> list[float]:
    """One worker with nothing else to do, and messages that were sent before. Sorted, in ms."""
    queue = AsyncQueue(url, hooks=hooks)
    lates: list[float] = []
    all_done = asyncio.Event()

    @queue.task("t")
    async def handle() -> None:
        lates.append(time.time() * 1000 - current().due)
        if len(lates) == count:
            all_done.set()

    async with queue:
        await queue.send_many("t", [Outgoing(at=datetime.fromtimestamp(each / 1000, UTC)) for each in instants(count, rate)])
        async with Worker(queue):
            await all_done.wait()
    return sorted(lates)


def of_sleep(count: int, rate: int) -> list[float]:
    """As low as it can be here: a process of its own, which is never early, as it looks at the clock again."""
    command = [sys.executable, "-m", "benchmarks.lateness", str(count), str(rate)]
    found: list[float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return sorted(found)


def _sleep(count: int, rate: int) -> list[float]:
    lates = []
    for due in instants(count, rate):
        while (left := due / 1000 - time.time()) > 0:
            time.sleep(left)
        lates.append(time.time() * 1000 - due)
    return lates


if __name__ == "__main__":
    print(json.dumps(_sleep(int(sys.argv[1]), int(sys.argv[2]))))
