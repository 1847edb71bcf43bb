"""Starts a PostgreSQL server that follows another one, and promotes it."""

import time
from collections.abc import Callable
from typing import Any

from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.servers.postgres import USER, PostgresServer, Setting
from tests.servers.postgres_data import program, run
from tests.servers.server import HOST, PATIENCE, NotStarted

REPLAYED = "SELECT count(*) FROM pg_stat_replication WHERE application_name = %s AND replay_lsn >= %s::pg_lsn"
CONNECTED = "SELECT count(*) FROM pg_stat_replication WHERE application_name = %s"
SYNCHRONOUS = "SELECT count(*) FROM pg_stat_replication WHERE application_name = %s AND sync_state = 'sync'"


class PostgresStandby(PostgresServer):
    """A copy of a running server that receives what is committed there, and takes queries that only read, for `with`.

    It has the primary's data, password and settings; those given here come on top. The primary knows it by its `name`.

        with PostgresServer() as primary, PostgresStandby(primary) as standby:
            standby.make_synchronous()  # from now on a commit waits for the standby
            primary.kill()
            standby.promote()
    """

    def __init__(
        self, primary: PostgresServer, name: str = "standby", *, patience: float = PATIENCE, **settings: Setting
    ) -> None:
        super().__init__(password=primary.password, patience=patience)
        self.settings = primary.settings | settings
        self.primary = primary
        self.name = name

    def make_synchronous(self) -> None:
        """From now on a commit on the primary waits until this standby has it, also while the standby is not there."""
        with self.primary.client() as client:
            client.execute(sql.SQL("ALTER SYSTEM SET synchronous_standby_names = {}").format(sql.Literal(f'"{self.name}"')))
            client.execute("SELECT pg_reload_conf()")
        self._until(lambda: self._counted(SYNCHRONOUS, self.name), "synchronous")

    def wait_until_caught_up(self) -> None:
        """Wait until queries find here what is committed on the primary now."""
        ((place,),) = self.primary.ask("SELECT pg_current_wal_lsn()::text")
        self._until(lambda: self._counted(REPLAYED, self.name, place), "up to date")

    def leave(self) -> None:
        """From now on it receives nothing from its primary, as if the network between them were cut."""
        with self.client() as client:
            client.execute("ALTER SYSTEM SET primary_conninfo TO ''")
            client.execute("SELECT pg_reload_conf()")
        deadline = time.monotonic() + self._patience
        while self._counted(CONNECTED, self.name):
            if time.monotonic() > deadline:
                raise NotStarted(f"the standby {self.name} still receives from its primary")

    def promote(self) -> None:
        """Make it a primary, and wait until it takes writes. Nothing is told to the primary that it had, if that still runs."""
        assert self.ask("SELECT pg_promote(true, %s)", round(self._patience)) == [(True,)], "the standby was not promoted"

    def _make_data(self) -> None:
        place = ["--host", str(self.primary.folder), "--port", str(self.primary.port), "--username", USER]
        way = ["--checkpoint", "fast", "--no-sync", "--pgdata", str(self.data)]
        run(program("pg_basebackup"), *place, *way, cwd=self.folder)
        self.write("standby.signal", [])

    def _set_password(self, password: str) -> None:
        pass  # it has the primary's, and takes no writes

    def _place(self) -> dict[str, Setting]:
        secret: dict[str, Any] = {} if self.password is None else {"password": self.password}
        primary = make_conninfo(host=HOST, port=self.primary.port, user=USER, application_name=self.name, **secret)
        return {**super()._place(), "primary_conninfo": primary, "wal_retrieve_retry_interval": "100ms"}

    def _counted(self, query: str, *values: object) -> bool:
        return self.primary.ask(query, *values) == [(1,)]

    def _until(self, true: Callable[[], bool], state: str) -> None:
        give_up = time.monotonic() + self._patience
        while not true():
            if time.monotonic() > give_up:
                raise NotStarted(f"the standby was not {state} in {self._patience:.0f} seconds:\n{self.log_text()}")
            time.sleep(0.01)
