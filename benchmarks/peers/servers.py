"""The servers that the peers need, each with a port and a folder of its own: Redis, beanstalkd, PostgreSQL."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from benchmarks.peers.install import NotInstalled
from tests.servers.redis import RedisServer
from tests.servers.server import HOST, free_port, new_folder

PATIENCE = 30.0  # seconds for a server to start, or to stop
INSTALL = Path(__file__).resolve().parents[2] / "tools" / "servers.sh"
POSTGRES = "/usr/lib/postgresql"
USER = "postgres"  # root may not run the server
PROGRAMS = {
    "redis": {"redis-server": "redis-server"},
    "beanstalkd": {"beanstalkd": "beanstalkd"},
    "postgresql": dict.fromkeys(("initdb", "postgres", "psql"), "postgresql"),
}
"""What each server needs, and the packages of Debian that have it."""


def program(name: str, package: str) -> str:
    """The path of a server's program, installed if it takes no question to do so."""
    for _ in range(2):
        versions = sorted(Path(POSTGRES).glob("*/bin"), key=lambda folder: int(folder.parent.name), reverse=True)
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", *map(str, versions)])
        if found := shutil.which(name, path=path):
            return found
        subprocess.run(["sh", str(INSTALL), package], check=False, stdout=subprocess.DEVNULL)
    raise NotInstalled(f"{name} is not here; on Debian: apt install {package}")


def need(server: str) -> None:
    """Raises NotInstalled if that server is not here and can't be had."""
    for name, package in PROGRAMS[server].items():
        program(name, package)


class Stage:
    """The servers of one measurement at a time, started when they are first asked for; for `with`."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._redis: RedisServer | None = None
        self._others: dict[str, _Beanstalkd | _Postgres] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def redis(self) -> RedisServer:
        if self._redis is None:
            self._redis = self._stack.enter_context(RedisServer())
        return self._redis

    def empty(self, server: str) -> str:
        """The URL of that server, which has nothing in it."""
        if server == "redis":
            with self.redis.client() as client:
                client.flushall()
                client.script_flush()
                client.memory_purge()
            return self.redis.url
        if server not in self._others:
            made: _Beanstalkd | _Postgres = _Beanstalkd() if server == "beanstalkd" else _Postgres()
            self._stack.enter_context(made)
            self._others[server] = made
        return self._others[server].empty()

    def size(self, server: str) -> int:
        """Bytes of Redis's memory, or of the tables and indexes of the PostgreSQL database that was emptied last."""
        postgres = self._others.get(server)
        if isinstance(postgres, _Postgres):
            return postgres.size()
        with self.redis.client() as client:
            return int(client.info("memory")["used_memory"])


class _Process:
    """A server in a folder of its own."""

    user: str | None = None

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = new_folder("bide-peers-")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, command: Sequence[str]) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, user=self.user
            )
        give_up = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError), socket.create_connection((HOST, self.port), timeout=1.0):
                return
            if self._process.poll() is not None or time.monotonic() > give_up:
                said = (self.folder / "log").read_text(encoding="utf-8", errors="replace")[-1_000:]
                raise NotInstalled(f"{Path(command[0]).name} did not start: {said}")
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


class _Beanstalkd(_Process):
    def empty(self) -> str:
        self.stop()
        self.start([program("beanstalkd", "beanstalkd"), "-l", HOST, "-p", str(self.port)])
        return f"{HOST}:{self.port}"


class _Postgres(_Process):
    """A fresh database each time, from a cluster that is made once. Its files are in memory, where there is room.

    So it syncs each commit, as it does by default, and what the disk takes for that is not measured.
    """

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._psql: list[str] = []

    def empty(self) -> str:
        if not self._count:
            self._begin()
        name, self._count = f"peer{self._count}", self._count + 1
        self._query(f"drop database if exists peer{self._count - 2}" if self._count > 1 else "select 1")
        self._query(f"create database {name}")
        return f"postgresql://{USER}@{HOST}:{self.port}/{name}"

    def size(self) -> int:
        return int(self._query(f"select pg_database_size('peer{self._count - 1}')"))

    def _begin(self) -> None:
        data = self.folder / "data"
        initdb, self.user = program("initdb", "postgresql"), USER if os.geteuid() == 0 else None
        if self.user:
            shutil.chown(self.folder, self.user)
        made = [initdb, "--pgdata", str(data), "--auth", "trust", "--username", USER, "--encoding", "UTF8"]
        subprocess.run(made, check=True, capture_output=True, user=self.user)
        place = ["-D", str(data), "-p", str(self.port), "-k", str(self.folder), "-c", f"listen_addresses={HOST}"]
        self.start([program("postgres", "postgresql"), *place])
        address = ["--host", HOST, "--port", str(self.port), "--username", USER, "--dbname", USER]
        self._psql = [program("psql", "postgresql"), *address, "--quiet", "--tuples-only", "--no-align", "--command"]

    def _query(self, text: str) -> str:
        give_up = time.monotonic() + PATIENCE
        while (done := subprocess.run([*self._psql, text], check=False, capture_output=True, text=True)).returncode:
            if time.monotonic() > give_up:  # it listens before it takes queries
                raise NotInstalled(f"PostgreSQL refused: {text}")
            time.sleep(0.05)
        return done.stdout.strip()
