"""One transaction as the verbs see it: statements by name, engine time, topics and messages.

A writer does many jobs in one transaction. What each part here remembers is forgotten when the transaction ends.
"""

import contextlib
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from importlib.resources import files
from typing import Any, NamedTuple, Protocol

from bide.clock import MS, Clock
from bide.engines.base import Ref
from bide.engines.sqlite.clock import EngineTime
from bide.engines.sqlite.rows import LEVELS, PENDING, Known, private_id

_NAME = re.compile(r"^(?:-- [^\n]*\n)*-- name: (\w+)\n", re.MULTILINE)  # with the title of a group before it


def _statements(text: str) -> Mapping[str, str]:
    """Each begins with a line `-- name: …`; a name that is given twice is an error."""
    found: dict[str, str] = {}
    _, *pieces = _NAME.split(text)
    for name, statement in zip(pieces[::2], pieces[1::2], strict=True):
        if name in found:
            raise ValueError(f"the statement {name} is there twice")
        found[name] = statement.strip()
    return found


SQL = _statements(files(__package__).joinpath("statements.sql").read_text(encoding="utf-8"))


class Namespace(NamedTuple):
    """A namespace in a file, with the settings of its queue."""

    name: str
    clock: Clock
    dead_for: int
    dead_max: int


class Connection(Protocol):
    """A connection of SQLite, or a caller's connection that is borrowed."""

    @property
    def execute(self) -> Callable[..., sqlite3.Cursor]: ...
    @property
    def executemany(self) -> Callable[..., sqlite3.Cursor]: ...


class Statements:
    """Runs the statements of statements.sql by their names."""

    __slots__ = ("execute", "executemany")

    def __init__(self, connection: Connection) -> None:
        self.execute: Callable[..., sqlite3.Cursor] = connection.execute
        self.executemany: Callable[..., sqlite3.Cursor] = connection.executemany

    def run(self, name: str, values: Any) -> sqlite3.Cursor:
        return self.execute(SQL[name], values)

    def run_many(self, name: str, rows: Sequence[Any]) -> None:
        self.executemany(SQL[name], rows)

    def one(self, name: str, values: Any = ()) -> Any:
        """The first row, or None."""
        return self.execute(SQL[name], values).fetchone()

    def all(self, name: str, values: Any = ()) -> list[Any]:
        """All rows."""
        return self.execute(SQL[name], values).fetchall()


class Times:
    """Engine time and tokens of the namespaces, stored with the transaction."""

    __slots__ = ("_known", "_read", "_sql")

    def __init__(self, sql: Statements, known: dict[str, EngineTime]) -> None:
        self._sql = sql
        self._known = known  # by this process, from earlier transactions
        self._read: dict[str, EngineTime] = {}  # in this transaction

    def now_ns(self, namespace: Namespace, now: int | None) -> int:
        """Engine time in nanoseconds."""
        return self._time(namespace).read(namespace.clock, now)

    def now(self, namespace: Namespace, now: int | None) -> int:
        """Engine time in milliseconds, rounded down: what is not due by a hair is not due."""
        return self.now_ns(namespace, now) // MS

    def last_token(self, namespace: Namespace) -> int:
        return self._time(namespace).last_token

    def next_token(self, namespace: Namespace, now: int) -> int:
        time = self._time(namespace)
        time.last_token = max(time.last_token + 1, now)
        return time.last_token

    def keep(self) -> None:
        """Store times and tokens for the next transaction, which may be another process's."""
        self._keep(self._read)

    def keep_all(self) -> None:
        """Store those of all namespaces that this process knows, unless another process is further on."""
        for name, time in self._known.items():
            self._meet(name, time)
        self._keep(self._known)

    def _keep(self, times: dict[str, EngineTime]) -> None:
        self._sql.run_many("keep_engine", [(name, *time.row()) for name, time in times.items()])

    def _time(self, namespace: Namespace) -> EngineTime:
        """The namespace's time in the file, or a later one that this process has shown since."""
        name = namespace.name
        if name not in self._read:
            self._read[name] = self._known.setdefault(name, EngineTime())
            self._meet(name, self._read[name])
        return self._read[name]

    def _meet(self, name: str, time: EngineTime) -> None:
        time.meet(*(self._sql.one("engine", (name,)) or (0, 0, 0)))


