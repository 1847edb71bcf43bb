"""What is kept of an attempt that failed: when it began, on which worker, its error and its traceback. Engines keep records."""

import os
import traceback
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType

import msgspec

from bide.ids import process_name
from bide.raised import presentable
from bide.types import Attempt

FRAMES = 20  # of a traceback, the innermost ones
LENGTH = 4_096  # bytes of a traceback, its end
_LINE = 500  # characters of a line: an error's text may be long
_LONG = 2 * LENGTH  # characters of the beginning and of the end of an error's text that are looked at
_WORTH = 200  # bytes of a record that are not worth compressing
_MOST = 65_536  # bytes that a record is unpacked to
_ENDED = "Its lease ended: its worker died, froze or took too long."


class _Record(msgspec.Struct, omit_defaults=True):
    """One with no more than its first two fields was made by an engine."""

    attempt: int
    began: int
    worker: str | None = None
    error: str | None = None
    traceback: str | None = None


_decode = msgspec.json.Decoder(_Record).decode


def record_of(attempt: int, began: int, error: str | None, raised: BaseException | None = None, *, here: bool = True) -> bytes:
    """A record of an attempt, of this process or of one that is not known: JSON, compressed where that makes it shorter."""
    told = None if raised is None else traceback_text(raised)
    plain = msgspec.json.encode(_Record(attempt, began, process_name(os.getpid()) if here else None, error, told))
    return plain if len(plain) < _WORTH else zlib.compress(plain)


class Raised:
    """What attempts failed with. Messages that failed together and alike share their record, since a traceback takes time."""

    __slots__ = ("_error", "_records")

    def __init__(self, error: BaseException | None) -> None:
        self._error = error
        self._records: dict[tuple[int, int, str | None], bytes] = {}

    def record(self, attempt: int, began: int, error: str | None) -> bytes:
        """The record of an attempt of this process."""
        alike = attempt, began, error
        if alike not in self._records:
            self._records[alike] = record_of(attempt, began, error, self._error)
        return self._records[alike]


def attempts_of(records: Sequence[bytes]) -> Sequence[Attempt]:
    """A record that can't be read is left out."""
    return tuple(attempt for each in records if (attempt := _attempt(each)) is not None)


def _attempt(record: bytes) -> Attempt | None:
    try:
        if record[:1] != b"{":
            record = zlib.decompressobj().decompress(record, _MOST)
        told = _decode(record)
    except (zlib.error, msgspec.MsgspecError):
        return None
    error = _ENDED if told.worker is told.error is None else told.error
    return Attempt(told.attempt, told.began, told.worker, error, told.traceback)


def traceback_text(raised: BaseException) -> str | None:
    """The innermost frames, and at most so many bytes; None where there are none, or they can't be shown."""
    if raised.__traceback__ is None:
        return None
    try:
        own = _outside(raised.__traceback__)
        shown = presentable(raised)
        told = traceback.TracebackException(type(shown), shown, own, limit=-FRAMES, compact=True)
        return _end_of(_lines(told))
    except Exception:  # of somebody else's error, by its __str__ or __cause__, or of a source file
        return None


def _lines(told: traceback.TracebackException) -> Iterator[str]:
    for text in told.format():
        whole = text if len(text) <= _LONG else f"{text[:_LONG]}…\n{text[-_LONG:]}"
        for line in whole.splitlines():
            yield line if len(line) <= _LINE else f"{line[:_LINE]}…"


def _end_of(lines: Iterator[str]) -> str:
    kept: list[str] = []
    room = LENGTH
    for line in reversed(deque(lines, LENGTH + 1)):  # each of them takes a byte at least
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0:
            kept.append("…")
            break
        kept.append(line)
    return "\n".join(reversed(kept)).encode("utf-8", "replace").decode()


def _outside(trace: TracebackType) -> TracebackType:
    """From where the worker calls the handler on: how it came there is the same for all of them."""
    inner: TracebackType | None = trace
    while inner is not None and inner.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "bide":
        inner = inner.tb_next
    return trace if inner is None else inner
