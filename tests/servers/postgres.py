"""Starts, freezes, kills and stops real PostgreSQL servers, each with a port and a folder of its own."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql

from tests.servers.postgres_data import as_user, copy_of_data, forget_memory, hand_over, program
from tests.servers.processes import children, kill_all, stop_all, wake_all
from tests.servers.server import HOST, PATIENCE, Server

USER = "postgres"
READY = ("ready", "standby")
DATABASES = "SELECT datname FROM pg_database WHERE NOT datistemplate AND datname <> 'postgres'"
ROLES = "SELECT rolname FROM pg_roles WHERE oid >= 16384"  # a smaller number is one of the server's own
LOGINS = ("local all all", f"host all all {HOST}/32", "local replication all", f"host replication all {HOST}/32")

EMPTY = """
do $$
declare found record;
begin
    for found in
        select format('%I.%I', schemaname, tablename) as name from pg_tables
        where schemaname !~ '^pg_|^information_schema$' and tablename <> 'layout'
    loop
        if pg_relation_size(found.name) > 1000000 then
            execute 'truncate ' || found.name;
        else
            execute 'delete from ' || found.name;
        end if;
    end loop;
    perform setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) from pg_sequences;
end $$"""
SCHEMAS = "SELECT count(*) FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$'"
MOST = 8  # schemas of a database that is used again: more take longer to empty than a new one to make

Setting = str | int | float | bool | Path


class PostgresServer(Server):
    """A server of its own, for `with`: it runs inside the block, and nothing is left of it afterwards.

    Settings are those of postgresql.conf: `work_mem="1MB"`. Everybody may log in as `postgres`, or with `password` only those
    who know it, by SCRAM; at the socket the test itself may always.

    A commit is written to the kernel, which keeps it when the server is killed. With `fsync` it is synced to the disk, too.
    """

    kind = "postgres"

    def __init__(
        self, *, fsync: bool = False, password: str | None = None, patience: float = PATIENCE, **settings: Setting
    ) -> None:
        super().__init__(patience)
        self.password = password
        self.settings: dict[str, Setting] = {"fsync": fsync, "max_connections": 200, **settings}

    def __exit__(self, *_: object) -> None:
        self._give_up()
        forget_memory(self.data)
        super().__exit__()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def url(self) -> str:
        """Of the database `postgres`, with the password if there is one."""
        return self.url_of(USER)

    def url_of(self, database: str) -> str:
        secret = "" if self.password is None else f":{quote(self.password, safe='')}"
        return f"postgres://{USER}{secret}@{HOST}:{self.port}/{database}"

    def client(self, database: str = USER, **options: Any) -> psycopg.Connection[Any]:
        """A connection by the socket that commits each statement. No password is asked for there."""
        return psycopg.connect(
            host=str(self.folder), port=self.port, user=USER, dbname=database, **{"autocommit": True, **options}
        )

    def ask(self, query: str, *values: object, database: str = USER) -> list[tuple[Any, ...]]:
        """The rows of a query on a connection of its own; an empty list if it gives none."""
        with self.client(database) as client:
            cursor = client.execute(query.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def database(self, name: str) -> str:
        """Create an empty database. Gives its URL."""
        with self.client() as client:
            client.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        return self.url_of(name)

    def emptied(self, name: str) -> str:
        """The database of that name, with the tables that tests before have made, and nothing in them. Gives its URL.

        It is made anew if it is missing, or if somebody uses it still.
        """
        with suppress(psycopg.OperationalError), self.client(name, options="-c lock_timeout=2s") as client:
            [(schemas,)] = client.execute(SCHEMAS).fetchall()
            if schemas <= MOST:
                client.execute(EMPTY.encode())
                return self.url_of(name)
        self.drop_all()
        return self.database(name)

    def drop_all(self) -> None:
        """Delete all databases and roles that it did not begin with, whoever is still connected to them."""
        with self.client() as client:
            for (name,) in client.execute(DATABASES).fetchall():
                client.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
            for (name,) in client.execute(ROLES).fetchall():
                client.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))

    def start(self, **settings: Setting) -> None:
        """Start it, on the port that it had before if it had one, and wait until it answers. More settings are kept."""
        self.settings |= settings
        super().start()

    def stop(self) -> None:
        """Shut it down: clients are disconnected, and all is saved. No harm if it has ended."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it and all its processes, so that none does anything more: no farewell to clients, no checkpoint."""
        assert self._process is not None, "the server is not running"
        kill_all([self.pid, *self._freeze()], self._process, self._patience)
        self._process = None

    def freeze(self) -> None:
        """From now on all its processes keep their connections and do nothing, until `thaw`."""
        self._freeze()

    def thaw(self) -> None:
        wake_all([*children(self.pid), self.pid])

    def _begin(self) -> None:
        hand_over(self.folder)
        self._make_data()
        self.start()
        if self.password is not None:
            self._set_password(self.password)

    def _give_up(self) -> None:
        self._end(signal.SIGQUIT)  # its data goes, so it need not be put in order

    def _make_data(self) -> None:
        copy_of_data(self.data)

    def _place(self) -> dict[str, Setting]:
        return {
            "listen_addresses": HOST,
            "port": self.port,
            "unix_socket_directories": self.folder,
            # In the folder of the data, so that nothing is left of it in /dev/shm when it is killed.
            "dynamic_shared_memory_type": "mmap",
        }

    def _logins(self) -> Sequence[str]:
        """The lines of pg_hba.conf."""
        method = "trust" if self.password is None else "scram-sha-256"
        return [f"{kind} {method if kind.startswith('host') else 'trust'}" for kind in LOGINS]

    def _freeze(self) -> list[int]:
        """Stop the postmaster, which then starts nothing more, and the processes that it has started. Gives these."""
        stop_all([self.pid], self._patience)
        started = children(self.pid)
        stop_all(started, self._patience)
        return started

    def _set_password(self, password: str) -> None:
        with self.client() as client:
            client.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(USER), sql.Literal(password)))

    def write(self, name: str, lines: Sequence[str]) -> None:
        """Write a file into the folder of its data."""
        file = self.data / name
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        hand_over(file)

    def _write_settings(self) -> None:
        settings = self._place() | self.settings
        self.write("postgresql.conf", [f"{name} = {_quoted(value)}" for name, value in settings.items()])
        self.write("pg_hba.conf", self._logins())

    def _command(self) -> Sequence[str | Path]:
        return [program("postgres"), "-D", self.data]

    def _run_as(self) -> Mapping[str, Any]:
        return as_user()

    def _answers(self) -> bool:
        """Whether it takes queries. It says so in the last line of this file, of which the first is its process number."""
        with suppress(FileNotFoundError):
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
            return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].startswith(READY)
        return False

    def _end(self, way: signal.Signals) -> None:
        if self._process is None:
            return
        if self.running:
            self.thaw()  # frozen processes hear nothing
            self._process.send_signal(way)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(self._patience)
        if self.running:
            self.kill()
        self._process = None


def _quoted(value: Setting) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "'{}'".format(str(value).replace("\\", "\\\\").replace("'", "''"))
