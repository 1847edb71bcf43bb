"""Starts and stops a PgBouncer before a PostgreSQL server, with a port and a folder of its own."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from tests.servers.postgres import USER, PostgresServer
from tests.servers.postgres_data import as_user, hand_over
from tests.servers.programs import needs_program
from tests.servers.server import HOST, PATIENCE, Server

Setting = str | int


class PgBouncer(Server):
    """A pool before all databases of a server, for `with`: unless told otherwise, it lends connections for a transaction.

    Settings are those of pgbouncer.ini: `pool_mode="session"`. It asks clients for the server's password if that has one.
    """

    kind = "pgbouncer"

    def __init__(self, server: PostgresServer, *, patience: float = PATIENCE, **settings: Setting) -> None:
        super().__init__(patience)
        self.server = server
        self._settings: dict[str, Setting] = {"pool_mode": "transaction", "max_client_conn": 1_000, **settings}

    @property
    def url(self) -> str:
        """Of the database `postgres`, with the password if there is one."""
        return self.url_of(USER)

    def url_of(self, database: str) -> str:
        return self.server.url_of(database).replace(f"@{HOST}:{self.server.port}/", f"@{HOST}:{self.port}/")

    def _begin(self) -> None:
        hand_over(self.folder)
        self.start()

    def _launch(self) -> None:
        (self.folder / f".s.PGSQL.{self.port}").unlink(missing_ok=True)  # left by one that was killed
        super()._launch()

    def _command(self) -> Sequence[str | Path]:
        return [needs_program("pgbouncer"), self.folder / "pgbouncer.ini"]

    def _run_as(self) -> Mapping[str, Any]:
        return as_user()

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
