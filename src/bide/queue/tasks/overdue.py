"""What a task says of messages that are overdue, as after an outage."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from bide.core.rate import Rate
from bide.engines.base import Claimed, Stored
from bide.errors import BadOption
from bide.queue.deliveries import PLANNED
from bide.queue.tasks.limits import Limits, Template, read_rate

CatchUp: TypeAlias = str
""""all", "latest", or a rate such as "10/s"."""

LATE = 60_000  # ms after its due time, from which a message is overdue
Place: TypeAlias = tuple[int, str]  # by due time; among equals any one is the newest, for all workers the same


class Overdue(NamedTuple):
    """Either the newest of each value is called, or all are, at a rate."""

    gate: str
    rate: Rate | None
    per: Template | None

    def takes(self, claimed: Claimed, now: int) -> bool:
        """Whether it is to decide: the handler has not begun yet, and no schedule says what becomes of it."""
        return now - claimed.due > LATE and claimed.attempt == 1 and PLANNED not in claimed.headers

    def value(self, arguments: Mapping[str, Any]) -> str:
        return "" if self.per is None else self.per.of(arguments)


def read_overdue(topic: str, catch_up: CatchUp, limits: Limits) -> Overdue | None:
    """None: all are called, as if they were not late."""
    if catch_up == "all":
        return None
    if catch_up == "latest":
        return Overdue("", None, limits.per)
    try:
        rate = read_rate(catch_up)
    except BadOption:
        raise BadOption(f"catch_up is {catch_up!r}. Give 'all', 'latest', or a rate such as '10/s'.") from None
    if limits.calls:
        raise BadOption(
            f"catch_up={catch_up!r} was given together with lock=, or with concurrency= and per=: a message whose turn comes "
            "there would be put off again. Leave out one of them, or use catch_up='latest'."
        )
    return Overdue(f"late {topic}", rate, None)


class Survey:
    """The newest message of each value, among all that were due at an instant and had not ended."""

    def __init__(self, until: int) -> None:
        self.until: int = until
        self._newest: dict[str, Place] = {}
        self._several: set[str] = set()

    def add(self, value: str, stored: Stored) -> None:
        place, known = _place(stored), self._newest.get(value)
        if known is not None:
            self._several.add(value)
        if known is None or place > known:
            self._newest[value] = place

    def close(self) -> None:
        """All have been seen: those that are alone need not be remembered."""
        self._newest = {value: self._newest[value] for value in self._several}

    def leaves_out(self, value: str, claimed: Claimed) -> bool:
        """Whether a newer one was there."""
        newest = self._newest.get(value)
        return newest is not None and newest > _place(claimed)


def _place(message: Stored | Claimed) -> Place:
    return message.due, message.id


def is_first(stored: Stored) -> bool:
    """Whether the message tells when it was first due: a retry has another time."""
    return stored.attempt <= (stored.state == "leased")
