"""What all servers for tests have in common: a process with a port and a folder of its own, that starts, stops and restarts."""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self
from weakref import WeakSet

PATIENCE = 20.0  # seconds, far more than a start or a stop takes
AGAIN = 0.2  # seconds until one that does not end is told again
TRIES = 5  # ports, before it is not the port's fault
TAIL = 4_000  # characters of the log, in an error
# Below the ports that systems lend to outgoing connections, so nobody takes one while its server restarts.
PORTS = range(20_000, 32_000)
MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes that have to be free there
HOST = "127.0.0.1"

_started: WeakSet[subprocess.Popen[bytes]] = WeakSet()


class NotStarted(Exception):
    """The server did not come up. The text has the end of its log."""


class Server:
    """For `with`: it runs inside the block, and nothing is left of it afterwards."""

    kind: ClassVar[str]  # names its folder and its log

    def __init__(self, patience: float) -> None:
        """`patience`: seconds for a start or a stop."""
        self._patience = patience
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        # Not a test's own folder: its path may be too long for a socket, and closed to the user who runs the server.
        self._folder = new_folder(f"bide-{self.kind}-")
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._give_up()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """Where it works: its data, its settings, its log, its socket. Removed at the end of the block."""
        assert self._folder is not None, "the server is started by `with`"
        return self._folder

    @property
    def port(self) -> int:
        return self._port

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """If it has several processes, that of their parent."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def log_text(self) -> str:
        """All it has said, also before a restart."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start it, on the port that it had before if it had one, and wait until it answers."""
        assert not self.running, "the server runs already"
        new = not self._port
        for left in reversed(range(TRIES)):
            if new:
                self._choose_ports()
            said = len(self.log_text())
            try:
                self._launch()
                return
            except NotStarted:
                self._give_up()
                if not new or not left or not self._port_was_taken(self.log_text()[said:]):
                    raise

    def stop(self) -> None:
        """Ask it to end, and make it end if it does not. No harm if it has ended."""
        if self._process is None:
            return
        give_up = time.monotonic() + self._patience
        while self._process.poll() is None and time.monotonic() < give_up:
            self._process.send_signal(
                signal.SIGTERM
            )  # again and again: Redis refuses while it writes its first append-only file
            self._process.send_signal(signal.SIGCONT)  # one that is frozen hears nothing else
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(AGAIN)
        self.kill()

    def kill(self) -> None:
        """End it as a power cut would: it saves nothing and says nothing."""
        assert self._process is not None, "the server is not running"
        self._process.kill()
        self._process.wait(self._patience)
        self._process = None

    def restart(self) -> None:
        """Stop it, and start it on the same port and in the same folder."""
        self.stop()
        self.start()

    @property
    def _log(self) -> Path:
        return self.folder / f"{self.kind}.log"

    def _begin(self) -> None:
        """Its first start, in a folder that is empty."""
        self.start()

    def _give_up(self) -> None:
        """End it when nothing of it is needed any more."""
        self.stop()

    def _choose_ports(self) -> None:
        self._port = free_port()

    def _port_was_taken(self, said: str) -> bool:
        """Whether this is why it ended, judging by what it said."""
        return "Address already in use" in said

    def _write_settings(self) -> None:
        raise NotImplementedError

    def _command(self) -> Sequence[str | Path]:
        raise NotImplementedError

    def _run_as(self) -> Mapping[str, Any]:
        """What `subprocess` takes to run it as somebody else."""
        return {}

    def _answers(self) -> bool:
        """Whether it serves clients."""
        raise NotImplementedError

    def _launch(self) -> None:
        self._write_settings()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, and they stop it
                **self._run_as(),
            )
        _started.add(self._process)
        give_up = time.monotonic() + self._patience
        while not self._answers():
            code = self._process.poll()
            if code is not None:
                raise NotStarted(f"{self.kind} ended at once, with exit code {code}:\n{self.log_text()[-TAIL:]}")
            if time.monotonic() > give_up:
                raise NotStarted(f"{self.kind} did not answer in {self._patience:.0f} seconds:\n{self.log_text()[-TAIL:]}")
            time.sleep(0.005)


def memory() -> Path | None:
    """A folder in memory, where there is one with room: to sync takes no time there, and a kill loses nothing of it."""
    there = not os.environ.get("TMPDIR") and MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    return MEMORY if there and shutil.disk_usage(MEMORY).free > ROOM else None


def new_folder(prefix: str) -> Path:
    """For the files of a server."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=memory()))


def pids() -> list[int]:
    """Of those that run now."""
    return [process.pid for process in list(_started) if process.returncode is None]


def free_port(other: int = 0) -> int:
    """A port that nobody listens on, and that is not the other one."""
    for _ in range(1_000):
        port = random.SystemRandom().choice(PORTS)  # not the seed of the tests: two runs would meet at the same ports
        with suppress(OSError), socket.socket() as taken:
            taken.bind((HOST, port))
            if port != other:
                return port
    raise NotStarted(f"no port from {PORTS[0]} to {PORTS[-1]} is free")


def free_ports(count: int) -> list[int]:
    """As many, each another one."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)
