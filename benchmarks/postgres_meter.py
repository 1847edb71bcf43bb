"""A PostgreSQL server that syncs each commit, as it does by default, and what work with it costs: the rate, and µs of CPU."""

import itertools
import os
from contextlib import suppress
from pathlib import Path

from benchmarks import costs
from tests.servers.postgres import PostgresServer

TICKS = os.sysconf("SC_CLK_TCK")


class Meter(costs.Meter):
    """Each piece of work has a new database."""

    def __init__(self, server: PostgresServer) -> None:
        super().__init__()
        self._postgres = server
        self._numbers = itertools.count()

    def fresh(self) -> str:
        """The URL of an empty database. The one before is dropped."""
        self._postgres.drop_all()
        return self.more()

    def settle_down(self) -> None:
        """Have nothing of the work before still to be written."""
        self._postgres.ask("checkpoint")

    def more(self) -> str:
        """The URL of one more empty database, beside the one before."""
        return self._postgres.database(f"bench{next(self._numbers)}")

    def sizes(self, database: str, table: str) -> tuple[int, int]:
        """Bytes of a table, and of its indexes."""
        query = "select pg_table_size(%s::regclass), pg_indexes_size(%s::regclass)"
        [(own_bytes, of_indexes)] = self._postgres.ask(query, table, table, database=database)
        return own_bytes, of_indexes

    def start(self) -> None:
        self.settle_down()
        super().start()

    def server(self) -> float:
        """Seconds of CPU that the server's processes have used, also those that have ended."""
        pid = self._postgres.pid
        own_ticks = _ticks(pid, ended=True)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        return (own_ticks + sum(_ticks(int(child), ended=False) for child in children)) / TICKS


def _ticks(pid: int, *, ended: bool) -> int:
    """Of a process, and of those that it has started and that have ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(int(field) for field in fields[11 : 15 if ended else 13])
    return 0
