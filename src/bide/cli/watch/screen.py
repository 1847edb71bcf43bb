"""`bide watch` at a terminal or printed once: rows of topics and workers, no wider than the screen."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bide.cli.exits import Exit
from bide.cli.output import LATE, Table, console, echo, escaped, is_terminal, note, relative, without_passwords
from bide.cli.queues import QueueOptions
from bide.cli.topics import count, overdue
from bide.cli.watch.look import QueueLook, QueueWatch, WorkerLook
from bide.cli.workers import is_silent, recent
from bide.core.formats import plural, span
from bide.errors import EngineError
from bide.types import Info, Stats

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


TOPICS = ("topic", "scheduled", "ready", "leased", "dead", "change", "overdue", "next due")
WORKERS = ("worker", "runs", "done", "failed", "lateness", "longest", "of", "attempt", "message")
RIGHT = (
    *("scheduled", "ready", "leased", "dead", "change", "overdue"),
    *("runs", "done", "failed", "lateness", "longest", "attempt"),
)
GAP = "  "
NAME = 16  # cells of the first column, before another column is left out for it
LONGEST = 40  # cells of any other column
SPARE = (
    *("attempt", "next due", "message", "dead", "change", "of", "failed", "lateness"),
    *("scheduled", "overdue", "longest", "leased", "done", "runs"),
)
SILENT = 2.0  # seconds without an answer: then the screen says so
TICK = 1.0
LEAST = 3  # lines of a table, however low the screen is
PARTING = 0.5  # seconds that a look gets at the end


def topic_rows(look: QueueLook) -> list[tuple[str, ...]]:
    return [_topic_row(topic, counts, look) for topic, counts in look.topics.items()]


def _topic_row(topic: str, counts: Stats, look: QueueLook) -> tuple[str, ...]:
    change = look.changes.get(topic)
    return (
        topic,
        count(counts.scheduled, counts),
        count(counts.ready, counts),
        f"{counts.leased:,}",
        f"{counts.dead:,}",
        "" if change is None else rate(change),
        "paused" if counts.paused else overdue(counts),
        "" if counts.next_due is None else relative(counts.next_due, look.at),
    )


def style(counts: Stats) -> str:
    if counts.paused:
        return "yellow"
    late = counts.oldest_overdue is not None and counts.oldest_overdue >= LATE
    return "red" if late else "" if counts.ready or counts.leased or counts.scheduled or counts.dead else "dim"


def worker_rows(look: QueueLook) -> list[tuple[str, ...]]:
    return [_worker_row(each, look.at) for each in look.workers()]


def _worker_row(each: WorkerLook, now: int) -> tuple[str, ...]:
    oldest, topics = each.oldest, ", ".join(each.topics)
    has = ("", topics, "", "") if oldest is None else (_for(oldest, now), topics, _attempt(oldest), _name(oldest))
    return each.name, f"{each.messages:,}", *recent(each.told, now), *has


def worker_styles(look: QueueLook) -> list[str]:
    return ["red" if each.told and all(is_silent(one, look.at) for one in each.told) else "" for each in look.workers()]


def _attempt(info: Info) -> str:
    return f"{info.attempt}/{info.max_attempts}"


def _for(info: Info, now: int) -> str:
    """How long a worker has had a message."""
    return "" if info.leased_since is None else span(max(0, now - info.leased_since) / 1000) or "0s"


def _name(info: Info) -> str:
    return info.id if info.key is None else info.key


def rate(change: float) -> str:
    """How many messages a second are gained or lost."""
    digits = 0 if abs(change) >= 99.95 or not change else 1
    return f"{change:+,.{digits}f}/s" if change else "0/s"


def summary(look: QueueLook) -> str:
    """All topics in a line."""
    about = "about " if look.about else ""
    states = ", ".join(f"{look.count(state):,} {state}" for state in ("scheduled", "ready", "leased", "dead"))
    change = "" if look.change is None else f", {rate(look.change)}"
    missing = f"; no answer from {', '.join(look.missing)}" if look.missing else ""
    return f"{plural(len(look.topics), 'topic')}: {about}{states}{change}{missing}"


def fitted(rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """The first row is the headings. The first column has what room the others leave."""
    from rich.cells import cell_len, set_cell_size

    headings, found = rows[0], [[escaped(cell) for cell in row] for row in rows]
    widths = [min(LONGEST, max(cell_len(row[place]) for row in found)) for place in range(len(headings))]
    kept = list(range(1, len(headings)))
    least = min(NAME, widths[0])
    for spare in SPARE:
        if _wide(widths, kept) + least <= columns:
            break
        kept = [place for place in kept if headings[place] != spare]
    widths[0] = max(1, min(widths[0], columns - _wide(widths, kept)))
    lines = []
    for row in found:
        line = _cut(row[0], widths[0])
        line = set_cell_size(line, widths[0])
        for place in kept:
            cell = _cut(row[place], widths[place])
            pad = " " * (widths[place] - cell_len(cell))
            line += GAP + (pad + cell if headings[place] in RIGHT else cell + pad)
        lines.append(line.rstrip())
    return lines


def _wide(widths: Sequence[int], kept: Sequence[int]) -> int:
    """Cells of the columns that are kept, beside the first."""
    return sum(widths[place] + len(GAP) for place in kept)


def _cut(cell: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return cell if cell_len(cell) <= width else set_cell_size(cell, width - 1) + "…"


def print_look(look: QueueLook) -> None:
    headings = [heading for heading in TOPICS if heading != "change"]  # which takes two looks
    place = TOPICS.index("change")
    if look.topics:
        topics = Table(*headings, right=RIGHT)
        rows = [(*row[:place], *row[place + 1 :]) for row in topic_rows(look)]
        topics.add(rows, [style(counts) for counts in look.topics.values()])
    else:
        note("There are no topics.")
    if rows := worker_rows(look):
        echo("")
        workers = Table(*WORKERS, right=RIGHT, short=("of",))
        workers.add(rows, worker_styles(look))
    if look.unread:
        note(f"{look.unread:,} more run in workers that were not asked for.")


class Watcher:
    """Looks in a thread, so that the screen can say that the queue does not answer."""

    def __init__(self, options: QueueOptions, looking: QueueWatch, interval: float) -> None:
        self.news: threading.Event = threading.Event()
        self.look: QueueLook | None = None
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


def show(options: QueueOptions, looking: QueueWatch, interval: float) -> int:
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
    lines: list[RenderableType] = [_line(summary(look) if look else "Looking …", "bold")]
    if trouble:
        lines.append(Text(trouble, "red"))
    if look is not None:
        room = max(2 * LEAST, screen.height - len(screen.render_lines(Group(*lines))) - 4)
        topics, workers = topic_rows(look), worker_rows(look)
        below = min(len(workers), max(LEAST, room // 3, room - len(topics)))
        above = room - below - (2 if workers else 0)
        styles = [style(counts) for counts in look.topics.values()]
        lines += ["", *_table(TOPICS, topics, (screen.width, above), "topic", styles)]
        if workers:
            lines += ["", *_table(WORKERS, workers, (screen.width, below), "worker", worker_styles(look))]
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
