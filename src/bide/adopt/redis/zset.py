"""A sorted set whose scores are due times."""

from typing import Any

from bide.adopt.redis.jobs import Jobs
from bide.adopt.redis.plain import Plain
from bide.adopt.redis.server import Server
from bide.adopt.redis.taking import Entry, in_groups
from bide.adopt.shaping import Shape, due_ms


class SortedSet(Plain):
    kind: str = "redis-zset"

    def __init__(self, server: Server, key: str, shape: Shape, *, unit: str = "auto", jobs: Jobs | None = None) -> None:
        super().__init__(server, key, shape, "set", jobs)
        self._unit = unit

    def count(self) -> int | None:
        return int(self._server.call("ZCARD", self._key))

    def entries(self, first: int, limit: int) -> list[Entry]:
        flat: list[Any] = self._server.call("ZRANGE", self._key, first, first + limit - 1, "WITHSCORES")
        return [Entry(member, float(score)) for member, score in in_groups(flat, 2)]

    def due(self, entry: Entry) -> int | None:
        return due_ms(entry.score or 0.0, self._unit)
