"""What the log says of leases that can't be renewed for a while: once that it is so, and once that it is over."""

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from bide.engines.base import Hold
from bide.errors import OutcomeUnknown, Unavailable
from bide.queue.heartbeat import Heartbeat
from bide.queue.leases import Beat

LEASE = 40  # ms
PATIENCE = 30.0  # seconds
FAILS, RENEWS = "Leases could not be renewed", "renewed again"


class Engine:
    """Has two parts, one of which may be away."""

    def __init__(self) -> None:
        self.away = ""
        self.tries: threading.Semaphore = threading.Semaphore(0)

    def open(self) -> None: ...
    def close(self) -> None: ...

    def extend(self, holds: Sequence[Hold], lease: int, *, brief: bool = False) -> list[bool]:
        gone = [hold for hold in holds if hold.topic == self.away]
        self.tries.release()
        if len(gone) == len(holds):
            raise Unavailable("no answer")
        if gone:
            raise OutcomeUnknown("no answer", answers=[None if hold in gone else True for hold in holds])
        return [True] * len(holds)

    def has_tried(self, times: int) -> None:
        """Wait until it was asked so often from now on."""
        while self.tries.acquire(blocking=False):
            pass
        for _ in range(times):
            assert self.tries.acquire(timeout=PATIENCE)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def heartbeat(engine: Engine) -> Iterator[Heartbeat]:
    class Source:
        def sync(self) -> Engine:
            return engine

    source: Any = Source()
    heartbeat = Heartbeat(source)
    for topic in ("here", "there"):
        heartbeat.add(Beat([Hold(topic, topic, "token")], LEASE, 2**50, lambda _: None))
    yield heartbeat
    heartbeat.close()


@pytest.mark.usefixtures("heartbeat")
def test_a_silence_is_told_when_it_begins_and_when_it_ends(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bide.heartbeat"):
        engine.has_tried(4)
        assert not caplog.messages
        for times in (1, 2):
            engine.away = "there"
            engine.has_tried(12)
            assert [sum(each in text for text in caplog.messages) for each in (FAILS, RENEWS)] == [times, times - 1]
            engine.away = ""
            engine.has_tried(6)
            assert [sum(each in text for text in caplog.messages) for each in (FAILS, RENEWS)] == [times, times]


def test_a_lease_that_ends_in_a_silence_is_not_renewed_again(
    engine: Engine, heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "bide.heartbeat"):
        engine.away = "there"
        engine.has_tried(8)
        [(beat, hold)] = [
            (beat, hold) for beat in heartbeat._beats for hold in beat.holds if isinstance(hold, Hold) and hold.topic == "there"
        ]
        heartbeat.remove(beat, hold)
        engine.has_tried(4)
    assert len(caplog.messages) == 1
    assert FAILS in caplog.messages[0]
