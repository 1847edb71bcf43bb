"""Which lines of a file may not have been sent, and the command that sends them again."""

import itertools
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from bide.cli.exits import Exit
from bide.cli.output import note
from bide.core.formats import plural
from bide.errors import ConfirmTimeout, OutcomeUnknown

LONGEST = 2_000  # characters


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
        if len(lines) <= LONGEST:
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
