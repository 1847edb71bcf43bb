"""The fixtures' clock: it begins at the real now, and goes with freezegun and time-machine."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from bide import AsyncQueue, ConfigError, Queue

JUNE = datetime(2026, 6, 1, tzinfo=UTC)
Stop: TypeAlias = Callable[[datetime], AbstractContextManager[Callable[[timedelta], Any]]]
"""Stops time at an instant; gives what moves it on."""


@contextmanager
def frozen(at: datetime) -> Iterator[Callable[[timedelta], Any]]:
    freezegun = pytest.importorskip("freezegun")
    with freezegun.freeze_time(at) as factory:
        yield factory.tick


@contextmanager
def travelled(at: datetime) -> Iterator[Callable[[timedelta], Any]]:
    time_machine = pytest.importorskip("time_machine")
    with time_machine.travel(at, tick=False) as traveller:
        yield traveller.shift


@pytest.fixture(params=[frozen, travelled])
def stop(request: pytest.FixtureRequest) -> Stop:
    chosen: Stop = request.param
    return chosen


def test_it_begins_at_the_real_now_and_stands_still(bide_queue: Queue) -> None:
    before = time.time_ns() // 1_000_000
    first = bide_queue.send("t")
    assert before <= first.due <= time.time_ns() // 1_000_000 + 1
    assert bide_queue.send("t").due == first.due


def test_an_instant_of_the_real_time_is_reached(bide_queue: Queue) -> None:
    bide_queue.send("t", at=datetime.now(UTC) + timedelta(hours=1))
    assert [each.outcome for each in bide_queue.testing.advance("1h")] == ["ready"]


async def test_the_async_fixture_begins_at_the_real_now_too(bide_async_queue: AsyncQueue) -> None:
    await bide_async_queue.send("t", at=datetime.now(UTC) + timedelta(hours=1))
    assert [each.outcome for each in await bide_async_queue.testing.advance("1h")] == ["ready"]


def test_a_stopped_time_is_the_queues_and_moves_with_it(bide_queue: Queue, stop: Stop) -> None:
    seen: list[datetime] = []

    @bide_queue.task("t")
    def handle() -> None:
        seen.append(datetime.now(UTC))

    with stop(JUNE):
        handle.after("15m").send()
        handle.at(datetime.now(UTC) + timedelta(minutes=30)).send()
        bide_queue.testing.advance("1h")
        assert seen == [JUNE + timedelta(minutes=15), JUNE + timedelta(minutes=30)]
        assert datetime.now(UTC) == JUNE + timedelta(hours=1)
    assert bide_queue.send("t").due_at == JUNE + timedelta(hours=1), "it did not stand still afterwards"


def test_moving_the_stopped_time_moves_the_queue(bide_queue: Queue, stop: Stop) -> None:
    with stop(JUNE) as move:
        bide_queue.send("t", delay="15m")
        move(timedelta(minutes=15))
        assert len(bide_queue.receive("t")) == 1


def test_an_applications_own_queue_goes_with_the_stopped_time(tmp_path: Path, stop: Stop) -> None:
    queue = Queue(f"sqlite:///{tmp_path}/shop.db")
    with stop(JUNE), queue.testing.in_memory() as clock:
        queue.send("t", delay="15m")
        queue.testing.advance("15m")
        assert clock.now() == datetime.now(UTC) == JUNE + timedelta(minutes=15)


def test_a_time_that_is_set_back_is_refused_with_a_sentence(bide_queue: Queue, stop: Stop) -> None:
    with stop(JUNE):
        bide_queue.send("t")
    with stop(JUNE - timedelta(days=1)), pytest.raises(ConfigError, match=r"set back to 2026-05-31 .* before the queue is"):
        bide_queue.testing.advance("1h")


def test_a_handler_that_moves_the_stopped_time_past_its_timeout_was_too_late(bide_queue: Queue, stop: Stop) -> None:
    with stop(JUNE) as move:

        @bide_queue.task("t", timeout="30s", max_attempts=1)
        def handle() -> None:
            move(timedelta(seconds=31))

        handle.send()
        with pytest.raises(TimeoutError):
            bide_queue.testing.advance(0)


def test_a_time_that_goes_on_from_another_instant_is_the_queues(bide_queue: Queue) -> None:
    time_machine = pytest.importorskip("time_machine")
    with time_machine.travel(JUNE, tick=True):
        due = bide_queue.send("t", delay="15m").due_at
        assert JUNE <= due - timedelta(minutes=15) < JUNE + timedelta(minutes=5)
        assert [each.outcome for each in bide_queue.testing.advance("15m")] == ["ready"]
        assert datetime.now(UTC) >= due
