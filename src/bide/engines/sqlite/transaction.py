"""One transaction as the verbs see it: statements by name, engine time, topics and messages.

A writer does many jobs in one transaction, and remembers some of what it has read for the next one, until somebody else writes
to its file: see `ReadBefore`.
"""

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple, Protocol

from bide.clock import MS, Clock
from bide.core.times import reached_at
from bide.engines.base import Ref
from bide.engines.sqlite.clock import EngineTime
from bide.engines.sqlite.rows import LEVELS, PENDING, Known, private_id

MOST_TOPICS = 10_000  # whose numbers are remembered
_FILES = ("statements.sql", "gates.sql", "results.sql")
AT_ONCE = 100  # messages in one statement: SQLite takes longer to begin one than to change a row
FEW = 8  # so many are not worth that
_ONE = "id = ?"
_NONE = (0,) * AT_ONCE  # no message has this number


class KeptTime(NamedTuple):
    """A namespace's time in the file. It has the fields of `EngineTime.row`."""

    raw: int
    mark: int
    token: int

    def covers(self, row: tuple[int, int, int], within: int) -> bool:
        """Whether the file has this token, and a time that is hardly earlier. A clock that was set back is news."""
        raw, mark, token = row
        return token == self.token and 0 <= raw - self.raw <= within and mark - self.mark <= within


class ReadBefore:
    """Thrown away when another connection has written, and when a transaction of this one is rolled back."""

    __slots__ = ("_topics", "kept")

    def __init__(self) -> None:
        self._topics: dict[tuple[str, str], int] = {}
        self.kept: dict[str, KeptTime] = {}  # of each namespace

    def topic(self, space: str, name: str) -> int | None:
        return self._topics.get((space, name))

    def remember_topic(self, space: str, name: str, number: int) -> None:
        if len(self._topics) >= MOST_TOPICS:
            self._topics.clear()
        self._topics[space, name] = number

    def forget_topic(self, number: int) -> None:
        for name in [name for name, known in self._topics.items() if known == number]:
            del self._topics[name]


_NAME = re.compile(r"^(?:-- [^\n]*\n)*-- name: (\w+)\n", re.MULTILINE)  # with the title of a group before it


def _statements(*texts: str) -> Mapping[str, str]:
    """Each begins with a line `-- name: …`; a name that is given twice is an error."""
    found: dict[str, str] = {}
    for text in texts:
        _, *pieces = _NAME.split(text)
        for name, statement in zip(pieces[::2], pieces[1::2], strict=True):
            if name in found:
                raise ValueError(f"the statement {name} is there twice")
            found[name] = statement.strip()
    return found


SQL = _statements(*(files(__package__).joinpath(name).read_text(encoding="utf-8") for name in _FILES))

_MANY = {
    name: f"{text.removesuffix(_ONE)}id in ({', '.join('?' * AT_ONCE)})" for name, text in SQL.items() if text.endswith(_ONE)
}


class FileNamespace(NamedTuple):
    """A namespace in a file, with the settings of its queue."""

    name: str
    clock: Clock
    dead_for: int
    dead_max: int


class AnyConnection(Protocol):
    """A connection of SQLite, or a caller's connection that is borrowed."""

    @property
    def execute(self) -> Callable[..., sqlite3.Cursor]: ...
    @property
    def executemany(self) -> Callable[..., sqlite3.Cursor]: ...


class NamedStatements:
    """Runs the statements of all files by their names."""

    __slots__ = ("execute", "executemany")

    def __init__(self, connection: AnyConnection) -> None:
        self.execute: Callable[..., sqlite3.Cursor] = connection.execute
        self.executemany: Callable[..., sqlite3.Cursor] = connection.executemany

    def run(self, name: str, values: Any) -> sqlite3.Cursor:
        return self.execute(SQL[name], values)

    def run_many(self, name: str, rows: Sequence[Any]) -> None:
        self.executemany(SQL[name], rows)

    def run_each(self, name: str, values: tuple[Any, ...], numbers: Sequence[int]) -> list[Any]:
        """A statement that ends with `id = ?`, on all of these messages in any order; the rows that it gives."""
        rows: list[Any] = []
        for first in range(0, len(numbers), AT_ONCE):
            part = numbers[first : first + AT_ONCE]
            if len(part) < FEW:
                for number in part:
                    rows += self.execute(SQL[name], (*values, number))
            else:
                rows += self.execute(_MANY[name], (*values, *part, *_NONE[len(part) :]))
        return rows

    def one(self, name: str, values: Any = ()) -> Any:
        """The first row, or None."""
        return self.execute(SQL[name], values).fetchone()

    def all(self, name: str, values: Any = ()) -> list[Any]:
        """All rows."""
        return self.execute(SQL[name], values).fetchall()


