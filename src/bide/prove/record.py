"""The records of a history: JSON, one a line, each handed to the operating system before its writer goes on."""

import itertools
import os
import platform
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import msgspec

Result: TypeAlias = Literal["invoke", "ok", "fail", "unknown"]
"""invoke: is about to be tried. ok: happened. fail: did not happen. unknown: may or may not have happened."""


class Record(msgspec.Struct, gc=False, omit_defaults=True, kw_only=True):
    """One line. Instants and durations are milliseconds of the engine's clock, but for the two that are this machine's."""

    mono: int  # ns, the same clock for all processes since the machine started
    wall: int  # ns since the epoch
    process: str
    op: str
    result: Result
    call: int = 0  # of its process: an operation's invoke and its result have the same
    id: str | None = None
    topic: str | None = None
    key: str | None = None
    tag: str | None = None  # that a send put into its body
    body: str | None = None  # digests, as are the headers
    headers: str | None = None
    now: int | None = None  # the engine's, at a delivery
    due: int | None = None
    token: str | None = None
    attempt: int | None = None
    max_attempts: int | None = None
    lease: int | None = None
    delay: int | None = None
    at: int | None = None
    expires_in: int | None = None
    if_exists: str | None = None
    operation: str | None = None
    batch: int | None = None  # the call of the send_many that it was part of
    topics: Sequence[str] | None = None  # that were asked for
    ids: Sequence[str] | None = None
    limit: int | None = None
    state: str | None = None
    count: int | None = None
    counts: dict[str, dict[str, int]] | None = None  # by topic, then by state
    gates: dict[str, int] | None = None  # what a handler is in, with how many may be in it at once
    planned: int | None = None  # the instant of a schedule
    needs: Sequence[str] | None = None  # the messages that it waits for
    tags: Sequence[str] | None = None  # of all that was merged into a body
    value: str | None = None  # the digest of a result
    again: bool = False  # a delivery that the successor of a dead process asked for again
    outcome: str | None = None  # in the engine's own word
    kind: str | None = None  # of a fault
    note: str | None = None  # for people


class RecordLog:
    """A file that records are added to, by one process at a time and any number of its threads.

    A record is handed to the operating system in one piece before `write` returns, so that a killed process leaves
    all it wrote, save a torn last line: readers ignore that, and opening the file again cuts it off.
    """

    def __init__(self, path: Path | str, process: str | None = None) -> None:
        self.path: Path = Path(path)
        self.process: str = process or f"process-{os.getpid()}"
        self._lock = threading.Lock()
        self._encode = msgspec.json.Encoder().encode
        self._calls = itertools.count(time.monotonic_ns())  # goes on where an earlier process left the file
        _cut_torn_line(self.path)
        self._file = self.path.open("ab", buffering=0)
        self.write("begin", "ok", note=_machine())

    def new_call(self) -> int:
        return next(self._calls)

    def write(self, op: str, result: Result, call: int = 0, **fields: Any) -> None:
        mono, wall = time.monotonic_ns(), time.time_ns()
        record = Record(mono=mono, wall=wall, process=self.process, op=op, result=result, call=call, **fields)
        line = self._encode(record) + b"\n"
        with self._lock:
            written = self._file.write(line)
        if written != len(line):
            raise OSError(f"{self.path} has taken {written} of {len(line)} bytes: is the disk full?")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read(path: Path | str) -> Iterator[Record]:
    """The records of a file. A line that was not written to its end can only be the last, and did not happen."""
    decode = msgspec.json.Decoder(Record).decode
    with Path(path).open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode(line)
            except msgspec.MsgspecError as error:
                raise ValueError(f"Line {number} of {path} is not a record: {error}") from error


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("rb+") as file:
        whole = end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - 65_536)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                end = begin + newline + 1
                break
            end = begin
        if end != whole:
            file.truncate(end)


def _machine() -> str:
    """The same text for all processes whose monotonic clocks can be compared."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()
