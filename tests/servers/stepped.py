"""A wall clock that tests step forward and back: that of an engine in this process, and that of a whole server."""

import functools
import mmap
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.postgres import PostgresServer
from tests.servers.programs import lacking

SOURCE = Path(__file__).with_suffix(".c")
AHEAD = struct.Struct("q")  # microseconds


class SteppedClock:
    """The machine's wall clock, and so many microseconds more. For an engine it is `clock=`; nobody is told of a step."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_bytes(AHEAD.pack(0))
        file.chmod(0o644)  # servers run as others
        with file.open("r+b") as opened:
            self._mapped = mmap.mmap(opened.fileno(), AHEAD.size)

    @property
    def ahead(self) -> float:
        """Seconds."""
        (us,) = AHEAD.unpack(self._mapped[:])
        return float(us) / 1e6

    def step(self, seconds: float) -> None:
        """Forward, or back if it is negative."""
        self._mapped[:] = AHEAD.pack(round(1e6 * (self.ahead + seconds)))

    def set_right(self) -> None:
        self._mapped[:] = AHEAD.pack(0)

    def now_ns(self) -> int:
        (us,) = AHEAD.unpack(self._mapped[:])
        return time.time_ns() + int(us) * 1_000

    def on_jump(self, told: Callable[[], None]) -> None:
        """Nobody can tell when an administrator sets a clock."""

    @functools.cached_property
    def environment(self) -> Mapping[str, str]:
        """Of a server that goes by this clock."""
        return {"LD_PRELOAD": str(_library(self.file.parent)), "STEPPED_CLOCK": str(self.file)}

    @property
    def under(self) -> Sequence[str]:
        """The command that runs such a server."""
        return ["env", *(f"{name}={value}" for name, value in self.environment.items())]


class SteppedPostgres(PostgresServer):
    def __init__(self, clock: SteppedClock) -> None:
        super().__init__()
        self._clock = clock

    def _run_as(self) -> Mapping[str, Any]:
        return {**super()._run_as(), "env": self._clock.environment}


@contextmanager
def stepped_clock() -> Iterator[SteppedClock]:
    """Right at first."""
    with tempfile.TemporaryDirectory(prefix="bide-clock-") as folder:
        Path(folder).chmod(0o755)
        yield SteppedClock(Path(folder, "ahead"))


def _library(folder: Path) -> Path:
    compiler, made = shutil.which("cc"), folder / "stepped.so"
    if compiler is None:
        lacking("cc is not on the PATH: install gcc, to step the clocks of servers")
    done = subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-o", made, SOURCE], capture_output=True, text=True, check=False
    )
    if done.returncode:
        lacking(f"a server's clock can't be stepped here: {done.stderr}")
    return made