class Topics:
    """The numbers that stand for topics in the tables."""

    __slots__ = ("_numbers", "_sql")

    def __init__(self, sql: Statements) -> None:
        self._sql = sql
        self._numbers: dict[tuple[str, str], int] = {}

    def known(self, namespace: Namespace, name: str) -> int:
        """A topic's number; 0 when there is no such topic."""
        number = self._numbers.get((namespace.name, name))
        if number is None:
            row = self._sql.one("find_topic", {"space": namespace.name, "name": name})
            number = self._numbers[namespace.name, name] = 0 if row is None else int(row[0])
        return number

    def made(self, namespace: Namespace, name: str) -> int:
        """A topic's number; the topic is made on first use."""
        number = self.known(namespace, name)
        if not number:
            number = self._sql.run("make_topic", {"space": namespace.name, "name": name}).lastrowid or 0
            self._numbers[namespace.name, name] = number
        return number

    def drop(self, number: int) -> None:
        """Remove a topic that holds nothing; a later job of this transaction may make it again."""
        self._sql.run("drop_topic", {"topic": number})
        self._numbers = {name: known for name, known in self._numbers.items() if known != number}

    def name(self, number: int) -> str:
        name: str = self._sql.one("topic_name", {"topic": number})[0]
        return name

    def first_due(self, number: int) -> int | None:
        """The earliest due time of the pending messages."""
        firsts = [self._sql.one("first_due", {"topic": number, "level": level})[0] for level in LEVELS]
        return min((due for due in firsts if due is not None), default=None)


class Messages:
    """Finds messages and ends them."""

    __slots__ = ("_any_large", "_sql")

    def __init__(self, sql: Statements) -> None:
        self._sql = sql
        self._any_large: bool | None = None

    def find(self, namespace: Namespace, ref: Ref, now: int) -> Known | None:
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
        rows = [(number,) for number in numbers]
        self._sql.run("keep_highest", (max(numbers),))
        self._sql.run_many("end", rows)
        if self._any_large is None:
            self._any_large = bool(self._sql.one("any_large")[0])
        if self._any_large:
            self._sql.run_many("end_large", rows)

    def put_large(self, number: int, body: bytes) -> None:
        self._sql.run("put_large", (number, body))
        self._any_large = True


class Transaction:
    __slots__ = ("messages", "sql", "times", "topics", "wakes")

    def __init__(self, connection: Connection, times: dict[str, EngineTime] | None = None) -> None:
        self.sql: Statements = Statements(connection)
        self.times: Times = Times(self.sql, {} if times is None else times)
        self.topics: Topics = Topics(self.sql)
        self.messages: Messages = Messages(self.sql)
        self.wakes: set[tuple[str, str]] = set()  # namespace and topic in which something is due now, or due sooner

    def wake(self, namespace: Namespace, topic: str) -> None:
        """Wake a sleeper of the topic when the transaction is committed."""
        self.wakes.add((namespace.name, topic))


class Job:
    """A verb's work that waits for a transaction."""

    def __init__(self, work: Callable[[Transaction], Any], *, durable: bool) -> None:
        self.work = work
        self.durable = durable  # whether it must be on the disk before it is answered
        self.answer: Future[Any] = Future()
        self._begun = False

    def begin(self) -> bool:
        """From now on nobody can cancel the job. False: it was cancelled before, so it must not be done."""
        if not self._begun and not self.answer.cancelled():
            self._begun = self.answer.set_running_or_notify_cancel()
        return self._begun

    def fail(self, error: BaseException) -> None:
        with contextlib.suppress(InvalidStateError):  # it was cancelled meanwhile
            self.answer.set_exception(error)
