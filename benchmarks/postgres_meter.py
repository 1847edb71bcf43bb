"""A PostgreSQL server that syncs each commit, as it does by default, and what work with it costs: the rate, and µs of CPU."""

import gc
import itertools
import os
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.redis_costs import Cost, own
from tests.servers.postgres import PostgresServer

TICKS = os.sysconf("SC_CLK_TCK")


class Meter:
    """Measures what happens between start and stop, on a database that is new for each piece of work."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = itertools.count()
        self._used = self._own = self._wall = 0.0

    def fresh(self) -> str:
        """The URL of an empty database. The one before is dropped."""
        self._server.drop_all()
        return self.more()

    def settle_down(self) -> None:
        """Have nothing of the work before still to be written."""
        self._server.ask("checkpoint")

    def more(self) -> str:
        """The URL of one more empty database, beside the one before."""
        return self._server.database(f"bench{next(self._numbers)}")

    def sizes(self, database: str, table: str) -> tuple[int, int]:
        """Bytes of a table, and of its indexes."""
        query = "select pg_table_size(%s::regclass), pg_indexes_size(%s::regclass)"
        [(own_bytes, of_indexes)] = self._server.ask(query, table, table, database=database)
        return own_bytes, of_indexes

    def start(self) -> None:
        self.settle_down()
        gc.collect()
        self._used, self._own, self._wall = self.server(), own(), time.perf_counter()

    def stop(self, count: int) -> Cost:
        wall, mine, servers = time.perf_counter() - self._wall, own() - self._own, self.server() - self._used
        return Cost(count / wall, 1e6 * mine / count, 1e6 * servers / count)

    def server(self) -> float:
        """Seconds of CPU that the server's processes have used, also those that have ended."""
        pid = self._server.pid
        own_ticks = _ticks(pid, ended=True)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        return (own_ticks + sum(_ticks(int(child), ended=False) for child in children)) / TICKS


def _ticks(pid: int, *, ended: bool) -> int:
    """Of a process, and of those that it has started and that have ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(int(field) for field in fields[11 : 15 if ended else 13])
    return 0
