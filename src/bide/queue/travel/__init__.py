"""Time travel for tests: move the queue's clock and see what falls due on the way."""

from typing import NamedTuple


class Handled(NamedTuple):
    """What became of a message on the way. "ready": it fell due, and waits for whoever receives it."""

    topic: str
    id: str
    outcome: str
