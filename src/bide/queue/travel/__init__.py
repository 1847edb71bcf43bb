"""Time travel for tests: move the queue's clock, and have what falls due on the way handled."""

from typing import NamedTuple


class Handled(NamedTuple):
    """What became of a message on the way.

    Where a task is for it: "done", "retry", "snoozed", "dead", "expired", "lost" when its lease had been taken, or
    "ended" when the handler ended it by itself; `error` is what the handler raised. Where none is: "ready", it waits for
    whoever receives it.
    """

    topic: str
    id: str
    outcome: str
    error: BaseException | None = None
