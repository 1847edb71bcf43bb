"""A sorted set or a list that no library has laid out: its entries are the messages, or name jobs in a hash."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

from bide.adopt.redis.jobs import Jobs
from bide.adopt.redis.server import Server
from bide.adopt.redis.taking import Entry, Taken, Waiting, in_groups
from bide.adopt.shaping import Shape
from bide.adopt.source import Unreadable, new_take
from bide.engines.base import NewMessage

NO_JOB = "has no job in the hash: it was cancelled, a consumer has it, or it went with another entry"


class Plain(Waiting):
    """`where`: set, or the end of a list at which old consumers take."""

    def __init__(
        self, server: Server, key: str, shape: Shape, where: Literal["set", "left", "right"], jobs: Jobs | None
    ) -> None:
        super().__init__(server, key)
        self._shape = shape
        self._where = where
        self._jobs = jobs
        self._keys: list[str] = [key, self._beside, key if jobs is None else jobs.key]

    @abstractmethod
    def entries(self, first: int, limit: int) -> list[Entry]:
        """A page of the entries, without their jobs."""

    @abstractmethod
    def due(self, entry: Entry) -> int | None:
        """When an entry is due, in ms; None if at once. Raises Unreadable."""

    def page(self, first: int, limit: int) -> list[Entry]:
        found = self.entries(first, limit)
        return found if self._jobs is None else self._jobs.read(found, lambda: self.entries(first, limit))

    def message(self, entry: Entry) -> NewMessage:
        content = self._content(entry)
        return self._shape.message(content, self.due(entry), id=entry.content if self._jobs is None else self._jobs.id(entry))

    def job(self, entry: Entry) -> bytes | None:
        return None if self._jobs is None else self._jobs.id(entry)

    def move(self, entries: Sequence[Entry]) -> list[Taken]:
        ids = [b"" if self._jobs is None else self._jobs.id(each) for each in entries]
        pairs = [part for each, id in zip(entries, ids, strict=True) for part in (each.content, id)]
        args = [new_take(self.destination), self._where, int(self._jobs is not None), *pairs]
        return [
            Taken(name.decode(), Entry(entries[place].content, float(score) if score else None, job))
            for place, name, score, job in in_groups(self._server.run("take_plain", self._keys, args), 4)
        ]

    def move_back(self, names: Sequence[str]) -> None:
        in_turn = names if self._where == "set" else names[::-1]  # the first of a list is pushed last
        self._server.run("back_plain", self._keys, [self._where, *in_turn])

    def _content(self, entry: Entry) -> bytes:
        """What is the message. Raises Unreadable."""
        if self._jobs is None:
            return entry.content
        self._jobs.id(entry)
        if not entry.job:
            raise Unreadable(NO_JOB)
        return entry.job
