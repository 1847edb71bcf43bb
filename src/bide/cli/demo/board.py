"""What there is to see: the orders as they stand, and what happened last. The scenario writes it, a screen shows it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from bide.cli.demo.record import Record

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
    state: str | None = None  # none while it waits for its customer
    tone: Tone = "plain"


class Board:
    """`hear` is told every event as it happens."""

    def __init__(self, hear: Callable[[Event], None] | None = None) -> None:
        self.orders: dict[int, Order] = {}
        self.events: list[Event] = []
        self.record: Record = Record()
        self._opened = time.monotonic()
        self._hear = hear

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._opened

    def say(self, text: str, tone: Tone = "plain") -> None:
        event = Event(self.elapsed, text, tone)
        self.events.append(event)
        if self._hear is not None:
            self._hear(event)

    def mark(self, number: int, state: str, tone: Tone) -> None:
        """An order whose bill is settled, one way or the other."""
        order = self.orders[number]
        order.state, order.tone = state, tone