class Times:
    """Engine time and tokens of the namespaces, stored with the transaction."""

    __slots__ = ("_known", "_read", "_seen", "_sql", "wall")

    def __init__(self, sql: NamedStatements, known: dict[str, EngineTime], seen: ReadBefore) -> None:
        self._sql = sql
        self._known = known  # by this process, from earlier transactions
        self._seen = seen
        self._read: dict[str, EngineTime] = {}  # in this transaction
        self.wall: int = 0  # in ms, the clock when time was read last: behind it, if the clock was set back

    def begin(self) -> None:
        self._read.clear()

    def now_ns(self, namespace: FileNamespace, now: int | None) -> int:
        """Engine time in nanoseconds."""
        at, wall = self._time(namespace).read(namespace.clock, now)
        self.wall = wall // MS
        return at

    def now(self, namespace: FileNamespace, now: int | None) -> int:
        """Engine time in milliseconds, rounded down: what is not due by a hair is not due."""
        return self.now_ns(namespace, now) // MS

    def last_token(self, namespace: FileNamespace) -> int:
        return self._time(namespace).last_token

    def next_token(self, namespace: FileNamespace, now: int) -> int:
        time = self._time(namespace)
        time.last_token = max(time.last_token + 1, now)
        return time.last_token

    def keep(self, within: int = 0) -> bool:
        """Store times and tokens for the next transaction, which may be another process's.

        A time that is stored already, or one that is no more than `within` nanoseconds earlier, is left at that: False.
        """
        news = {}
        for name, time in self._read.items():
            row = time.row()
            if not self._seen.kept[name].covers(row, within):
                news[name] = row
        if news:
            self._keep(news)
        return len(news) == len(self._read)

    def keep_all(self) -> None:
        """Store those of all namespaces that this process knows, unless another process is further on."""
        for name, time in self._known.items():
            self._meet(name, time)
        self._keep({name: time.row() for name, time in self._known.items()})

    def _keep(self, rows: dict[str, tuple[int, int, int]]) -> None:
        self._sql.run_many("keep_engine", [(name, *row) for name, row in rows.items()])
        self._seen.kept.update({name: KeptTime(*row) for name, row in rows.items()})

    def _time(self, namespace: FileNamespace) -> EngineTime:
        """The namespace's time in the file, or a later one that this process has shown since."""
        name = namespace.name
        time = self._read.get(name)
        if time is None:
            time = self._known.get(name) or self._known.setdefault(name, EngineTime())
            if name not in self._seen.kept:
                self._meet(name, time)
            self._read[name] = time
        return time

    def _meet(self, name: str, time: EngineTime) -> None:
        kept = self._seen.kept[name] = KeptTime(*(self._sql.one("engine", (name,)) or (0, 0, 0)))
        time.meet(*kept)


