"""When the leases of a claim end at the earliest, as far as its caller can know, and how long it may sleep then."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from bide.engines.base import SWEEP, Claim
from bide.engines.memory import CAPABILITIES
from bide.engines.registry import Source
from bide.queue.aio.receive import CAUTION, AsyncReceiver
from bide.queue.heartbeat import STEP, Heartbeat
from bide.queue.leases import Asked, Beat

NOW, LEASE = 1_800_000_000_000, 30_000
MOMENT = 1_000  # ms, far more than a call takes here


@pytest.fixture
def heartbeat() -> Heartbeat:
    unused: Any = None
    source: Source = unused
    return Heartbeat(source)


def asleep(heartbeat: Heartbeat) -> AsyncReceiver:
    """A receiver that only says how long it would sleep."""
    engine: Any = SimpleNamespace(capabilities=CAPABILITIES)
    unused: Any = None
    return AsyncReceiver(engine, unused, unused, heartbeat)


def test_the_leases_of_a_claim_begin_with_it(heartbeat: Heartbeat) -> None:
    heartbeat.hear(NOW - 60)
    until = heartbeat.claimed(NOW, heartbeat.beginning(), LEASE)
    assert NOW + LEASE - MOMENT < until <= NOW + LEASE


def test_they_are_not_doubtful_although_the_engine_was_not_heard_for_longer_than_they_last(heartbeat: Heartbeat) -> None:
    heartbeat.hear(NOW - 2 * LEASE)
    heartbeat._heard -= 2 * LEASE / 1000
    until = heartbeat.claimed(NOW, heartbeat.beginning(), LEASE)
    heartbeat.hear(NOW)
    assert until > heartbeat.seen


def test_the_first_claim_of_all_is_believed_too(heartbeat: Heartbeat) -> None:
    assert heartbeat.claimed(NOW, heartbeat.beginning(), LEASE) > NOW


def test_a_claim_whose_answer_took_long_may_have_been_made_at_its_beginning(heartbeat: Heartbeat) -> None:
    heartbeat.hear(NOW - 10_000)
    heartbeat._heard -= 10
    until = heartbeat.claimed(NOW, heartbeat.beginning()._replace(at=time.monotonic() - 8), LEASE)
    assert NOW - 8_000 + LEASE - MOMENT < until <= NOW - 8_000 + LEASE


def test_what_another_claim_has_heard_meanwhile_says_nothing_of_this_one(heartbeat: Heartbeat) -> None:
    heartbeat.hear(NOW)
    began = heartbeat.beginning()
    heartbeat.hear(NOW + 3_600_000)  # the engine's clock was set forward between the two
    assert heartbeat.claimed(NOW, began, LEASE) <= NOW + LEASE


def test_after_a_step_of_the_engines_clock_it_may_have_been_made_before(heartbeat: Heartbeat) -> None:
    heartbeat.hear(NOW)
    assert heartbeat.claimed(NOW + 3_600_000, heartbeat.beginning(), LEASE) == NOW + LEASE
    # and a clock that only runs a little faster has made no step
    assert heartbeat.claimed(NOW + round(STEP * 900), heartbeat.beginning(), LEASE) > NOW + LEASE


@pytest.mark.parametrize(
    ("upkeep", "due", "seconds"),
    [
        (None, None, SWEEP),  # an engine that does not tell is asked often
        (NOW + 3_600_000, None, CAUTION),
        (NOW + 20_000, None, 20.0),
        (NOW + 2_000, None, SWEEP),  # nothing is looked after more often than that
        (NOW, None, SWEEP),
        (NOW - 5_000, None, SWEEP),
        (NOW + 3_600_000, NOW + 30_000, 30.0),
        (NOW + 3_600_000, NOW + 90_000, CAUTION),
        (None, NOW + 30_000, SWEEP),
        (None, NOW + 2_000, 2.0),
        (None, NOW - 2_000, 0.0),
    ],
)
def test_how_long_a_receiver_sleeps(heartbeat: Heartbeat, upkeep: int | None, due: int | None, seconds: float) -> None:
    receiver = asleep(heartbeat)
    assert receiver.pause(Claim([], NOW, due, upkeep=upkeep)) == pytest.approx(seconds, abs=0.002)


def test_whoever_keeps_leases_hears_of_the_engines_time_often(heartbeat: Heartbeat) -> None:
    receiver = asleep(heartbeat)
    idle = Claim([], NOW, None, upkeep=NOW + 3_600_000)
    with heartbeat.asking(Asked()):
        assert receiver.pause(idle) == CAUTION
    heartbeat._closed = True  # no thread is begun
    unused: Any = None
    heartbeat.add(Beat([unused], LEASE, NOW + LEASE, lambda _: None))
    assert receiver.pause(idle) == SWEEP
