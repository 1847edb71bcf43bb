"""What the command line prints: results go to standard output, notes and progress to standard error.

Text that others wrote is escaped, so that nothing in it can move a cursor, fake a line or turn text around.
"""

import contextlib
import io
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

import msgspec
import typer

from bide.cli.exits import Exit
from bide.clock import moment
from bide.core.formats import span

if TYPE_CHECKING:
    from rich.console import Console


LATE = 10.0  # seconds overdue: a worker that keeps up has no message so late, so it is shown in a colour
_PASSWORD = re.compile(r"(?<=://)\S*(?=@)|(?<=[?&]password=)[^&\s]+")
GAP = "  "
SHORT = 40  # characters that a terminal is given of a cell in a column that may be cut
LEAST = 16  # cells that the last column has, however narrow the terminal is
ROOMY = 100  # columns of a terminal that shows all there is


class Unwritable(OSError):
    """Standard output takes no more, as on a full disk."""


def prepare_streams() -> None:
    """Replace closed streams, and escape the letters that a stream's encoding lacks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it is the stream from now on
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def echo(text: str) -> None:
    """Print a line of the result."""
    _write(escaped(text) + "\n")


def echo_json(value: Any) -> None:
    """Print a value of the result as one line of JSON."""
    _write(json_text(value, ascii_only=not is_unicode(sys.stdout)) + "\n")


def echo_styled(text: str, style: str) -> None:
    """Print a line of the result, in a style if standard output is a terminal."""
    if not style or not is_terminal(sys.stdout):
        echo(text)
        return
    from rich.text import Text

    with _open_pipe():
        console(sys.stdout).print(Text(escaped(text), style), soft_wrap=True)


def note(text: str) -> None:
    """Print a line for the reader to standard error, after the result so far."""
    flush()
    with contextlib.suppress(OSError, ValueError):  # ValueError: somebody else has closed it
        print(escaped(without_passwords(text)), file=sys.stderr, flush=True)


def note_missing(servers: Sequence[str]) -> None:
    """Tell the reader that the result so far lacks what these servers have."""
    if servers:
        note(f"bide: no answer from {', '.join(servers)}: what they have is missing here.")


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a screen that can be drawn on."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def is_unicode(stream: TextIO) -> bool:
    """Whether a stream's encoding has every letter."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf")


def console(stream: TextIO) -> "Console":
    """A rich console that reads no markup in what it prints, and has no styles under NO_COLOR."""
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    return Console(file=stream, color_system=None if plain else "auto", highlight=False, markup=False, emoji=False)


def flush() -> None:
    """Write what is buffered, so that the interpreter's exit has nothing to complain about."""
    with _open_pipe():
        if not sys.stdout.closed:  # a handler of `bide worker` may have closed it
            sys.stdout.flush()


def discard() -> None:
    """Send what is buffered, and all that follows, nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def escaped(text: str) -> str:
    """Text with every invisible character as an escape, the way JSON writes it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def without_passwords(text: str) -> str:
    """Text whose URLs have neither a user and password before the host nor a password among their options."""
    return _PASSWORD.sub("…", text)


def json_text(value: Any, *, ascii_only: bool = False) -> str:
    """A value as one line of escaped JSON."""
    text = escaped(msgspec.json.encode(value).decode())
    return "".join(each if each.isascii() else _escape(each) for each in text) if ascii_only else text


def body_text(body: Any) -> str:
    """A body as one line: JSON, or the bytes of a body that can't be decoded."""
    return repr(body) if isinstance(body, bytes) else json_text(body)


def body_lines(body: Any) -> list[str]:
    """A body as indented lines."""
    if isinstance(body, bytes):
        return [repr(body)]
    return [escaped(line) for line in msgspec.json.format(msgspec.json.encode(body), indent=2).decode().split("\n")]


def now_ms() -> int:
    """The time of this machine: good enough to tell people how far away an instant is."""
    return time.time_ns() // 1_000_000


def local(ms: int) -> str:
    """An instant in this machine's timezone, to the second, with its offset from UTC."""
    return moment(ms).astimezone().isoformat(" ", "seconds").removesuffix(":00")


