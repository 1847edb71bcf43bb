"""The two ways to say something: results go to standard output, words about them to standard error."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

import typer

from bide.cli.exits import Exit
from bide.cli.output.safe import escaped, json_text, without_passwords

if TYPE_CHECKING:
    from rich.console import Console


class Unwritable(OSError):
    """Standard output takes no more, as on a full disk."""


def prepare() -> None:
    """A stream that is closed is as good as none; what an encoding has no letter for is written as an escape."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it is the stream from now on
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(text: str) -> None:
    """A line of the result."""
    _write(escaped(text) + "\n")


def say_json(value: Any) -> None:
    """A value of the result, as one line of JSON."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    _write(json_text(value, ascii_only=not unicode) + "\n")


def say_styled(text: str, style: str) -> None:
    """A line of the result that a terminal may paint."""
    if not style or not is_terminal(sys.stdout):
        say(text)
        return
    from rich.text import Text

    with _open_pipe():
        console(sys.stdout).print(Text(escaped(text), style), soft_wrap=True)


def tell(text: str) -> None:
    """A line for the reader, beside the result, and after what there is of it."""
    flush()
    with contextlib.suppress(OSError):
        print(escaped(without_passwords(text)), file=sys.stderr, flush=True)


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a screen that can be drawn on."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def console(stream: TextIO) -> "Console":
    """Rich for a terminal: nothing that is printed is read as markup, and NO_COLOR means no styles at all."""
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    return Console(file=stream, color_system=None if plain else "auto", highlight=False, markup=False, emoji=False)


def flush() -> None:
    """Write what is left, so that the interpreter's end has nothing to complain about."""
    with _open_pipe():
        sys.stdout.flush()


def give_up() -> None:
    """Let what is left go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(text: str) -> None:
    with _open_pipe():
        sys.stdout.write(text)


@contextlib.contextmanager
def _open_pipe() -> Iterator[None]:
    """When the reader has gone, so does the command, without a word. Raises Unwritable for other trouble."""
    try:
        yield
    except BrokenPipeError:
        give_up()
        raise typer.Exit(Exit.CLOSED) from None
    except OSError as error:
        raise Unwritable(error.errno, error.strerror) from error
