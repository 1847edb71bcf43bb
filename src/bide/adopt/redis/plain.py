"""A sorted set or a list that no library has laid out: its entries are the messages, or name jobs in a hash."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from bide.adopt.redis.server import SourceServer
from bide.adopt.redis.take import StoredEntry, TakenEntry, WaitingEntries, in_groups
from bide.adopt.shape import Shape, due_ms, field
from bide.adopt.source import UnreadableEntry, new_take
from bide.engines.base import NewMessage

NO_JOB = "has no job in the hash: it was cancelled, a consumer has it, or it went with another entry"


class Jobs:
    """The hash. `id_field`: entries are JSON, and this field of them is the id; without it, entries are ids."""

    def __init__(self, server: SourceServer, key: str, id_field: str | None = None) -> None:
        self.key: str = key
        self._server = server
        self._id_field = id_field

    def id(self, entry: StoredEntry) -> bytes:
        """The id of an entry. Raises Unreadable."""
        if self._id_field is None:
            return entry.content
        found = field(entry.content, self._id_field)
        try:
            return msgspec.json.decode(found, type=str).encode()  # PHP escapes / and all that is not ASCII
        except (msgspec.DecodeError, UnicodeError):
            return found

    def read(self, entries: list[StoredEntry], again: Callable[[], list[StoredEntry]]) -> list[StoredEntry]:
        """The entries, each with its job if there is one. `again` reads the entries anew.

        An entry whose job is not there may have been taken, and its job with it, since the entries were read: then it is gone.
        """
        ids = [self._known(entry) for entry in entries]
        jobs = self._server.call("HMGET", self.key, *ids) if ids else []
        here = {entry.content for entry in again()} if None in jobs else set()
        return [
            entry._replace(job=job, gone=job is None and entry.content not in here)
            for entry, job in zip(entries, jobs, strict=True)
        ]

    def _known(self, entry: StoredEntry) -> bytes:
        try:
            return self.id(entry)
        except UnreadableEntry:
            return b""


class Plain(WaitingEntries):
    """`where`: set, or the end of a list at which old consumers take."""

    def __init__(
        self, server: SourceServer, key: str, shape: Shape, where: Literal["set", "left", "right"], jobs: Jobs | None
    ) -> None:
        super().__init__(server, key)
        self._shape = shape
        self._where = where
        self._jobs = jobs
        self._keys: list[str] = [key, self._beside, key if jobs is None else jobs.key]

    @abstractmethod
    def entries(self, first: int, limit: int) -> list[StoredEntry]:
        """A page of the entries, without their jobs."""

    @abstractmethod
    def due(self, entry: StoredEntry) -> int | None:
        """When an entry is due, in ms; None if at once. Raises Unreadable."""

    def page(self, first: int, limit: int) -> list[StoredEntry]:
        found = self.entries(first, limit)
        return found if self._jobs is None else self._jobs.read(found, lambda: self.entries(first, limit))

    def message(self, entry: StoredEntry) -> NewMessage:
        content = self._content(entry)
        return self._shape.message(content, self.due(entry), id=entry.content if self._jobs is None else self._jobs.id(entry))

    def job(self, entry: StoredEntry) -> bytes | None:
        return None if self._jobs is None else self._jobs.id(entry)

    def move(self, entries: Sequence[StoredEntry]) -> list[TakenEntry]:
        ids = [b"" if self._jobs is None else self._jobs.id(each) for each in entries]
        pairs = [part for each, id in zip(entries, ids, strict=True) for part in (each.content, id)]
        args = [new_take(self.destination), self._where, int(self._jobs is not None), *pairs]
        return [
            TakenEntry(name.decode(), StoredEntry(entries[place].content, float(score) if score else None, job))
            for place, name, score, job in in_groups(self._server.run("take_plain", self._keys, args), 4)
        ]

    def move_back(self, names: Sequence[str]) -> None:
        in_turn = names if self._where == "set" else names[::-1]  # the first of a list is pushed last
        self._server.run("back_plain", self._keys, [self._where, *in_turn])

    def _content(self, entry: StoredEntry) -> bytes:
        """What is the message. Raises Unreadable."""
        if self._jobs is None:
            return entry.content
        self._jobs.id(entry)
        if not entry.job:
            raise UnreadableEntry(NO_JOB)
        return entry.job


class ReadyList(Plain):
    """`end`: where old consumers take. Entries are taken there first, so that their order is kept."""

    kind: str = "redis-list"
    repeats: bool = True

    def __init__(
        self, server: SourceServer, key: str, shape: Shape, *, end: Literal["left", "right"] = "left", jobs: Jobs | None = None
    ) -> None:
        super().__init__(server, key, shape, end, jobs)

    def count(self) -> int | None:
        return int(self._server.call("LLEN", self._key))

    def entries(self, first: int, limit: int) -> list[StoredEntry]:
        if self._where == "left":
            elements = self._server.call("LRANGE", self._key, first, first + limit - 1)
        else:
            elements = self._server.call("LRANGE", self._key, -(first + limit), -(first + 1))[::-1]
        return [StoredEntry(each) for each in elements]

    def due(self, entry: StoredEntry) -> int | None:
        return None


class SortedSet(Plain):
    kind: str = "redis-zset"

    def __init__(self, server: SourceServer, key: str, shape: Shape, *, unit: str = "auto", jobs: Jobs | None = None) -> None:
        super().__init__(server, key, shape, "set", jobs)
        self._unit = unit

    def count(self) -> int | None:
        return int(self._server.call("ZCARD", self._key))

    def entries(self, first: int, limit: int) -> list[StoredEntry]:
        flat: list[Any] = self._server.call("ZRANGE", self._key, first, first + limit - 1, "WITHSCORES")
        return [StoredEntry(member, float(score)) for member, score in in_groups(flat, 2)]

    def due(self, entry: StoredEntry) -> int | None:
        return due_ms(entry.score or 0.0, self._unit)
