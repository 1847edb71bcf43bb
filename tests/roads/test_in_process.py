"""How timers inside one process lose messages and delay them."""

import threading
import time

import pytest

from examples.roads import bide_wheel, timing_wheel
from tests.roads.conftest import Start


@pytest.mark.parametrize("way", ["delay_queue", "timing_wheel", "bide_delay_queue", "bide_wheel"])
def test_what_waits_in_a_process_ends_with_it(way: str, start: Start) -> None:
    # Given a message that waits in a process, which is killed
    killed = start(way)
    killed.send("lost", 0.3)
    killed.kill()
    # When another process does the same
    other = start(way)
    other.send("later", 1.0)
    # Then it knows nothing of the first one
    assert other.handled() == "later"


def test_a_handler_that_takes_long_stops_a_wheel_by_hand() -> None:
    shop = Shop(wait=0.5)
    wheel = timing_wheel.connect("")
    for body in ("slow", "other"):
        timing_wheel.send(wheel, body, 0.01)
    while len(shop.happened) < 3:
        for body in wheel.turn():
            shop.handle(body)
    assert shop.happened == ["slow begins", "slow ends", "other"]


def test_a_handler_that_takes_long_does_not_stop_the_wheel_of_bide() -> None:
    shop = Shop(wait=60.0)
    timers = bide_wheel.connect("")
    timers.handle = shop.handle
    with timers.wheel:
        for body in ("slow", "other"):
            bide_wheel.send(timers, body, 0.01)
        assert shop.slow_ended.wait(60)
    assert shop.happened == ["slow begins", "other", "slow ends"]


class Shop:
    """Its slow message waits for the other one, which is due at the same time, but not for ever."""

    def __init__(self, wait: float) -> None:
        self.happened: list[str] = []
        self.slow_ended = threading.Event()
        self._wait = wait
        self._other = threading.Event()

    def handle(self, body: str) -> None:
        if body == "other":
            self.happened.append("other")
            self._other.set()
        else:
            self.happened.append("slow begins")
            self._other.wait(self._wait)
            self.happened.append("slow ends")
            self.slow_ended.set()


def test_in_a_wheel_a_message_waits_for_its_tick() -> None:
    wheel = timing_wheel.connect("")
    begin = time.monotonic()
    wheel.put("early", 0.0)
    assert wheel.turn() == ["early"]
    assert time.monotonic() >= begin + timing_wheel.TICK - 0.001
