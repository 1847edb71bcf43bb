"""Timers in this process: the wheel beside a heap with tombstones, asyncio's call_later and the standard library's sched.

BIDE_BENCH_PENDING says how many timers are pending beside those that are scheduled and cancelled; a million if not given.
"""

import asyncio
import gc
import os
import random
import sched
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.measure import RUNS, Figure, clock, figure, rates
from benchmarks.timers_rivals import Heap, LockedHeap, Loop, Sched, Timers, TurnedLoop
from bide.timers import TimerWheel

PENDING = int(os.environ.get("BIDE_BENCH_PENDING", "1_000_000"))
MANY = 1_000_000
FEW = 4_000  # for sched, where cancelling one takes as long as there are timers
HOUR, DAY = 3_600.0, 86_400.0


def run() -> list[Figure]:
    figures = rates(
        {
            f"schedule {MANY:,}, cancel 95 %, fire the rest: wheel": _wheel_through,
            "    heap with tombstones": _heap_through,
            "    asyncio.call_later": _loop_through,
            f"    sched, with {FEW:,} only": _sched_through,
        }
    )
    return [*figures, *_beside_pending(), *_memory(), *_lateness()]


def _delays(count: int, least: float, most: float) -> list[float]:
    chance = random.Random(count)
    return [chance.uniform(least, most) for _ in range(count)]


def _nothing() -> None: ...


def _but_every_twentieth(handles: list[Any]) -> Iterable[Any]:
    return (handle for number, handle in enumerate(handles) if number % 20)


def _wheel_through() -> int:
    delays, wheel = _delays(MANY, 0, HOUR), TimerWheel()
    clock.start()
    timers = [wheel.schedule(delay, _nothing) for delay in delays]
    for timer in _but_every_twentieth(timers):
        timer.cancel()
    fired = wheel.advance(HOUR)
    clock.stop()
    assert fired == MANY // 20
    return MANY


def _heap_through() -> int:
    delays, heap = _delays(MANY, 0, HOUR), Heap()
    clock.start()
    entries = [heap.schedule(delay, _nothing) for delay in delays]
    for entry in _but_every_twentieth(entries):
        heap.cancel(entry)
    heap.advance(time.monotonic() + HOUR)
    clock.stop()
    assert not heap.entries
    return MANY


def _loop_through() -> int:
    delays, loop = _delays(MANY, 0, HOUR), TurnedLoop()
    clock.start()
    handles = [loop.call_later(delay, _nothing) for delay in delays]
    for handle in _but_every_twentieth(handles):
        handle.cancel()
    loop.call_later(HOUR, loop.stop)
    loop.now = HOUR
    loop.run_forever()
    clock.stop()
    loop.close()
    return MANY


def _sched_through() -> int:
    delays = _delays(FEW, 0, HOUR)
    now = 0.0
    scheduler = sched.scheduler(lambda: now, lambda seconds: None)
    clock.start()
    events = [scheduler.enter(delay, 0, _nothing) for delay in delays]
    for event in _but_every_twentieth(events):
        scheduler.cancel(event)
    now = HOUR
    scheduler.run(blocking=False)
    clock.stop()
    assert scheduler.empty()
    return FEW


def _fill(timers: Timers, count: int) -> None:
    chance = random.Random(count)
    gc.disable()  # or it would look at all of them again and again
    for _ in range(count):
        timers.schedule(chance.uniform(HOUR, DAY), _nothing)
    gc.enable()


def _beside_pending() -> list[Figure]:
    """The pending ones are frozen, or the garbage collector would look at all contenders' in the time of each."""
    wheel, heap, locked = TimerWheel(), Heap(), LockedHeap()
    delays = _delays(MANY, HOUR, DAY)
    work = {"wheel": _wheel_round(wheel, delays), "heap": _heap_round(heap, delays), "locked": _heap_round(locked, delays)}
    seen: dict[str, list[float]] = {name: [] for name in work}
    with wheel:
        for each in (wheel, heap, locked):
            _fill(each, PENDING)
        gc.collect()
        gc.freeze()
        for _ in range(RUNS):
            for name, once in work.items():
                gc.collect()
                clock.start()
                once()
                seen[name].append(clock.seconds())
                heap.tidy()
                locked.tidy()
        gc.unfreeze()
    per_timer = {name: [seconds / MANY * 1e9 for seconds in values] for name, values in seen.items()}
    ratios = [mine / theirs for mine, theirs in zip(seen["wheel"], seen["heap"], strict=True)]
    return [
        figure(f"schedule and cancel, {PENDING:,} pending: wheel", "ns", per_timer["wheel"]),
        figure("    heap with tombstones", "ns", per_timer["heap"]),
        figure("    heap with tombstones, and a lock", "ns", per_timer["locked"]),
        figure("    wheel over heap without a lock", "times", ratios, "<= 2"),
    ]


def _wheel_round(wheel: TimerWheel, delays: list[float]) -> Callable[[], None]:
    def once() -> None:
        timers = [wheel.schedule(delay, _nothing) for delay in delays]
        for timer in timers:
            timer.cancel()
        clock.stop()

    return once


def _heap_round(heap: Heap, delays: list[float]) -> Callable[[], None]:
    def once() -> None:
        entries = [heap.schedule(delay, _nothing) for delay in delays]
        for entry in entries:
            heap.cancel(entry)
        clock.stop()

    return once


def _memory() -> list[Figure]:
    """Each in a process of its own, by what the operating system gave it."""
    names = {"wheel": TimerWheel.__name__, "heap": Heap.__name__, "asyncio.call_later": Loop.__name__, "sched": Sched.__name__}
    figures = []
    for name, contender in names.items():
        code = f"from benchmarks import timers; print(timers.bytes_each(getattr(timers, {contender!r})()))"
        root = Path(__file__).resolve().parents[1]
        ended = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
        figures.append(figure(f"memory of one of {PENDING:,} pending timers: {name}", "bytes", [float(ended.stdout)]))
    return figures


def bytes_each(timers: Timers) -> float:
    before = _resident()
    _fill(timers, PENDING)
    return (_resident() - before) / PENDING


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _lateness() -> list[Figure]:
    """The latest of 400 timers over 1.2 s, during which another one's callback blocks for a second."""
    return [
        figure("the latest of 400, one blocks for 1 s: wheel", "ms", [_latest_of_wheel() for _ in range(RUNS)], "<= 20"),
        figure("    asyncio.call_later", "ms", [asyncio.run(_latest_of_loop()) for _ in range(RUNS)]),
    ]


def _latest_of_wheel() -> float:
    late: list[float] = []
    with TimerWheel() as wheel:
        wheel.schedule(0.05, time.sleep, 1)
        for number in range(400):
            delay = number * 0.003
            wheel.schedule(delay, lambda due: late.append(time.monotonic() - due), time.monotonic() + delay)
        while len(late) < 400:
            time.sleep(0.05)
    return max(late) * 1_000


async def _latest_of_loop() -> float:
    late: list[float] = []
    loop = asyncio.get_running_loop()
    loop.call_later(0.05, time.sleep, 1)
    for number in range(400):
        delay = number * 0.003
        loop.call_later(delay, lambda due: late.append(time.monotonic() - due), time.monotonic() + delay)
    while len(late) < 400:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return max(late) * 1_000
