"""Starts, freezes, restarts and stops real Redis servers, each with a port and a folder of its own."""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.certificates import Certificates

PATIENCE = 20.0  # seconds, far more than a start or a stop takes
AGAIN = 0.2  # seconds until one that does not end is told again
TRIES = 5  # ports, before it is not the port's fault
TAIL = 4_000  # characters of the log, in an error
# Below the ports that systems lend to outgoing connections, so nobody takes one while its server restarts.
PORTS = range(20_000, 32_000)
HOST = "127.0.0.1"

Setting = str | int | Path | Sequence[str]


class NotStarted(Exception):
    """The server did not come up. The text has the end of its log."""


class RedisServer:
    """A server of its own, for `with`: it runs inside the block, and nothing is left of it afterwards.

    Settings are those of redis.conf, with underscores for dashes: `maxmemory="8mb"`, `save="60 1"`. A list makes one line
    for each of its values: `user=["default off", "ann on >secret ~* &* +@all"]`. Unless told otherwise nothing is saved.

    With `tls` it also listens on `tls_port`, at `tls_url`; with `tls_clients` those who call there must show a certificate
    of the same authority. The plain port stays open for the test itself. `under` is a command that runs it, such as valgrind.
    `patience` is for starts and stops: more for one with much to load and to save.
    """

    def __init__(
        self,
        *,
        tls: Certificates | None = None,
        tls_clients: bool = False,
        under: Sequence[str] = (),
        patience: float = PATIENCE,
        **settings: Setting,
    ) -> None:
        self._settings: dict[str, Setting] = {"save": "", "appendonly": "no"}
        self._settings |= {name.replace("_", "-"): value for name, value in settings.items()}
        if tls is not None:
            self._settings |= {
                "tls-ca-cert-file": tls.authority,
                "tls-cert-file": tls.server,
                "tls-key-file": tls.server_key,
                "tls-auth-clients": "yes" if tls_clients else "no",
            }
        self._tls = tls is not None
        self._under = under
        self._patience = patience
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = self._tls_port = 0

    def __enter__(self) -> Self:
        # Not a test's own folder: its path may be too long for a socket.
        self._folder = Path(tempfile.mkdtemp(prefix="bide-redis-"))
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """Where it works: its data, its log, its socket. Removed at the end of the block."""
        assert self._folder is not None, "the server is started by `with`"
        return self._folder

    @property
    def socket_path(self) -> Path:
        """Its unix socket."""
        return self.folder / "redis.sock"

    @property
    def port(self) -> int:
        return self._port

    @property
    def tls_port(self) -> int:
        assert self._tls, "this server was made without tls"
        return self._tls_port

    @property
    def url(self) -> str:
        """Without a password, whatever the settings say."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def tls_url(self) -> str:
        return f"rediss://{HOST}:{self.tls_port}/0"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def log_text(self) -> str:
        """All it has said, also before a restart."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def client(self, **options: Any) -> redis.Redis:
        """A plain client that gives bytes and tells each error at once. It knows the password of `requirepass`."""
        options = {"password": self._settings.get("requirepass"), "retry": Retry(NoBackoff(), 0), **options}
        return redis.Redis(host=HOST, port=self.port, **options)

    def commandstats(self, **options: Any) -> dict[str, dict[str, Any]]:
        """For each command that was called, how often and how long. The options are those of `client`."""
        with self.client(**options) as client:
            found: dict[str, dict[str, Any]] = client.info("commandstats")
        return {name.removeprefix("cmdstat_"): numbers for name, numbers in found.items()}

    def start(self, **settings: Setting) -> None:
        """Start it, on the port that it had before if it had one, and wait until it answers. More settings are kept."""
        assert not self.running, "the server runs already"
        self._settings |= {name.replace("_", "-"): value for name, value in settings.items()}
        new = not self._port
        for left in reversed(range(TRIES)):
            if new:
                self._choose_ports()
            said = len(self.log_text())
            try:
                self._launch()
                return
            except NotStarted:
                self.stop()
                if not new or not left or "Address already in use" not in self.log_text()[said:]:
                    raise

    def stop(self) -> None:
        """Ask it to end, and make it end if it does not. No harm if it has ended."""
        if self._process is None:
            return
        give_up = time.monotonic() + self._patience
        while self._process.poll() is None and time.monotonic() < give_up:
            self._process.send_signal(signal.SIGTERM)  # again and again: it refuses while it writes its first append-only file
            self._process.send_signal(signal.SIGCONT)  # one that is frozen hears nothing else
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(AGAIN)
        self._process.kill()
        self._process.wait(PATIENCE)
        self._process = None

    def kill(self) -> None:
        """End it as a power cut would: it saves nothing and says nothing."""
        assert self._process is not None, "the server is not running"
        self._process.kill()
        self._process.wait(PATIENCE)
        self._process = None

    def restart(self) -> None:
        """Stop it, and start it on the same port and in the same folder."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """From now on it keeps its connections and does nothing, until `thaw`."""
        os.kill(self.pid, signal.SIGSTOP)
        # WNOWAIT: its end, should it end instead, is left for `stop` to find.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def _log(self) -> Path:
        return self.folder / "redis.log"

    @property
    def _file(self) -> Path:
        return self.folder / "redis.conf"

    def _choose_ports(self) -> None:
        self._port = free_port()
        self._tls_port = free_port(self._port) if self._tls else 0

    def _write_settings(self) -> None:
        self._file.write_text("".join(f"{line}\n" for line in self._lines()), encoding="utf-8")

    def _command(self) -> Sequence[str]:
        return [*self._under, "redis-server", str(self._file)]

    def _launch(self) -> None:
        self.socket_path.unlink(missing_ok=True)  # left by one that was killed
        self._write_settings()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, and they stop it
            )
        give_up = time.monotonic() + self._patience
        while not self._answers():
            code = self._process.poll()
            if code is not None:
                raise NotStarted(f"redis-server ended at once, with exit code {code}:\n{self.log_text()[-TAIL:]}")
            if time.monotonic() > give_up:
                raise NotStarted(f"redis-server did not answer in {self._patience:.0f} seconds:\n{self.log_text()[-TAIL:]}")
            time.sleep(0.005)

    def _lines(self) -> list[str]:
        place: dict[str, Setting] = {"bind": HOST, "port": self._port, "unixsocket": self.socket_path, "dir": self.folder}
        if self._tls:
            place["tls-port"] = self._tls_port
        return [
            f"{name} {value}" if str(value) else f'{name} ""'
            for name, values in (place | self._settings).items()
            for value in ([values] if isinstance(values, str | int | Path) else values)
        ]

    def _answers(self) -> bool:
        """Whether it takes commands. An error is an answer too: a stranger may not ping a server with a password."""
        with suppress(OSError), socket.socket(socket.AF_UNIX) as line:
            line.settimeout(1.0)
            line.connect(str(self.socket_path))
            line.sendall(b"PING\r\n")
            return line.recv(100).startswith((b"+PONG", b"-NOAUTH", b"-NOPERM", b"-MASTERDOWN"))
        return False


def free_port(other: int = 0) -> int:
    """A port that nobody listens on, and that is not the other one."""
    for _ in range(1_000):
        port = random.SystemRandom().choice(PORTS)  # not the seed of the tests: two runs would meet at the same ports
        with suppress(OSError), socket.socket() as taken:
            taken.bind((HOST, port))
            if port != other:
                return port
    raise NotStarted(f"no port from {PORTS[0]} to {PORTS[-1]} is free")
