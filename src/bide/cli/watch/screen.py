"""`bide watch` at a terminal: a screen of its own, drawn anew when a look is done, and given back at the end."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bide.cli.exits import Exit
from bide.cli.output import console, escaped, is_terminal, without_passwords
from bide.cli.queues import QueueOptions
from bide.cli.watch import cells
from bide.cli.watch.fitting import fitted
from bide.cli.watch.looking import Look, Looking
from bide.core.formats import plural, span
from bide.errors import EngineError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

SILENT = 2.0  # seconds without an answer: then the screen says so
TICK = 1.0
LEAST = 3  # lines of a table, however low the screen is
PARTING = 0.5  # seconds that a look gets at the end


class Watcher:
    """Looks in a thread, so that the screen can say that the queue does not answer."""

    def __init__(self, options: QueueOptions, looking: Looking, interval: float) -> None:
        self.news: threading.Event = threading.Event()
        self.look: Look | None = None
        self.error: EngineError | None = None  # of the last look
        self.broken: Exception | None = None  # by which the watching ended
        self._asked = 0.0  # when the look began that is under way; 0: none is
        self._options = options
        self._looking = looking
        self._interval = interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="bide-watch")
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join(PARTING)

    def silent_for(self) -> float:
        """Seconds without an answer to the look that is under way."""
        asked = self._asked
        return time.monotonic() - asked if asked else 0.0

    def _run(self) -> None:
        try:
            with self._options.open() as queue:
                while not self._over.is_set():
                    self._asked = time.monotonic()
                    try:
                        self.look = self._looking.look(queue)
                        self.error = None
                    except EngineError as error:
                        self.error = error
                    self._asked = 0.0
                    self.news.set()
                    self._over.wait(self._looking.rest(self._interval))
        except Exception as error:
            self.broken = error
            self.news.set()


def show(options: QueueOptions, looking: Looking, interval: float) -> int:
    """Until Ctrl-C, or an error that is not the engine's, or until the terminal has gone."""
    from rich.live import Live

    screen = console(sys.stdout)
    watcher = Watcher(options, looking, interval)
    try:
        with (
            _ended_by_sigterm(),
            Live(
                console=screen, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False, transient=True
            ) as live,
        ):
            while watcher.broken is None:
                if not is_terminal(sys.stdout):
                    return Exit.CLOSED
                live.update(frame(watcher, screen), refresh=True)
                watcher.news.wait(TICK)
                watcher.news.clear()
    finally:
        watcher.close()
    raise watcher.broken


def frame(watcher: Watcher, screen: "Console") -> "RenderableType":
    """All that the screen shows."""
    from rich.console import Group
    from rich.text import Text

    look, trouble = watcher.look, _trouble(watcher)
    lines: list[RenderableType] = [_line(cells.summary(look) if look else "Looking …", "bold")]
    if trouble:
        lines.append(Text(trouble, "red"))
    if look is not None:
        room = max(2 * LEAST, screen.height - len(screen.render_lines(Group(*lines))) - 4)
        topics, workers = cells.topic_rows(look), cells.worker_rows(look)
        below = min(len(workers), max(LEAST, room // 3, room - len(topics)))
        above = room - below - (2 if look.running else 0)
        styles = [cells.style(counts) for counts in look.topics.values()]
        lines += ["", *_table(cells.TOPICS, topics, (screen.width, above), "topic", styles)]
        if look.running:
            lines += ["", *_table(cells.WORKERS, workers, (screen.width, below), "worker")]
    return Group(*lines)


def _trouble(watcher: Watcher) -> str:
    if watcher.error is not None:
        return f"Not reached, tried again: {without_passwords(escaped(str(watcher.error)))}"
    silent = watcher.silent_for()
    return f"No answer for {span(silent)}." if silent >= SILENT else ""


def _table(
    headings: tuple[str, ...], rows: list[tuple[str, ...]], size: tuple[int, int], noun: str, styles: list[str] | None = None
) -> "list[RenderableType]":
    """The first rows, as many as there is room for, and how many more there are."""
    columns, room = size
    shown = len(rows) if len(rows) <= room else max(1, room - 1)
    heading, *lines = fitted([headings, *rows[:shown]], columns)
    painted = zip(lines, styles or [""] * shown, strict=False)
    more = [] if shown == len(rows) else [f"and {plural(len(rows) - shown, f'more {noun}')}"]
    return [_line(heading, "bold"), *(_line(*each) for each in painted), *(_line(each, "dim") for each in more)]


def _line(text: str, style: str) -> "RenderableType":
    from rich.text import Text

    return Text(text, style, no_wrap=True, overflow="ellipsis")


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the command like Ctrl-C, so that the terminal is given back."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