def relative(ms: int, now: int) -> str:
    """How far away an instant is: "in 14m 3s", "3s ago", "now"."""
    away = span(abs(ms - now) / 1000)
    if not away:
        return "now"
    return f"in {away}" if ms > now else f"{away} ago"


def due(ms: int, now: int) -> str:
    """An instant and how far away it is."""
    return f"{local(ms)}, {relative(ms, now)}"


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[first : first + 4]}" for first in range(0, len(units), 4))


def _write(text: str) -> None:
    with _open_pipe():
        sys.stdout.write(text)


@contextlib.contextmanager
def _open_pipe() -> Iterator[None]:
    """If the reader has gone, end the command without a word. Raises Unwritable for other trouble."""
    try:
        yield
    except BrokenPipeError:
        discard()
        raise typer.Exit(Exit.CLOSED) from None
    except OSError as error:
        raise Unwritable(error.errno, error.strerror) from error


Moved: TypeAlias = Callable[[int], Any]
"""Called with how much is done so far."""


@contextlib.contextmanager
def progress(what: str, total: int | None, *, shown: bool = True) -> Iterator[Moved]:
    """A bar, or a pulse while the total is unknown."""
    if not shown or not is_terminal(sys.stderr):
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    words = "{task.completed:,.0f}" + ("" if total is None else f" of {total:,}")
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn(words), TimeRemainingColumn())
    bar = Progress(*columns, console=console(sys.stderr), transient=True, redirect_stdout=False, redirect_stderr=False)
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


class Table:
    """A table that prints its rows page by page.

    Columns in `right` are aligned to the right. On a terminal, cells of columns in `short` are cut, columns in `spare` are
    left out if the terminal is narrow, and the last column is cut to the room that is left. `whole`: nothing is cut. Columns
    in `without` are never shown.
    """

    def __init__(
        self,
        *columns: str,
        right: Container[str] = (),
        short: Container[str] = (),
        spare: Container[str] = (),
        without: Container[str] = (),
        whole: bool = False,
    ) -> None:
        self._room = shutil.get_terminal_size().columns if is_terminal(sys.stdout) and not whole else None
        narrow = self._room is not None and self._room < ROOMY
        self._kept = [
            index for index, heading in enumerate(columns) if heading not in without and not (narrow and heading in spare)
        ]
        headings = [columns[index] for index in self._kept]
        self._headings = headings
        self._right = [heading in right for heading in headings]
        self._short = [heading in short for heading in headings]
        self._widths = [len(heading) for heading in headings]
        self._begun = False

    def add(self, rows: Sequence[Sequence[str]], styles: Sequence[str] = ()) -> None:
        """Print a page of rows, each in its style."""
        from rich.cells import cell_len

        shown = [self._cells(row) for row in rows]
        for row in shown:
            self._widths = [max(width, cell_len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        if not self._begun and any(self._headings):
            echo_styled(self._line(self._headings), "bold")
        self._begun = True
        for index, row in enumerate(shown):
            echo_styled(self._line(row), styles[index] if styles else "")

    def _cells(self, row: Sequence[str]) -> list[str]:
        cells = [escaped(row[index]) for index in self._kept]
        if self._room is None:
            return cells
        may_cut = zip(cells, self._short, strict=True)
        return [cell[: SHORT - 1] + "…" if short and len(cell) > SHORT else cell for cell, short in may_cut]

    def _line(self, cells: Sequence[str]) -> str:
        from rich.cells import cell_len, chop_cells

        *first, last = cells
        widths = self._widths[:-1]
        begin = ""
        for cell, width, right in zip(first, widths, self._right, strict=False):
            pad = " " * (width - cell_len(cell))
            begin += (pad + cell if right else cell + pad) + GAP
        if self._room is not None:
            room = max(LEAST, self._room - sum(widths) - len(GAP) * len(widths))
            if cell_len(last) > room:
                last = chop_cells(last[: room + 1], room - 1)[0] + "…"
        return (begin + last).rstrip()


def echo_pairs(pairs: Sequence[tuple[str, str]], styles: Mapping[str, str] | None = None) -> None:
    """Print names with their values, one per line, complete. `styles` has the styles of some names."""
    widest = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        echo_styled(f"{name:<{widest}}{GAP}{value}".rstrip(), (styles or {}).get(name, ""))
