"""A sorted set whose scores are due times. Its members are the messages, or the ids of jobs in a hash."""

from collections.abc import Sequence
from typing import Any

from bide.adopt.redis.server import Server
from bide.adopt.redis.taking import Entry, Taken, Waiting, answers, new_take
from bide.adopt.shaping import Shape, due_ms
from bide.adopt.source import Unreadable
from bide.engines.base import NewMessage

NO_JOB = "has no job in the hash: it was cancelled"


class SortedSet(Waiting):
    """`jobs`: the hash that has the jobs, by member; None if the members are the messages."""

    kind: str = "redis-zset"

    def __init__(self, server: Server, key: str, shape: Shape, *, unit: str = "auto", jobs: str | None = None) -> None:
        super().__init__(server, key)
        self._shape = shape
        self._unit = unit
        self._jobs = jobs

    def count(self) -> int | None:
        return int(self._server.call("ZCARD", self._key))

    def page(self, first: int, limit: int) -> list[Entry]:
        flat: list[Any] = self._server.run("read_zset", self._keys(), [first, first + limit - 1, int(self._jobs is not None)])
        return [Entry(member, float(score), job) for member, score, job in answers(flat, 3)]

    def message(self, entry: Entry) -> NewMessage:
        if self._jobs is not None and not entry.job:
            raise Unreadable(NO_JOB)
        due = due_ms(entry.score or 0.0, self._unit)
        return self._shape.message(entry.content if self._jobs is None else entry.job or b"", due)

    def move(self, entries: Sequence[Entry]) -> list[Taken]:
        args = [new_take(), int(self._jobs is not None), *(each.content for each in entries)]
        taken = answers(self._server.run("take_zset", self._keys(), args), 4)
        return [Taken(name.decode(), Entry(entries[place].content, float(score), job)) for place, name, score, job in taken]

    def move_back(self, names: Sequence[str]) -> None:
        self._server.run("back_zset", self._keys(), names)

    def _keys(self) -> list[str]:
        return [self._key, self._beside, self._jobs or self._key]
