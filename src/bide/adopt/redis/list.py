"""A list, such as the ready list of a topic: all in it is due now."""

from typing import Literal

from bide.adopt.redis.jobs import Jobs
from bide.adopt.redis.plain import Plain
from bide.adopt.redis.server import Server
from bide.adopt.redis.taking import Entry
from bide.adopt.shaping import Shape


class ReadyList(Plain):
    """`end`: where old consumers take. Entries are taken there first, so that their order is kept."""

    kind: str = "redis-list"
    repeats: bool = True

    def __init__(
        self, server: Server, key: str, shape: Shape, *, end: Literal["left", "right"] = "left", jobs: Jobs | None = None
    ) -> None:
        super().__init__(server, key, shape, end, jobs)

    def count(self) -> int | None:
        return int(self._server.call("LLEN", self._key))

    def entries(self, first: int, limit: int) -> list[Entry]:
        if self._where == "left":
            elements = self._server.call("LRANGE", self._key, first, first + limit - 1)
        else:
            elements = self._server.call("LRANGE", self._key, -(first + limit), -(first + 1))[::-1]
        return [Entry(each) for each in elements]

    def due(self, entry: Entry) -> int | None:
        return None
