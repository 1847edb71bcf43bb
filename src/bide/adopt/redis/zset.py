"""A sorted set whose scores are due times. Its members are the messages, or name jobs in a hash."""

from collections.abc import Sequence
from typing import Any

from bide.adopt.redis.jobs import Jobs, message_of
from bide.adopt.redis.server import Server
from bide.adopt.redis.taking import Entry, Taken, Waiting, in_groups, new_take
from bide.adopt.shaping import Shape, due_ms
from bide.engines.base import NewMessage


class SortedSet(Waiting):
    kind: str = "redis-zset"

    def __init__(self, server: Server, key: str, shape: Shape, *, unit: str = "auto", jobs: Jobs | None = None) -> None:
        super().__init__(server, key)
        self._shape = shape
        self._unit = unit
        self._jobs = jobs

    def count(self) -> int | None:
        return int(self._server.call("ZCARD", self._key))

    def page(self, first: int, limit: int) -> list[Entry]:
        found = self._entries(first, limit)
        return found if self._jobs is None else self._jobs.read(found, lambda: self._entries(first, limit))

    def message(self, entry: Entry) -> NewMessage:
        return self._shape.message(message_of(entry, self._jobs), due_ms(entry.score or 0.0, self._unit))

    def move(self, entries: Sequence[Entry]) -> list[Taken]:
        ids = [b"" if self._jobs is None else self._jobs.id(each) for each in entries]
        pairs = [part for each, id in zip(entries, ids, strict=True) for part in (each.content, id)]
        taken = self._server.run("take_zset", self._keys(), [new_take(), int(self._jobs is not None), *pairs])
        return [
            Taken(name.decode(), Entry(entries[place].content, float(score), job))
            for place, name, score, job in in_groups(taken, 4)
        ]

    def move_back(self, names: Sequence[str]) -> None:
        self._server.run("back_zset", self._keys(), names)

    def _entries(self, first: int, limit: int) -> list[Entry]:
        flat: list[Any] = self._server.call("ZRANGE", self._key, first, first + limit - 1, "WITHSCORES")
        return [Entry(member, float(score)) for member, score in in_groups(flat, 2)]

    def _keys(self) -> list[str]:
        return [self._key, self._beside, self._key if self._jobs is None else self._jobs.key]
