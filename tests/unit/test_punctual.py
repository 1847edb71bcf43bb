"""Alarms of an event loop: each goes off at its time, and not before."""

import asyncio
import gc
import math
import os
import random
import time
from collections.abc import Callable

import pytest
import uvloop

from bide import punctual
from bide.punctual import alarm_at

PATIENCE = 10


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Callable[[], asyncio.Runner]:
    return lambda: asyncio.Runner(loop_factory=request.param)


@pytest.fixture(params=["timers of the system", "timers of the loop"])
def timers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "timers of the loop":
        monkeypatch.setattr(punctual, "_libc", None)
    return str(request.param)


@pytest.mark.usefixtures("timers")
def test_none_goes_off_early_and_all_go_off(runner: Callable[[], asyncio.Runner]) -> None:
    draw, early = random.Random(1), list[float]()

    async def wait() -> None:
        when = time.monotonic() + draw.choice([-1.0, 0.0, draw.uniform(0, 0.05)])
        await alarm_at(when)
        if time.monotonic() < when:
            early.append(when)

    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(*(wait() for _ in range(100))), PATIENCE)

    with runner() as made:
        made.run(main())
    assert not early


async def test_the_last_nanosecond_of_a_second_is_a_time_like_any_other() -> None:
    begin = math.ceil(time.monotonic())
    moments = [math.nextafter(begin, 0), float(begin), begin - 1e-9, begin + 1e-9, begin - 5e-10]
    for each in [alarm_at(moment) for moment in moments]:
        await asyncio.wait_for(each, PATIENCE)
    await asyncio.wait_for(alarm_at(-1.0), PATIENCE)


@pytest.mark.usefixtures("timers")
async def test_a_cancelled_alarm_holds_up_no_other() -> None:
    now = time.monotonic()
    later, first, never = (alarm_at(now + after) for after in (0.02, 0.01, 60))
    first.cancel()
    never.cancel()
    await asyncio.wait_for(later, PATIENCE)
    await asyncio.wait_for(alarm_at(now), PATIENCE)


def test_nothing_is_left_open_by_a_loop_that_is_gone(runner: Callable[[], asyncio.Runner]) -> None:
    async def main() -> None:
        alarm_at(time.monotonic() + 60)
        await alarm_at(time.monotonic())

    def left() -> int:
        with runner() as made:
            made.run(main())
        del made
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    first = left()  # with what a first loop opens for all
    assert [left() for _ in range(3)] == [first] * 3
