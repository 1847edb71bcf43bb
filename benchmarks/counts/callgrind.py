"""Counts the instructions of a process by valgrind: they hardly change from run to run, however busy the machine is."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


def there() -> bool:
    return all(map(shutil.which, ("valgrind", "callgrind_control")))


def command(folder: Path) -> Sequence[str]:
    """What to put before the command that is to be counted; nothing is counted before `Callgrind.counted`."""
    return ("valgrind", "--tool=callgrind", "--quiet", "--instr-atstart=no", f"--callgrind-out-file={folder}/callgrind.out")


class Callgrind:
    """Counts what a process that runs under `command(folder)` does between two moments."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid = pid
        self._folder = folder
        self.last = 0
        """Instructions of the last stretch."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        self._control("--instr=on")
        self._control("--zero")
        yield
        self._control("--dump")
        self._control("--instr=off")
        newest = max(self._folder.glob("callgrind.out*"), key=lambda file: file.stat().st_mtime_ns)
        found = _TOTAL.search(newest.read_text())
        assert found is not None, f"callgrind wrote no total into {newest}"
        self.last = int(found[1])
        newest.unlink()

    def _control(self, what: str) -> None:
        subprocess.run(["callgrind_control", what, str(self._pid)], check=True, capture_output=True)
