"""Ways to run the command: in a process of its own, and at a terminal; and what there is to find."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bide import Queue
from bide.queue.deliveries import internals

BIDE = [sys.executable, "-m", "bide"]
TIMEOUT = 30.0


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def plain_environment(**more: str) -> dict[str, str]:
    """This one, without what changes how things are shown."""
    unwanted = {
        "BIDE_URL",
        "NO_COLOR",
        "FORCE_COLOR",
        "COLUMNS",
        "LINES",
        "TERM",
        "PYTHONIOENCODING",
        "PYTHONUNBUFFERED",
        "_BIDE_COMPLETE",
    }
    return {**{name: value for name, value in os.environ.items() if name not in unwanted}, "TERM": "xterm-256color", **more}


class Terminal:
    """A command at a screen of 80 columns; with `out_is_file`, only its standard error and input are the screen."""

    def __init__(
        self, folder: Path, arguments: tuple[str, ...], *, out_is_file: bool, columns: int, **environment: str
    ) -> None:
        self._master, screen = pty.openpty()
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - closed in end()
        self._process = subprocess.Popen(
            [*BIDE, *arguments],
            stdin=screen,
            stdout=self._out if out_is_file else screen,
            stderr=screen,
            cwd=folder,
            env=plain_environment(**environment),
            start_new_session=True,
        )
        os.close(screen)
        self.seen = ""

    def until(self, text: str) -> None:
        """Read until the screen has shown this."""
        give_up = time.monotonic() + TIMEOUT
        while text not in self.seen:
            assert time.monotonic() < give_up, f"{text!r} was not shown in: {self.seen!r}"
            assert self._more(), f"it ended before {text!r} was shown: {self.seen!r}"

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def gone(self) -> int:
        """Take the screen away; the code with which the command ends then."""
        os.close(self._master)
        self._out.close()
        return self._process.wait(TIMEOUT)

    def end(self) -> Ended:
        """What the file got, and all that the screen has shown."""
        while self._more():
            pass
        code = self._process.wait(TIMEOUT)
        with self._out as file:
            file.seek(0)
            out = file.read()
        os.close(self._master)
        return Ended(code, out.decode(), self.seen.replace("\r\n", "\n"))

    def _more(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], TIMEOUT)
        assert ready, f"nothing more came after: {self.seen!r}"
        try:
            got = os.read(self._master, 65_536)
        except OSError:  # how a screen says that nobody writes to it any more
            return False
        self.seen += got.decode(errors="replace")
        return bool(got)


Bide = Callable[..., Ended]
AtTerminal = Callable[..., Terminal]


def buried(queue: Queue, topic: str, count: int = 1, *, error: str = "no such order") -> list[str]:
    """So many dead letters, at most 1,000."""
    ids = [each.id for each in queue.send_many(topic, [{"order": number} for number in range(count)])]
    taken = queue.receive(topic, limit=count)
    queue.session.engine().settle([internals(each).end("dead", error=error) for each in taken])
    for each in taken:
        internals(each).mark_ended()
    return ids
