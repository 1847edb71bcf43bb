"""The broker's time, as bide takes it from what the broker tells."""

import time
from datetime import UTC, datetime

import pytest

from bide.engines.rabbitmq.broker_time import BrokerTime


def _tell(found: BrokerTime, ahead: float, *, took: float = 0.002) -> None:
    """What a broker tells now whose clock is so many seconds ahead, in an answer that took so long."""
    heard = time.monotonic()
    at = time.time() + ahead - took / 2
    found.hear_of({"x-death": [{"time": datetime.fromtimestamp(int(at), UTC)}]}, heard, heard - took)


def test_a_wall_clock_that_is_right_is_believed() -> None:
    found = BrokerTime()
    _tell(found, 0)
    assert abs(found.now() - time.time() * 1000) < 50


@pytest.mark.parametrize("ahead", [300.0, -300.0, 3.5])
def test_a_wall_clock_that_is_wrong_is_not(ahead: float) -> None:
    found = BrokerTime()
    _tell(found, ahead)
    assert abs(found.now() / 1000 - time.time() - ahead) < 1.1


def test_time_goes_on_at_half_speed_when_the_broker_s_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    found = BrokerTime()
    _tell(found, 3_600)
    before = found.now()
    _tell(found, 0)
    began = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began + 10)
    assert 4_990 <= found.now() - before <= 5_100


def test_tellings_around_the_end_of_a_second_narrow_the_bounds() -> None:
    found = BrokerTime()
    base = time.monotonic()
    found.hear(100, base, base + 0.002)
    for part in range(10):  # the broker's clock is at 100.75 then
        at = base + part * 0.05
        found.hear(int(100.75 + part * 0.05), at, at + 0.002)
    low, high = found.bounds
    assert high - low < 0.06


def test_a_clock_that_was_set_is_followed_and_time_never_goes_back() -> None:
    found = BrokerTime()
    _tell(found, 300)
    before = found.now()
    _tell(found, -300)
    assert found.now() == before
    _tell(found, 900)
    assert found.now() > before + 500_000


def test_a_given_time_moves_the_engine_s_time_there() -> None:
    found = BrokerTime()
    assert found.now(4_000_000_000_000) == 4_000_000_000_000
    assert found.now() == 4_000_000_000_000
    assert found.now(5) == 4_000_000_000_000


@pytest.mark.parametrize("headers", [{}, {"x-death": 5}, {"x-death": []}, {"x-death": [5]}, {"x-death": [{"time": "noon"}]}])
def test_what_tells_no_time_is_passed_over(headers: dict[str, object]) -> None:
    found = BrokerTime()
    found.hear_of(headers, time.monotonic())
    assert abs(found.now() - time.time() * 1000) < 50


def test_one_asks_at_a_time_and_not_again_when_the_bounds_are_close() -> None:
    found = BrokerTime()
    assert found.begin_asking()
    assert not found.begin_asking()
    found.end_asking()
    assert found.begin_asking()
    now = time.monotonic()
    found.hear(100, now, now)
    found.hear(101, now + 0.001, now + 0.001)
    found.end_asking()
    assert not found.wanted


def test_a_message_of_another_broker_does_not_move_the_time() -> None:
    found = BrokerTime()
    _tell(found, 0)
    heard = time.monotonic()
    found.hear_of({"x-death": [{"time": datetime(9999, 1, 1, tzinfo=UTC)}]}, heard)
    assert abs(found.now() - time.time() * 1000) < 1_500
    assert found.wanted
