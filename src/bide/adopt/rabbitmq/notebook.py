"""A message that waits in a queue with a TTL, and the file that keeps what was taken from a broker until the queue has it."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from bide.adopt.shape import Shape
from bide.adopt.source import UnreadableEntry
from bide.engines.base import NewMessage
from bide.engines.sqlite.file import make_private
from bide.errors import ConfigError

SECOND = 1000  # the broker's and most producers' times are whole seconds, rounded down: the message came up to one later
FIRST = 1_167_609_600_000  # 2007: no message came earlier. The driver reads seconds of 2106 and later as ms of 1970 to 1978
OURS = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count")


class Letter(msgspec.Struct, frozen=True):
    """As it came from the broker. `headers` are JSON; what JSON does not have is left out."""

    body: bytes
    exchange: str
    routing_key: str
    headers: dict[str, Any] = {}
    expiration: str | None = None
    stamp: int | None = None  # its property timestamp, in ms
    message_id: str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    correlation_id: str | None = None
    kind: str | None = None  # its property type
    deaths: tuple[tuple[str, int], ...] = ()  # from which queue it was dead-lettered and when, in ms; the last one first

    def digest(self) -> str:
        """The same for a message that comes again, and for one that is equal to the byte."""
        return sha256(msgspec.msgpack.encode(self)).hexdigest()[:32]


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says. Times are milliseconds."""

    queue: str
    ttl: int | None = None  # x-message-ttl of the queue
    by_routing_key: bool = False  # which is the topic
    anew: bool = False  # what a message tells of when it came is not believed


def letter(delivered: Any) -> Letter:
    """What the driver has received."""
    properties, delivery = delivered.header.properties, delivered.delivery
    headers = properties.headers or {}
    told = headers.get("x-death")
    deaths = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []  # or a producer has made it up
    return Letter(
        body=bytes(delivered.body),
        exchange=delivery.exchange or "",
        routing_key=delivery.routing_key or "",
        headers={name: _json(value) for name, value in headers.items() if not name.startswith(OURS)},
        expiration=properties.expiration,
        stamp=_ms(properties.timestamp),
        message_id=properties.message_id,
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        correlation_id=properties.correlation_id,
        kind=properties.message_type,
        deaths=tuple((str(each.get("queue")), _ms(each.get("time")) or 0) for each in deaths),
    )


def due(found: Letter, waits: Waits) -> tuple[int, bool]:
    """When the message would be dead-lettered, and whether that is known. If not, it is so long from now: late, never early.

    Raises Unreadable if it has no TTL.
    """
    lives = [each for each in (_life(found.expiration), waits.ttl) if each is not None]
    if not lives:
        raise UnreadableEntry("has no expiration: give the queue's x-message-ttl with --ttl")
    now = time.time_ns() // 1_000_000
    came = None if waits.anew else _came(found, waits.queue)
    if came is None or not FIRST <= came <= now:
        return now + 1 + min(lives), False
    return came + SECOND + min(lives), True


def message(found: Letter, at: int, waits: Waits, shape: Shape) -> NewMessage:
    """What it becomes, due at that instant. Raises Unreadable."""
    if found.content_encoding not in (None, "", "utf-8", "UTF-8"):
        raise UnreadableEntry(f"has the content encoding {found.content_encoding}")
    headers = {name: value if isinstance(value, str) else _text(value) for name, value in found.headers.items()}
    if found.message_id:
        headers["amqp-message-id"] = found.message_id
    if waits.by_routing_key:
        shape = msgspec.structs.replace(shape, topic=found.routing_key)
    return shape.message(found.body, at, headers)


def _came(found: Letter, queue: str) -> int | None:
    """When the message came into the queue. None if what it tells may be of an earlier stay there, copied with it."""
    if not found.deaths:
        return found.stamp
    last, when = found.deaths[0]
    return when if when and all(name != queue for name, _ in found.deaths) and last else None


def _life(expiration: str | None) -> int | None:
    if expiration is None:
        return None
    try:
        return max(0, int(expiration))
    except ValueError:
        raise UnreadableEntry("has an expiration that is no number") from None


def _ms(when: Any) -> int | None:
    if not isinstance(when, datetime):
        return None
    aware = when if when.tzinfo else when.replace(tzinfo=UTC)
    return int(aware.timestamp()) * 1000


def _json(value: Any) -> Any:
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, dict):
        return {str(name): _json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    return bytes(value).decode(errors="replace") if isinstance(value, bytes | bytearray) else str(value)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


Phase: TypeAlias = Literal["got", "taking", "taken"]
"""got: the broker has it. taking: the broker was asked to forget it, and has it or not. taken: the broker has forgotten it."""

_TABLE = (
    "create table if not exists held (name text primary key, place text not null, phase text not null, since integer not null, "
    "due integer not null, letter blob not null)"
)

_decode = msgspec.msgpack.Decoder(Letter).decode


class NotebookEntry(NamedTuple):
    name: str
    phase: Phase
    since: int
    due: int
    letter: Letter


class Notebook:
    """`place`: which broker and queue, so that one file may serve several."""

    def __init__(self, path: Path, place: str, *, look_only: bool = False) -> None:
        self.path: Path = path
        self._place = place
        self._connection: sqlite3.Connection | None = None
        if look_only and not path.exists():
            return
        if not look_only:
            make_private(str(path))
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=5)
            if not look_only:
                self._connection.execute("pragma journal_mode = delete")
                self._connection.execute("pragma synchronous = full")
                self._connection.execute("pragma locking_mode = exclusive")
                self._connection.execute(_TABLE)
        except sqlite3.Error as error:
            raise self._told(error) from error

    def kept(self) -> list[NotebookEntry]:
        if self._connection is None:
            return []
        query = "select name, phase, since, due, letter from held where place = ? order by since, name"
        with self._telling():
            rows = self._connection.execute(query, [self._place]).fetchall()
        return [NotebookEntry(name, phase, since, due, _decode(content)) for name, phase, since, due, content in rows]

    def write(self, letters: Sequence[tuple[str, int, Letter]]) -> None:
        """Note messages that the broker still has: name, due time and content."""
        now = time.time_ns() // 1_000_000
        rows = [(name, self._place, "got", now, due, msgspec.msgpack.encode(found)) for name, due, found in letters]
        with self._transaction() as connection:
            connection.executemany("insert into held (name, place, phase, since, due, letter) values (?, ?, ?, ?, ?, ?)", rows)

    def mark(self, names: Sequence[str], phase: Phase) -> None:
        with self._transaction() as connection:
            connection.executemany("update held set phase = ? where name = ?", [(phase, name) for name in names])

    def forget(self, names: Sequence[str]) -> None:
        with self._transaction() as connection:
            connection.executemany("delete from held where name = ?", [(name,) for name in names])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        assert connection is not None, "a dry run writes nothing"
        with self._telling():
            connection.execute("begin immediate")
            try:
                yield connection
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._told(error) from error

    def _told(self, error: sqlite3.Error) -> ConfigError:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY":
            return ConfigError(f"Another adopter works with {self.path}: wait for its end, or give each a file with --state.")
        return ConfigError(f"The file {self.path} can't be used: {error}. Name another with --state, or make room.")
