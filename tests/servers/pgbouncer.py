"""Starts and stops a PgBouncer before a PostgreSQL server, with a port and a folder of its own."""

import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import psycopg

from tests.servers.postgres import USER, PostgresServer
from tests.servers.postgres_data import as_user, hand_over
from tests.servers.programs import needs_program
from tests.servers.redis import HOST, PATIENCE, TAIL, TRIES, NotStarted, free_port

Setting = str | int


class PgBouncer:
    """A pool before all databases of a server, for `with`: unless told otherwise, it lends connections for a transaction.

    Settings are those of pgbouncer.ini: `pool_mode="session"`. It asks clients for the server's password if that has one.
    """

    def __init__(self, server: PostgresServer, *, patience: float = PATIENCE, **settings: Setting) -> None:
        self.server = server
        self._settings: dict[str, Setting] = {"pool_mode": "transaction", "max_client_conn": 1_000, **settings}
        self._patience = patience
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="bide-pgbouncer-"))
        hand_over(self._folder)
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
        """Where it works: its settings, its log, its socket. Removed at the end of the block."""
        assert self._folder is not None, "PgBouncer is started by `with`"
        return self._folder

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int:
        assert self._process is not None, "PgBouncer is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def url(self) -> str:
        """Of the database `postgres`, with the password if there is one."""
        return self.url_of(USER)

    def url_of(self, database: str) -> str:
        return self.server.url_of(database).replace(f"@{HOST}:{self.server.port}/", f"@{HOST}:{self.port}/")

    def log_text(self) -> str:
        """All it has said, also before a restart."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start it, on the port that it had before if it had one, and wait until it answers."""
        assert not self.running, "PgBouncer runs already"
        new = not self._port
        for left in reversed(range(TRIES)):
            if new:
                self._port = free_port()
            said = len(self.log_text())
            try:
                self._launch()
                return
            except NotStarted:
                self.stop()
                if not new or not left or "Address already in use" not in self.log_text()[said:]:
                    raise

    def stop(self) -> None:
        """End it at once. Clients are disconnected. No harm if it has ended."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        self._process.send_signal(signal.SIGCONT)  # a frozen one hears nothing
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(self._patience)
        self.kill()

    def kill(self) -> None:
        """End it as a crash would."""
        assert self._process is not None, "PgBouncer is not running"
        self._process.kill()
        self._process.wait(self._patience)
        self._process = None

    def restart(self) -> None:
        """Stop it, and start it on the same port."""
        self.stop()
        self.start()

    @property
    def _log(self) -> Path:
        return self.folder / "pgbouncer.log"

    def _launch(self) -> None:
        (self.folder / f".s.PGSQL.{self.port}").unlink(missing_ok=True)  # left by one that was killed
        self._write_settings()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [needs_program("pgbouncer"), str(self.folder / "pgbouncer.ini")],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, and they stop it
                **as_user(),
            )
        give_up = time.monotonic() + self._patience
        while not self._answers():
            code = self._process.poll()
            if code is not None:
                raise NotStarted(f"pgbouncer ended at once, with exit code {code}:\n{self.log_text()[-TAIL:]}")
            if time.monotonic() > give_up:
                raise NotStarted(f"pgbouncer did not answer in {self._patience:.0f} seconds:\n{self.log_text()[-TAIL:]}")
            time.sleep(0.005)

    def _write_settings(self) -> None:
        secret = self.server.password
        settings: dict[str, Setting] = {
            "listen_addr": HOST,
            "listen_port": self.port,
            "unix_socket_dir": str(self.folder),
            "auth_type": "trust" if secret is None else "scram-sha-256",
            "auth_file": str(self.folder / "users.txt"),
            "admin_users": USER,
        }
        lines = [f"{name} = {value}" for name, value in (settings | self._settings).items()]
        databases = ["[databases]", f"* = host={HOST} port={self.server.port}", "[pgbouncer]"]
        users = [" ".join('"{}"'.format(word.replace('"', '""')) for word in (USER, secret or ""))]
        for name, content in {"pgbouncer.ini": [*databases, *lines], "users.txt": users}.items():
            file = self.folder / name
            file.write_text("".join(f"{line}\n" for line in content), encoding="utf-8")
            hand_over(file)

    def _answers(self) -> bool:
        """Whether it takes clients, by its own database for its admin, which needs no server."""
        with (
            suppress(psycopg.OperationalError),
            psycopg.connect(
                host=str(self.folder),
                port=self.port,
                user=USER,
                password=self.server.password,
                dbname="pgbouncer",
                autocommit=True,
                connect_timeout=2,
            ),
        ):
            return True
        return False
