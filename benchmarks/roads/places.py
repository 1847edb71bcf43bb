"""The server of a way: started for one round, and asked what it has used."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.roads.ways import Server
from tests.servers.postgres import PostgresServer
from tests.servers.processes import descendants
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Place:
    """Without a server, and for ways that need none."""

    url: str = ""

    def bytes(self) -> float:
        """What is stored, in memory or on the disk."""
        return 0.0

    def cpu(self) -> float:
        """Seconds that the server has worked."""
        return 0.0

    def commands(self) -> float | None:
        """How many the server has processed, with those inside scripts, if it counts them."""
        return None


class OnRedis(Place):
    def __init__(self, server: RedisServer) -> None:
        self.url = server.url
        self._pid = server.pid
        self._client = server.client()

    def bytes(self) -> float:
        self._client.memory_purge()
        return float(self._client.info("memory")["used_memory"])

    def cpu(self) -> float:
        return cpu_of([self._pid])

    def commands(self) -> float | None:
        return float(self._client.info("stats")["total_commands_processed"])


class OnDisk(Place):
    """A server that keeps messages in a folder."""

    def __init__(self, url: str, folder: Path, pid: int) -> None:
        self.url = url
        self._folder = folder
        self._pid = pid

    def bytes(self) -> float:
        return float(sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file()))

    def cpu(self) -> float:
        return cpu_of([self._pid, *descendants(self._pid)])


class OnFile(Place):
    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path

    def bytes(self) -> float:
        """Of the file itself, with what was in its log."""
        with closing(sqlite3.connect(self._path)) as database:
            database.execute("pragma wal_checkpoint(truncate)")
        return float(self._path.stat().st_size)


class OnPostgres(OnDisk):
    def __init__(self, server: PostgresServer) -> None:
        super().__init__(server.url_of("roads"), server.data, server.pid)
        self._server = server

    def bytes(self) -> float:
        """Of tables and indexes, and not of the log that is written ahead."""
        [[size]] = self._server.ask("select pg_database_size('roads')")
        return float(size)


@contextmanager
def place(kind: Server) -> Iterator[Place]:
    if kind == "redis":
        with RedisServer() as redis:
            yield OnRedis(redis)
    elif kind == "postgres":
        with PostgresServer(fsync=True) as postgres:
            postgres.database("roads")
            yield OnPostgres(postgres)
    elif kind == "rabbitmq":
        with RabbitServer() as rabbit:
            yield OnDisk(rabbit.url, rabbit.folder, rabbit.pid)
    elif kind == "file":
        with TemporaryDirectory() as folder:
            yield OnFile(Path(folder) / "roads.db")
    else:
        yield Place()


def cpu_of(pids: list[int]) -> float:
    """Seconds that these processes have worked; one that has ended counts nothing."""
    return sum(sum(map(int, fields[11:13])) for fields in _stats(pids)) / TICKS


def memory_of(pids: list[int]) -> float:
    """Bytes of memory in use."""
    return float(sum(int(fields[21]) for fields in _stats(pids)) * PAGE)


def in_session(session: int) -> list[int]:
    """The processes that a program has started, and itself."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids for fields in _stats([pid]) if int(fields[3]) == session]


def _stats(pids: list[int]) -> Iterator[list[str]]:
    for pid in pids:
        try:
            yield Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
