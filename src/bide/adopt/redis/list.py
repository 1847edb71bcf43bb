"""A plain list, such as the ready list of a topic: all in it is due now."""

from collections.abc import Sequence
from typing import Literal

from bide.adopt.redis.jobs import Jobs, message_of
from bide.adopt.redis.server import Server
from bide.adopt.redis.taking import Entry, Taken, Waiting, in_groups, new_take
from bide.adopt.shaping import Shape
from bide.engines.base import NewMessage


class ReadyList(Waiting):
    """`end`: where old consumers take. Entries are taken there first, so that their order is kept."""

    kind: str = "redis-list"

    def __init__(
        self, server: Server, key: str, shape: Shape, *, end: Literal["left", "right"] = "left", jobs: Jobs | None = None
    ) -> None:
        super().__init__(server, key)
        self._shape = shape
        self._end = end
        self._jobs = jobs

    def count(self) -> int | None:
        return int(self._server.call("LLEN", self._key))

    def page(self, first: int, limit: int) -> list[Entry]:
        found = self._entries(first, limit)
        return found if self._jobs is None else self._jobs.read(found, lambda: self._entries(first, limit))

    def message(self, entry: Entry) -> NewMessage:
        return self._shape.message(message_of(entry, self._jobs), None)

    def move(self, entries: Sequence[Entry]) -> list[Taken]:
        ids = [b"" if self._jobs is None else self._jobs.id(each) for each in entries]
        pairs = [part for each, id in zip(entries, ids, strict=True) for part in (each.content, id)]
        args = [new_take(), int(self._jobs is not None), 1 if self._end == "left" else -1, *pairs]
        taken = self._server.run("take_list", self._keys(), args)
        return [Taken(name.decode(), Entry(entries[place].content, None, job)) for place, name, job in in_groups(taken, 3)]

    def move_back(self, names: Sequence[str]) -> None:
        push = "LPUSH" if self._end == "left" else "RPUSH"
        self._server.run("back_list", self._keys(), [push, *reversed(names)])

    def _entries(self, first: int, limit: int) -> list[Entry]:
        if self._end == "left":
            elements = self._server.call("LRANGE", self._key, first, first + limit - 1)
        else:
            elements = self._server.call("LRANGE", self._key, -(first + limit), -(first + 1))[::-1]
        return [Entry(each) for each in elements]

    def _keys(self) -> list[str]:
        return [self._key, self._beside, self._key if self._jobs is None else self._jobs.key]
