"""What the demo shows: orders, the latest events and the counts; on a terminal as a screen that is drawn live."""

import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NamedTuple, TypeAlias

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bide.cli.demo.plan import EARLY, LATER

Tone: TypeAlias = Literal["plain", "good", "bad", "odd", "faint"]

STYLES: dict[Tone, str] = {"plain": "", "good": "green", "bad": "red", "odd": "yellow", "faint": "bright_black"}
ROWS = len(EARLY) + len(LATER)
BAR = 10
FRAMES = 12  # a second
LEFT = 35
WIDTH, HEIGHT = 80, ROWS + 7
WIDEST = 100
SWITCH = 0.0005  # seconds: the thread that draws must not make the workers late


class Event(NamedTuple):
    at: float  # seconds after opening
    text: str
    tone: Tone


@dataclass
class ShownOrder:
    number: int
    item: str
    due: int  # when it will be cancelled, in ms of the engine's clock
    window: float  # seconds
    state: str | None = None  # none while its customer has not paid yet
    tone: Tone = "plain"


class Board:
    """`on_event` is called with every event as it happens."""

    def __init__(self, on_event: Callable[[Event], None] | None = None) -> None:
        self.orders: dict[int, ShownOrder] = {}
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


def fits() -> bool:
    """Whether standard output is a terminal that has room for the screen and may be drawn on."""
    size = shutil.get_terminal_size()
    room = size.columns >= WIDTH and size.lines >= HEIGHT
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and room and not plain and sys.stdout.encoding.lower().startswith("utf")


class Screen:
    """Draws a board in a thread of its own, from `with` to the end of it.

    The orders with their countdowns are on the left, what happens on the right, the counts below.
    """

    def __init__(self, board: Board, console: Console | None = None) -> None:
        self._board = board
        self._console = console or Console(highlight=False)
        self._live = Live(console=self._console, get_renderable=self.frame, refresh_per_second=FRAMES)
        self._switch = sys.getswitchinterval()

    def __enter__(self) -> None:
        sys.setswitchinterval(SWITCH)
        self._live.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()
        sys.setswitchinterval(self._switch)

    def frame(self) -> Group:
        body = Table.grid(padding=0)
        body.add_column(width=LEFT)
        body.add_column(width=min(self._console.width, WIDEST) - LEFT)
        body.add_row(_panel("orders", self._orders()), _panel("what happens", self._log()))
        return Group(self._head(), body, self._counts())

    def _head(self) -> Text:
        return Text.assemble(
            (" bide ", "bold reverse cyan"),
            (f" {self._board.elapsed:4.1f} s", "bold"),
            ("  Unpaid orders are cancelled by a message that bides its time.", "bright_black"),
        )

    def _orders(self) -> Table:
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(width=2)
        table.add_column(width=11, no_wrap=True)
        table.add_column(no_wrap=True)
        now = time.time() * 1000
        for order in list(self._board.orders.values())[-ROWS:]:
            table.add_row(str(order.number), order.item, _fate(order, now))
        return table

    def _log(self) -> Group:
        return Group(*(_line(event) for event in self._board.events[-ROWS:]))

    def _counts(self) -> Text:
        text, board, late = Text(" "), self._board, sorted(self._board.lateness)
        for name in ("sent", "waiting", "delivered", "cancelled"):
            text.append(f"{name} ", "bright_black").append(f"{getattr(board, name):<5}", "bold")
        text.append("late p50/p99 ", "bright_black")
        return text.append(f"{percentile(late, 0.5) or 0}/{percentile(late, 0.99) or 0} ms", "bold")


def _panel(title: str, content: Table | Group) -> Panel:
    return Panel(content, title=title, title_align="left", border_style="bright_black", height=ROWS + 2)


def _fate(order: ShownOrder, now: float) -> Text:
    """The time that is left to pay, or what became of the order."""
    if order.state is not None:
        return Text(order.state, STYLES[order.tone])
    left = max(0.0, (order.due - now) / 1000)
    full = min(BAR, round(BAR * left / order.window))
    style = "red" if left < 1 else "cyan"
    return Text.assemble(("━" * full, style), ("━" * (BAR - full), "grey23"), (f" {left:.1f} s", style))


def _line(event: Event) -> Text:
    text = Text.assemble((f"{event.at:4.1f}  ", "bright_black"), (event.text, STYLES[event.tone]))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
