"""A queue under a clock that a test steps forward and back."""

import time
from typing import NamedTuple

from bide import Queue
from bide.clock import moment
from tests.servers.stepped import SteppedClock

HOUR = 3_600.0
PATIENCE = 15.0
TOPIC = "t"


class Place(NamedTuple):
    queue: Queue
    clock: SteppedClock

    def wall(self) -> int:
        """As the server has it, in ms."""
        return self.clock.now_ns() // 1_000_000

    def send_at(self, wall: int) -> str:
        return str(self.queue.send(TOPIC, ["at", wall], at=moment(wall)))

    def send_after(self, seconds: float) -> str:
        return str(self.queue.send(TOPIC, ["after", time.monotonic(), seconds], delay=seconds))


def be_ahead(place: Place, seconds: float) -> None:
    """For as long as it takes that the engine knows of it, each shard; then the clock is set right."""
    place.clock.step(seconds)
    for number in range(20):
        place.queue.send("other", key=str(number))
    left = 20
    while left:
        found = place.queue.receive("other", limit=left, wait=PATIENCE)
        left -= len(found)
        place.queue.ack_many(found)
    place.clock.set_right()
