"""What all sources in Redis have in common: entries are taken by one script, and held in a hash until they are moved."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from bide.adopt.redis.server import SourceServer, beside
from bide.adopt.source import EarlierRun, Entries, FoundEntry, Names, RefusedEntry, UnreadableEntry
from bide.engines.base import MAX_BATCH, NewMessage

BYTES = 8 * 2**20  # of entries that are taken together


class PassedOver:
    """A pass meets entries page by page, and a page again when others on it were taken. An entry counts when it is met more
    often than it was counted before: on this page, and on those before it, which the pass has left behind.

    `repeats`: entries may be equal. Otherwise one that is met again is the same one, which others have moved.
    """

    def __init__(self, *, repeats: bool) -> None:
        self._repeats = repeats
        self._reasons: dict[bytes, str] = {}
        self._counted = Counter[bytes]()
        self._behind = Counter[bytes]()
        self._here = Counter[bytes]()

    def __contains__(self, content: bytes) -> bool:
        return content in self._reasons

    def give_back(self, content: bytes) -> None:
        """An entry was given back, and whoever gave it back has counted it."""
        self._reasons.setdefault(content, "is equal to one that was given back")
        self._counted[content] += 1

    def refuse(self, content: bytes, shown: str, reason: str) -> list[RefusedEntry]:
        """An entry can't be taken: it is told if this run has not counted it yet."""
        self._reasons.setdefault(content, reason)
        return self.met(content, shown)

    def met(self, content: bytes, shown: str) -> list[RefusedEntry]:
        """The same, of an entry that is left already."""
        self._here[content] += 1
        here = self._here[content] + self._behind[content] if self._repeats else 1
        if here <= self._counted[content]:
            return []
        self._counted[content] += 1
        return [RefusedEntry(shown, self._reasons[content])]

    def page(self) -> None:
        """A page begins, at the place of the last one."""
        self._here.clear()

    def behind(self) -> None:
        """The pass goes on behind the page."""
        self._behind.update(self._here)

    def put_behind(self, content: bytes) -> None:
        """An entry that was given back is before the page."""
        self._behind[content] += 1

    def from_start(self) -> None:
        """A new pass begins."""
        self._behind.clear()


class StoredEntry(NamedTuple):
    """An entry as it is stored."""

    content: bytes  # the member or element
    score: float | None = None
    job: bytes | None = None
    place: bytes = b""  # of several, where it waits
    gone: bool = False  # somebody took it while the page was read

    @property
    def size(self) -> int:
        return len(self.content) + len(self.job or b"")

    def __str__(self) -> str:
        return self.content.decode(errors="backslashreplace")[:100]


class TakenEntry(NamedTuple):
    """An entry that is held, under its name."""

    name: str
    entry: StoredEntry


