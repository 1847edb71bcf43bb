"""Files of lines, or standard input: one line at a time, however long the file is."""

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from typing import BinaryIO

import typer

from bide.errors import BadBody

LONGEST = 4 * 2**20  # bytes of a line: room for a body at its limit, however it is written


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


@contextlib.contextmanager
def opened(source: str) -> Iterator[BinaryIO]:
    """A file by its name, or standard input for `-`."""
    if source == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(source, "rb")  # noqa: SIM115 - closed below; only the opening is this error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a valid file name"
        raise typer.BadParameter(f"{source} can't be read: {reason}.", param_hint="--from") from None
    with file:
        yield file


def is_regular(file: BinaryIO) -> bool:
    """Whether a file can be read twice."""
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.tell() == 0
    except (OSError, ValueError):
        return False
