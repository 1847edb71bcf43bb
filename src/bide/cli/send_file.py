"""`bide send --from`: the lines of a file, read and sent in batches; which were not, and what sends them again."""

import abc
import itertools
import os
import shlex
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar

import typer

from bide.cli.exits import Exit
from bide.cli.output import echo_json, flush, note, progress
from bide.cli.queues import QueueOptions
from bide.core.formats import plural
from bide.errors import BadBody, BideError, ConfirmTimeout, OutcomeUnknown

if TYPE_CHECKING:
    from bide.queue import Queue

L = TypeVar("L")

BATCH = 1_000
LONGEST = 4 * 2**20  # bytes of a line: room for a body at its limit, however it is written
TYPED = 2_000  # characters of a command that a terminal, and perhaps a shell, takes


def read_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, each with its number. Raises BadBody for one that is too long."""
    number = 0
    while raw := file.readline(LONGEST + 1):
        number += 1
        if len(raw) > LONGEST:
            raise BadBody(f"Line {number:,} is longer than {LONGEST:,} bytes. Write one message per line.")
        written = raw.rstrip(b"\r\n")
        if written.strip():
            yield number, written


def _opened(source: str) -> AbstractContextManager[BinaryIO]:
    """A file by its name, or standard input for `-`."""
    if source == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(source, "rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a valid file name"
        raise typer.BadParameter(f"{source} can't be read: {reason}.", param_hint="--from") from None


def _is_regular(file: BinaryIO) -> bool:
    """Whether a file can be read twice."""
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.tell() == 0
    except (OSError, ValueError):
        return False


class Unsent:
    """Of lines that are sent in batches, one after the other."""

    def __init__(self, source: str, command: str, *, repeatable: bool) -> None:
        """`command`: sends lines from its standard input. `repeatable`: the same lines are not sent twice."""
        self.last: int = 0  # number of the last line of a batch that was sent, but for the lines below
        self._file = "FILE" if source == "-" else shlex.quote(source)
        self._command = command
        self._repeatable = repeatable
        self._unsure: list[int] = []  # numbers of lines that may not have been sent
        self._lost = False  # nothing is known of the batch before
        self._error: OutcomeUnknown | None = None  # the first of a part

    def none(self, last: int) -> None:
        """All of a batch were sent, up to this line."""
        self.last, self._lost = last, False

    def some(self, error: OutcomeUnknown, numbers: Sequence[int], last: int) -> list[Any]:
        """A part of a batch was sent, or all and not confirmed: its answers, with None for each line that may not have been.

        Raises the error if nothing is known of two batches in a row: then there is no other part that could answer.
        """
        answers = list(error.answers) or [None] * len(numbers)
        self._unsure += [number for number, each in zip(numbers, answers, strict=True) if each is None]
        self._error, self.last = self._error or error, last
        lost = not error.answers and not isinstance(error, ConfirmTimeout)
        if lost and self._lost:
            raise error
        self._lost = lost
        return answers

    def ended(self) -> Exit:
        """How the command ends when all lines were tried."""
        if self._error is None:
            return Exit.OK
        note(f"bide: {self._error}")
        note(f"{plural(len(self._unsure), 'line')} may not have been sent.{self.again()}")
        return Exit.FAILED

    def again(self, *, rest: bool = False, unsure: bool = False) -> str:
        """How to send the lines that may not have been sent. `rest`: and all that follow, of which `unsure` says the same."""
        if not self._unsure and not rest:
            return ""
        command = f"{self._printing(rest=rest)} {self._file} | {self._command} OPTIONS"
        meant = "with the OPTIONS of this one"
        if self._repeatable:
            return (
                " Run the same command again within ten minutes: nothing is sent twice. "
                f"Later, send only these, {meant}: {command}"
            )
        twice = ", of which some may be sent twice" if self._unsure or unsure else ""
        return f" To send the rest{twice}, run this, {meant}: {command}"

    def _printing(self, *, rest: bool) -> str:
        """What prints the lines. Their numbers are in a file, if they are too many for a terminal, and perhaps for a shell."""
        lines = ";".join([*_ranges(self._unsure), *([f"{self.last + 1},$p"] if rest else [])])
        if len(lines) <= TYPED:
            return f"sed -n '{lines}'"
        with tempfile.NamedTemporaryFile("w", prefix="bide-unsent-", delete=False) as file:
            file.writelines(f"{number}\n" for number in self._unsure)
        others = f" || FNR > {self.last}" if rest else ""
        return f"awk 'NR == FNR {{lines[$1]; next}} FNR in lines{others}' {shlex.quote(file.name)}"


def _ranges(numbers: list[int]) -> Iterator[str]:
    """Lines as `sed` prints them."""
    for _, each in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in each]
        yield f"{run[0]}p" if len(run) == 1 else f"{run[0]},{run[-1]}p"


class FileSender(abc.ABC, Generic[L]):
    """Sends lines in batches, and knows at every moment how many messages were accepted."""

    more: str = "some more"  # what may have been accepted, too, at Ctrl-C

    def __init__(self, unsent: Unsent, *, as_json: bool) -> None:
        self.accepted: int = 0
        self.unsent = unsent
        self._as_json = as_json

    @abc.abstractmethod
    def send(self, batch: list[L]) -> None:
        """Send a batch. Goes on after one of which a part was done, or all and not confirmed."""

    @abc.abstractmethod
    def tell(self) -> None:
        """Print what became of all lines."""

    def print_answers(self, answers: Iterable[dict[str, Any]]) -> None:
        """With --json, print the answers to a batch."""
        if self._as_json:
            for each in answers:
                echo_json(each)
            flush()  # a program that reads along knows what was accepted


def send_file(
    options: QueueOptions,
    source: str,
    what: str,
    batches: Callable[[BinaryIO], Iterator[list[L]]],
    opened: "Callable[[Queue], FileSender[L]]",
    *,
    as_json: bool,
) -> int:
    """Send what `source` has. All of a file is read before any is sent, so that a bad line stops it all."""
    with _opened(source) as file:
        total = None
        if _is_regular(file):
            total = sum(map(len, batches(file)))
            file.seek(0)
        shown = not (as_json and sys.stdout.isatty())  # a bar among the lines would be in their way
        with options.open(create=True) as queue, progress(what, total, shown=shown) as moved:
            sender, lines = opened(queue), 0
            try:
                for batch in batches(file):
                    sender.send(batch)
                    lines += len(batch)
                    moved(lines)
            except BideError as error:
                note(f"bide: {error}")
                note(f"Accepted before the error: {plural(sender.accepted, 'message')}.{sender.unsent.again(rest=True)}")
                return Exit.FAILED
            except KeyboardInterrupt:
                accepted, again = plural(sender.accepted, "message"), sender.unsent.again(rest=True, unsure=True)
                note(f"Stopped. Accepted: {accepted}, and possibly {sender.more}.{again}")
                return Exit.STOPPED
    if not as_json:
        sender.tell()
    return sender.unsent.ended()