class WaitingEntries(ABC):
    """Entries that wait under one key. A pass reads page after page, skips what is refused, and takes the rest of each page."""

    kind: str
    repeats: bool = False  # entries may be equal; what is given back is then the first one again

    def __init__(self, server: SourceServer, key: str) -> None:
        self._server = server
        self._key = key
        self._beside: str = beside(key, "bide-adopt")
        self._left = PassedOver(repeats=self.repeats)  # entries of this run, refused or given back
        self._place = 0  # where the next page begins
        self._names: dict[str, StoredEntry] = {}  # of what is held by this run
        self.destination: str = ""

    @property
    def shown(self) -> str:
        return f"{self._key} at {self._server.shown}"

    def aim(self, destination: str) -> None:
        self.destination = destination

    @abstractmethod
    def count(self) -> int | None: ...

    @abstractmethod
    def page(self, first: int, limit: int) -> list[StoredEntry]:
        """So many entries from this place on, in the order in which they are due."""

    @abstractmethod
    def message(self, entry: StoredEntry) -> NewMessage:
        """What an entry becomes. Raises Unreadable."""

    def job(self, entry: StoredEntry) -> bytes | None:
        """By what the job is known that goes with a readable entry: of several with one job, the first one takes it along."""
        return None

    @abstractmethod
    def move(self, entries: Sequence[StoredEntry]) -> list[TakenEntry]:
        """Take those of the entries that are still there."""

    def forget(self, names: Sequence[str]) -> None:
        """Let nothing be held under these names."""
        self._server.run("finish", [self._beside], names)

    @abstractmethod
    def move_back(self, names: Sequence[str]) -> None:
        """Put back what is held under these names."""

    def peek(self, limit: int) -> Entries:
        found, refused = list[FoundEntry](), list[RefusedEntry]()
        for entry in self.page(0, limit):
            if entry.gone:
                continue
            try:
                found.append(FoundEntry(str(entry), self.message(entry)))
            except UnreadableEntry as error:
                refused.append(RefusedEntry(str(entry), str(error)))
        return Entries(found, refused)

    def held(self) -> EarlierRun:
        now, flat = self._server.run("held", [self._beside], [])
        fields: dict[str, dict[str, bytes]] = {}
        for field, value in zip(flat[::2], flat[1::2], strict=True):
            name, _, part = field.decode().rpartition(":")
            if name:  # an earlier release could leave a field without one behind
                fields.setdefault(name, {})[part] = value
        if not fields:
            return EarlierRun()
        names = sorted(fields, key=_order)
        found, refused = self._read([TakenEntry(name, self.stored(fields[name])) for name in names])
        return EarlierRun(found, refused, max(0.0, (int(now) - _order(names[0])[0]) / 1000))

    def stored(self, fields: dict[str, bytes]) -> StoredEntry:
        """An entry that is held, from what the script has written."""
        score = fields.get("score")
        return StoredEntry(fields["entry"], None if score is None else float(score), fields.get("job"), fields.get("from", b""))

    def take(self, limit: int) -> Entries:
        refused, gone = list[RefusedEntry](), 0
        from_start = self._place == 0
        while True:
            page = self.page(self._place, limit)
            self._left.page()
            wanted, more = self._choose(page)
            refused += more
            gone += sum(entry.gone for entry in page)
            if wanted:
                break
            self._place += len(page)
            self._left.behind()
            if len(page) < limit:
                self._left.from_start()
                if from_start:
                    self._place = 0
                    return Entries((), refused, gone)
                self._place, from_start = 0, True  # what was skipped may have gone, so that the rest has moved up
        taken = self.move(wanted)
        found, unread = self._read(taken)
        return Entries(found, [*refused, *unread], gone + len(wanted) - len(taken))

    def finish(self, names: Sequence[str], changed: Names) -> None:
        for part in _parts(names):
            self.forget(part)
        for name in names:
            self._names.pop(name, None)

    def settle(self) -> None:  # noqa: B027 - not abstract: it has nothing to do
        """It tells nothing of what was changed or ended."""

    def give_back(self, names: Sequence[str]) -> None:
        for content in [self._names[name].content for name in names if name in self._names]:
            self._left.give_back(content)
            if self.repeats and self._place:
                self._left.put_behind(content)
                self._place += 1
        for part in _parts(names):
            self.move_back(part)

    def close(self) -> None:
        self._server.close()

    def _choose(self, page: Iterable[StoredEntry]) -> tuple[list[StoredEntry], list[RefusedEntry]]:
        """The entries of a page that can be taken, and those that are refused for the first time."""
        wanted, refused, jobs, size = list[StoredEntry](), list[RefusedEntry](), set[bytes](), 0
        for entry in page:
            if entry.gone:
                continue
            if entry.content in self._left:
                refused += self._left.met(entry.content, str(entry))
                continue
            try:
                self.message(entry)
            except UnreadableEntry as error:
                refused += self._left.refuse(entry.content, str(entry), str(error))
                continue
            job = self.job(entry)
            if job in jobs:
                continue
            size += entry.size
            if wanted and size > BYTES:
                break
            wanted.append(entry)
            jobs |= set() if job is None else {job}
        return wanted, refused

    def _read(self, taken: Sequence[TakenEntry]) -> tuple[list[FoundEntry], list[RefusedEntry]]:
        """What was taken, as messages; and what has changed meanwhile, so that it can't be read."""
        found, refused = list[FoundEntry](), list[RefusedEntry]()
        for name, entry in taken:
            self._names[name] = entry
            try:
                found.append(FoundEntry(name, self.message(entry)))
            except UnreadableEntry as error:
                refused.append(RefusedEntry(str(entry), str(error), name))
        return found, refused


def _parts(names: Sequence[str]) -> Iterable[Sequence[str]]:
    return (names[first : first + MAX_BATCH] for first in range(0, len(names), MAX_BATCH))


def _order(name: str) -> tuple[int, str, int]:
    since, take, place = name.split("-")
    return int(since), take, int(place)


def in_groups(flat: Sequence[Any], width: int) -> Iterable[Sequence[Any]]:
    """The answer of a script or a command that lists so many values for each entry."""
    return (flat[first : first + width] for first in range(0, len(flat), width))