class Topics:
    """The numbers that stand for topics in the tables."""

    __slots__ = ("_seen", "_sql")

    def __init__(self, sql: NamedStatements, seen: ReadBefore) -> None:
        self._sql = sql
        self._seen = seen

    def known(self, namespace: FileNamespace, name: str) -> int:
        """A topic's number; 0 when there is no such topic."""
        number = self._seen.topic(namespace.name, name)
        if number is None:
            row = self._sql.one("find_topic", {"space": namespace.name, "name": name})
            if row is None:
                return 0
            number = int(row[0])
            self._seen.remember_topic(namespace.name, name, number)
        return number

    def made(self, namespace: FileNamespace, name: str) -> int:
        """A topic's number; the topic is made on first use."""
        number = self.known(namespace, name)
        if not number:
            number = self._sql.run("make_topic", {"space": namespace.name, "name": name}).lastrowid or 0
            self._seen.remember_topic(namespace.name, name, number)
        return number

    def drop(self, number: int) -> None:
        """Remove a topic that holds nothing; a later job of this transaction may make it again."""
        self._sql.run("drop_topic", {"topic": number})
        self._seen.forget_topic(number)

    def name(self, number: int) -> str:
        name: str = self._sql.one("topic_name", {"topic": number})[0]
        return name

    def first_due(self, number: int) -> int | None:
        """The earliest due time of the pending messages."""
        firsts = [due for due in self._sql.one("first_due", {"topic": number}) if due is not None]
        return min(firsts) if firsts else None

    def first_to_come(self, number: int, now: int, wall: int) -> int | None:
        """When the first of the pending messages is to be handed out."""
        if wall == now:
            return self.first_due(number)
        firsts = []
        for level in LEVELS:
            _, held, ready, later = self.while_behind(number, level, now, wall)
            firsts += [each for each in (ready, later, held and reached_at(held, now, wall)) if each is not None]
        return min(firsts, default=None)

    def while_behind(self, number: int, level: int, now: int, wall: int) -> tuple[int, int | None, int | None, int | None]:
        """How many instants a clock that is behind holds back, and the first of these, of what is ready, and of what is not."""
        values = {"topic": number, "level": level, "now": now, "wall": wall}
        held, first_held, first_ready, first_later = self._sql.one("while_behind", values)
        return held, first_held, first_ready, first_later


class Messages:
    """Finds messages and ends them."""

    __slots__ = ("_any_large", "_sql")

    def __init__(self, sql: NamedStatements) -> None:
        self._sql = sql
        self._any_large: bool | None = None  # whether any body is kept apart, once that was looked at

    def begin(self) -> None:
        if self._any_large:  # they may have ended since
            self._any_large = None

    def find(self, namespace: FileNamespace, ref: Ref, now: int) -> Known | None:
        """The message, unless it has ended; an expired message ends now."""
        if ref.id is not None:
            number, salt = private_id(ref.id)
            row = self._sql.one("by_id", {"id": number, "salt": salt, "space": namespace.name})
        else:
            row = self._sql.one("by_key", {"space": namespace.name, "name": ref.topic, "key": ref.key})
        if row is None:
            return None
        known = Known(*row)
        if known.stage == PENDING and known.expires is not None and known.expires <= now:
            self.end([known.id])
            return None
        return known

    def end(self, numbers: Sequence[int]) -> None:
        """Delete messages. Their numbers are never given again."""
        if not numbers:
            return
        self._sql.run("keep_highest", (max(numbers),))
        self._sql.run_each("end", (), numbers)
        if self._any_large is None:
            self._any_large = bool(self._sql.one("any_large")[0])
        if self._any_large:
            self._sql.run_each("end_large", (), numbers)

    def put_large(self, number: int, body: bytes) -> None:
        self._sql.run("put_large", (number, body))
        self._any_large = True


class Transaction:
    """One after the other, as long as what it has seen of the file is true."""

    __slots__ = ("dead", "listened", "messages", "sql", "times", "topics", "wakes")

    def __init__(self, connection: AnyConnection, times: dict[str, EngineTime] | None = None) -> None:
        seen = ReadBefore()
        self.sql: NamedStatements = NamedStatements(connection)
        self.times: Times = Times(self.sql, {} if times is None else times, seen)
        self.topics: Topics = Topics(self.sql, seen)
        self.messages: Messages = Messages(self.sql)
        self.dead: dict[int, int] = {}  # by topic, how many dead letters there are, once that was counted
        self.wakes: set[tuple[str, str]] = set()  # namespace and topic in which something is due now, or due sooner
        self.listened: bool = False  # whether anybody in this process has slept, and may have to be woken

    def begin(self, *, listened: bool) -> None:
        """The next one."""
        self.times.begin()
        self.messages.begin()
        self.dead, self.wakes, self.listened = {}, set(), listened

    def wake(self, namespace: FileNamespace, topic: str) -> None:
        """Wake a sleeper of the topic when the transaction is committed."""
        self.wakes.add((namespace.name, topic))
