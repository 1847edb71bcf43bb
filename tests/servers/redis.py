"""Starts, freezes, restarts and stops real Redis servers, each with a port and a folder of its own."""

import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.certificates import Certificates
from tests.servers.server import HOST, PATIENCE, Server, free_port

Setting = str | int | Path | Sequence[str]


class RedisServer(Server):
    """A server of its own, for `with`: it runs inside the block, and nothing is left of it afterwards.

    Settings are those of redis.conf, with underscores for dashes: `maxmemory="8mb"`, `save="60 1"`. A list makes one line
    for each of its values: `user=["default off", "ann on >secret ~* &* +@all"]`. Unless told otherwise nothing is saved.

    With `tls` it also listens on `tls_port`, at `tls_url`; with `tls_clients` those who call there must show a certificate
    of the same authority. The plain port stays open for the test itself. `under` is a command that runs it, such as valgrind.
    `patience` is for starts and stops: more for one with much to load and to save.
    """

    kind = "redis"

    def __init__(
        self,
        *,
        tls: Certificates | None = None,
        tls_clients: bool = False,
        under: Sequence[str] = (),
        patience: float = PATIENCE,
        **settings: Setting,
    ) -> None:
        super().__init__(patience)
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
        self._tls_port = 0

    @property
    def socket_path(self) -> Path:
        """Its unix socket."""
        return self.folder / "redis.sock"

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
        self._settings |= {name.replace("_", "-"): value for name, value in settings.items()}
        super().start()

    def freeze(self) -> None:
        """From now on it keeps its connections and does nothing, until `thaw`."""
        os.kill(self.pid, signal.SIGSTOP)
        # WNOWAIT: its end, should it end instead, is left for `stop` to find.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def _file(self) -> Path:
        return self.folder / "redis.conf"

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self._tls_port = free_port(self.port) if self._tls else 0

    def _write_settings(self) -> None:
        self._file.write_text("".join(f"{line}\n" for line in self._lines()), encoding="utf-8")

    def _command(self) -> Sequence[str]:
        return [*self._under, "redis-server", str(self._file)]

    def _launch(self) -> None:
        self.socket_path.unlink(missing_ok=True)  # left by one that was killed
        super()._launch()

    def _lines(self) -> list[str]:
        place: dict[str, Setting] = {"bind": HOST, "port": self.port, "unixsocket": self.socket_path, "dir": self.folder}
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
