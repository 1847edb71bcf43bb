"""A Redis server that saves nothing, and what work with it costs."""

import os
from typing import Any

from benchmarks import costs
from tests.servers.redis import RedisServer

PENDING = int(os.environ.get("BIDE_BENCH_PENDING", "1_000_000"))
"""Messages that wait while others are worked on, at most. With 10_000_000 the server needs 2 GB."""


class Meter(costs.Meter):
    def __init__(self, server: RedisServer) -> None:
        super().__init__()
        self.url: str = server.url
        self.client = server.client()

    def empty(self) -> None:
        self.client.flushall()
        self.client.memory_purge()

    def fresh(self) -> str:
        self.empty()
        return self.url

    def server(self) -> float:
        used: dict[str, Any] = self.client.info("cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])
