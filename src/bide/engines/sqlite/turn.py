"""One transaction, as the verbs see it: where they read and write, what time it is, and whom they make work for."""

import sqlite3
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from bide.clock import MS, Clock, Monotonic
from bide.engines import assets
from bide.engines.base import Ref
from bide.engines.sqlite.plan import LEVELS, PENDING, Known, private_id

SQL = assets.statements(__package__)


class Space(NamedTuple):
    """A namespace in a file, and what its queue was told."""

    name: str
    clock: Clock
    dead_for: int
    dead_max: int


class Time:
    """Of a namespace: its engine's time, which whoever looks reads too, and the last token that was given."""

    def __init__(self) -> None:
        self._lock: threading.RLock = threading.RLock()  # a signal handler may read it in the middle of a reading
        self._monotonic = Monotonic()
        self.claims: int = 0

    def read(self, clock: Clock, now: int | None) -> int:
        """Nanoseconds."""
        with self._lock:
            return self._monotonic.read(clock.now_ns() if now is None else max(now * MS, self._monotonic.mark))

    def meet(self, raw: int, mark: int, claims: int) -> None:
        """What the file says: another process may have gone on."""
        with self._lock:
            if mark > self._monotonic.mark:
                self._monotonic = Monotonic(raw, mark)
            self.claims = max(self.claims, claims)

    def row(self) -> tuple[int, int, int]:
        with self._lock:
            return self._monotonic.raw, self._monotonic.mark, self.claims


class Statements(Protocol):
    """Where a turn happens: a connection, or what stands for one that was borrowed."""

    @property
    def execute(self) -> Callable[..., sqlite3.Cursor]: ...
    @property
    def executemany(self) -> Callable[..., sqlite3.Cursor]: ...


class Turn:
    def __init__(self, connection: Statements, times: "dict[str, Time] | None" = None) -> None:
        self.execute: Callable[..., sqlite3.Cursor] = connection.execute
        self.executemany: Callable[..., sqlite3.Cursor] = connection.executemany
        self.wakes: set[tuple[str, str]] = set()  # namespace and topic for which something has become due, or due sooner
        self._times = {} if times is None else times  # as they were before this turn, where that is known
        self._read: dict[str, Time] = {}
        self._topics: dict[tuple[str, str], int] = {}
        self._any_large: bool | None = None

    def now_ns(self, space: Space, now: int | None) -> int:
        """Engine time in nanoseconds."""
        return self._time(space).read(space.clock, now)

    def now(self, space: Space, now: int | None) -> int:
        """Engine time in milliseconds, rounded down: what is not due by a hair is not due."""
        return self.now_ns(space, now) // MS

    def last_token(self, space: Space) -> int:
        return self._time(space).claims

    def next_token(self, space: Space, now: int) -> int:
        time = self._time(space)
        time.claims = max(time.claims + 1, now)
        return time.claims

    def keep_time(self) -> None:
        """Store the time and the last token, for whoever comes next; another process may."""
        self._keep(self._read)

    def keep_all_times(self) -> None:
        """Store those of all namespaces that this process knows, unless another has gone on further."""
        for space, time in self._times.items():
            time.meet(*(self.one("engine", (space,)) or (0, 0, 0)))
        self._keep(self._times)

    def _keep(self, times: "dict[str, Time]") -> None:
        self.executemany(SQL["keep_engine"], [(space, *time.row()) for space, time in times.items()])

    def _time(self, space: Space) -> "Time":
        """A namespace's own time: what the file says, unless this process has seen it go on since."""
        if space.name not in self._read:
            time = self._times.setdefault(space.name, Time())
            time.meet(*(self.one("engine", (space.name,)) or (0, 0, 0)))
            self._read[space.name] = time
        return self._read[space.name]

    def work_for(self, space: Space, topic: str) -> None:
        self.wakes.add((space.name, topic))

    def known_topic(self, space: Space, name: str) -> int:
        """A topic's number; 0 when there is none of that name."""
        known = self._topics.get((space.name, name))
        if known is None:
            row = self.one("find_topic", {"space": space.name, "name": name})
            known = self._topics[space.name, name] = 0 if row is None else int(row[0])
        return known

    def topic(self, space: Space, name: str) -> int:
        """A topic's number; the topic is made on first use."""
        known = self.known_topic(space, name)
        if not known:
            known = self.execute(SQL["make_topic"], {"space": space.name, "name": name}).lastrowid or 0
            self._topics[space.name, name] = known
        return known

    def drop_topic(self, topic: int) -> None:
        """Let go of a topic that holds nothing; whoever comes next in this transaction makes it anew."""
        self.execute(SQL["drop_topic"], {"topic": topic})
        self._topics = {name: known for name, known in self._topics.items() if known != topic}

    def first_due(self, topic: int) -> int | None:
        """The earliest due time of what is pending."""
        firsts = [self.execute(SQL["first_due"], {"topic": topic, "level": level}).fetchone()[0] for level in LEVELS]
        return min((due for due in firsts if due is not None), default=None)

    def find(self, space: Space, ref: Ref, now: int) -> Known | None:
        """The message, unless it has ended; one that has expired ends now."""
        if ref.id is not None:
            number, salt = private_id(ref.id)
            row = self.execute(SQL["by_id"], {"id": number, "salt": salt, "space": space.name}).fetchone()
        else:
            row = self.execute(SQL["by_key"], {"space": space.name, "name": ref.topic, "key": ref.key}).fetchone()
        if row is None:
            return None
        known = Known(*row)
        if known.stage == PENDING and known.expires is not None and known.expires <= now:
            self.end([known.id])
            return None
        return known

    def end(self, numbers: list[int]) -> None:
        """Messages end: nothing of them stays."""
        rows = [(number,) for number in numbers]
        self.executemany(SQL["end"], rows)
        if self._any_large is None:
            self._any_large = bool(self.one("any_large", ())[0])
        if self._any_large:
            self.executemany(SQL["end_large"], rows)

    def put_large(self, number: int, body: bytes) -> None:
        self.execute(SQL["put_large"], (number, body))
        self._any_large = True

    def one(self, name: str, values: Any) -> Any:
        """The first row of a statement, or None."""
        return self.execute(SQL[name], values).fetchone()

    def all(self, name: str, values: Any) -> list[Any]:
        """All rows of a statement."""
        return self.execute(SQL[name], values).fetchall()
