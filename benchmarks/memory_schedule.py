"""What keeps a million pending messages in order at the least cost: a heap, or a timing wheel."""

import heapq
import random

from benchmarks.measure import Figure, clock, rates
from benchmarks.wheel import Wheel

MANY = 300_000
DAY = 86_400_000


def run() -> list[Figure]:
    for spread in (1_000, DAY):
        _agree(spread)
    return rates(
        {
            f"{what}, {MANY:,} over {name}, {how}": (lambda work=work, spread=spread: work(spread))  # type: ignore[misc]
            for name, spread in (("a second", 1_000), ("a day", DAY))
            for what, works in (("schedule", (_heap_in, _wheel_in)), ("schedule and take all", (_heap_through, _wheel_through)))
            for how, work in zip(("heap", "wheel"), works, strict=True)
        }
    )


def _times(spread: int) -> list[int]:
    chance = random.Random(spread)
    return [chance.randrange(1, spread) for _ in range(MANY)]


def _heap_in(spread: int) -> int:
    times, heap = _times(spread), list[tuple[int, int, object]]()
    clock.start()
    for order, due in enumerate(times):
        heapq.heappush(heap, (due, order, None))
    clock.stop()
    return MANY


def _wheel_in(spread: int) -> int:
    times, wheel = _times(spread), Wheel(0)
    clock.start()
    for order, due in enumerate(times):
        wheel.add(due, order, None)
    clock.stop()
    return MANY


def _heap_through(spread: int) -> int:
    times = _times(spread)
    clock.start()
    _heap_order(times, spread)
    clock.stop()
    return MANY


def _wheel_through(spread: int) -> int:
    times = _times(spread)
    clock.start()
    _wheel_order(times, spread)
    clock.stop()
    return MANY


def _heap_order(times: list[int], spread: int) -> list[int]:
    """In a hundred steps of time."""
    heap: list[tuple[int, int, object]] = []
    for order, due in enumerate(times):
        heapq.heappush(heap, (due, order, None))
    taken = []
    for step in range(1, 101):
        now = spread * step // 100
        while heap and heap[0][0] <= now:
            taken.append(heapq.heappop(heap)[1])
    return taken


def _wheel_order(times: list[int], spread: int) -> list[int]:
    wheel = Wheel(0)
    for order, due in enumerate(times):
        wheel.add(due, order, None)
    taken = []
    for step in range(1, 101):
        taken += [order for _, order, _ in wheel.take(spread * step // 100)]
    return taken


def _agree(spread: int) -> None:
    times = _times(spread)[:20_000]
    if _heap_order(times, spread) != _wheel_order(times, spread):
        raise AssertionError("the two do not give the same order, so there is nothing to compare")
