"""What each path costs the client, in instructions of the Python process, for one message.

Each path runs in a process of its own under valgrind: `python -m benchmarks.counts.client NAME URL COUNT`. It prints a line
when it is ready, and another when it has done its work, after it was told to go on.
"""

import asyncio
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from benchmarks.costs import body
from benchmarks.counts import callgrind
from bide import AsyncQueue, Outgoing, Queue, Worker
from bide.metrics import ProcessMetrics
from bide.otel.traces import Tracing
from bide.queue.sync import receive
from bide.worker import slices
from tests.servers.redis import RedisServer

BODY = body()


def instructions() -> Mapping[str, float]:
    found = {}
    with RedisServer() as server:
        for name, (many, _) in PATHS.items():
            server.client().flushall()
            found[name] = counted(name, server.url, many) / many
    return found


def counted(name: str, url: str, many: int) -> int:
    with tempfile.TemporaryDirectory(prefix="bide-bench-") as folder:
        under = callgrind.command(Path(folder))
        command = [*under, sys.executable, "-m", "benchmarks.counts.client", name, url, str(many)]
        env = os.environ | {"PYTHONHASHSEED": "0"}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "ready\n", f"{name} did not begin"
            counter = callgrind.Callgrind(process.pid, Path(folder))
            with counter.counted():
                process.stdin.write("go\n")
                process.stdin.flush()
                assert process.stdout.readline() == "done\n", f"{name} did not end"
            process.communicate("end\n")
    return counter.last


def ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def done() -> None:
    print("done", flush=True)
    sys.stdin.readline()


def _send(url: str, many: int) -> None:
    with Queue(url) as queue:
        queue.send("t", BODY, delay="15m")
        ready()
        for _ in range(many):
            queue.send("t", BODY, delay="15m")
        done()


def _send_at(url: str, many: int) -> None:
    due = datetime.now(UTC) + timedelta(minutes=15)
    with Queue(url) as queue:
        queue.send("t", BODY, at=due)
        ready()
        for _ in range(many):
            queue.send("t", BODY, at=due)
        done()


def _send_task(url: str, many: int) -> None:
    with Queue(url) as queue:

        @queue.task("t")
        def handle(order: int, customer: str, note: str) -> None:
            pass

        later = handle.after("15m")
        later.send(**BODY)
        ready()
        for _ in range(many):
            handle.after("15m").send(**BODY)
        done()


def _receive(url: str, many: int) -> None:
    receive.TEND = math.inf  # upkeep comes by time, and under valgrind a second has fewer messages
    with Queue(url) as queue:
        queue.send_many("t", [BODY] * (many + 1))
        for each in queue.receive("t"):
            each.ack()
        ready()
        for _ in range(many):
            for each in queue.receive("t"):
                each.ack()
        done()


def _send_many(url: str, many: int, *, timed: bool) -> None:
    items = [Outgoing(BODY, delay=60.0 + number % 900) for number in range(many)] if timed else [BODY] * many
    with Queue(url) as queue:
        queue.send_many("t", items[:10])
        ready()
        queue.send_many("t", items)
        done()


async def _coalesced(url: str, many: int) -> None:
    async with AsyncQueue(url) as queue:

        async def sender() -> None:
            for _ in range(10):
                await queue.send("t", BODY, delay=900)

        await sender()
        ready()
        await asyncio.gather(*(sender() for _ in range(many // 10)))
        done()


async def _work(url: str, many: int, *, send_too: bool, seen_by: Callable[[], object] | None = None) -> None:
    queue = AsyncQueue(url)
    if seen_by is not None:
        queue.events.subscribe(seen_by())
    left, begun, all_done = many + 100, asyncio.Event(), asyncio.Event()

    @queue.task("t")
    async def handle(order: int, customer: str, note: str) -> None:
        nonlocal left
        left -= 1
        if left == many:
            begun.set()
        if not left:
            all_done.set()

    async with queue:
        await queue.send_many("t", [BODY] * 100)
        slices.LONGEST, slices.SOON = 1e8, 1e9  # all is slow here, and slices and claims would be smaller
        async with Worker(queue) as worker:
            await begun.wait()
            for _ in iter(lambda: worker.health().running, 0):
                await asyncio.sleep(0.1)
            if send_too:
                ready()
                await queue.send_many("t", [BODY] * many)
            else:
                await queue.pause("t")
                await queue.send_many("t", [BODY] * many)
                ready()
                await queue.resume("t")
            await all_done.wait()
            for _ in iter(lambda: worker.health().running, 0):
                await asyncio.sleep(0.1)
            done()


def _traced() -> object:
    """Makes all spans, and sends them nowhere."""
    return Tracing(TracerProvider(), 30.0)


def _in_loop(main: Callable[[str, int], Coroutine[Any, Any, None]]) -> Callable[[str, int], None]:
    return lambda url, many: asyncio.run(main(url, many))


PATHS: Mapping[str, tuple[int, Callable[[str, int], None]]] = {
    "send one, sync": (200, _send),
    "send one with at=, sync": (200, _send_at),
    "send one of a task, sync": (200, _send_task),
    "receive + ack one, sync": (200, _receive),
    "send_many": (5_000, lambda url, many: _send_many(url, many, timed=False)),
    "send_many with times of their own": (5_000, lambda url, many: _send_many(url, many, timed=True)),
    "send from many coroutines": (2_000, _in_loop(_coalesced)),
    "send_many + worker": (5_000, _in_loop(partial(_work, send_too=True))),
    "worker": (5_000, _in_loop(partial(_work, send_too=False))),
    "worker with metrics": (5_000, _in_loop(partial(_work, send_too=False, seen_by=ProcessMetrics))),
    "worker with traces": (2_000, _in_loop(partial(_work, send_too=False, seen_by=_traced))),
}


if __name__ == "__main__":
    PATHS[sys.argv[1]][1](sys.argv[2], int(sys.argv[3]))
