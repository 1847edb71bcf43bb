"""What the screen shows: the orders, the latest events and the counts."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Tone: TypeAlias = Literal["plain", "good", "bad", "odd", "faint"]


class Event(NamedTuple):
    at: float  # seconds after opening
    text: str
    tone: Tone


@dataclass
class Order:
    number: int
    item: str
    due: int  # when it will be cancelled, in ms of the engine's clock
    window: float  # seconds
    state: str | None = None  # none while its customer has not paid yet
    tone: Tone = "plain"


class Board:
    """`on_event` is called with every event as it happens."""

    def __init__(self, on_event: Callable[[Event], None] | None = None) -> None:
        self.orders: dict[int, Order] = {}
        self.events: list[Event] = []
        self.sent = self.cancelled = self.delivered = 0
        self.lateness: list[int] = []  # ms, of first deliveries
        self._opened = time.monotonic()
        self._on_event = on_event

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._opened

    @property
    def waiting(self) -> int:
        """Messages that have not ended."""
        return self.sent - self.cancelled - self.delivered

    def say(self, text: str, tone: Tone = "plain") -> None:
        event = Event(self.elapsed, text, tone)
        self.events.append(event)
        if self._on_event is not None:
            self._on_event(event)

    def mark(self, number: int, state: str, tone: Tone) -> None:
        """The order is paid or cancelled."""
        order = self.orders[number]
        order.state, order.tone = state, tone


def print_event(event: Event) -> None:
    print(f"{event.at:5.2f} s  {event.text}", flush=True)


def percentile(ordered: Sequence[int], share: float) -> int | None:
    """The smallest value that is at least as large as this share of all values."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None
