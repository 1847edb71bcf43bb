"""A queue of BullMQ: its delayed jobs, and if asked those that wait for a worker now.

A job is an id in a sorted set or a list, and a hash. Both are taken together, so that no worker finds one without the other.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from bide.adopt.redis.server import SourceServer
from bide.adopt.redis.take import StoredEntry, TakenEntry, WaitingEntries, in_groups
from bide.adopt.shape import Shape, check_json
from bide.adopt.source import UnreadableEntry, new_take
from bide.engines.base import NewMessage
from bide.errors import ConfigError

COUNTED = 0x1000  # a score is the instant in ms times this, and a number that keeps jobs of one instant in order
DELAYED, WAITING = ("delayed",), ("delayed", "prioritized", "wait", "paused")
NAME, ID = "bullmq-name", "bullmq-id"
"""Headers of the messages."""
OTHER_TYPE = ":type"  # read_bullmq gives it in place of the fields of a job that is no hash


class _Options(msgspec.Struct):
    attempts: int = 1


class BullMQ(WaitingEntries):
    """`waiting`: also jobs that are due, and that no worker has taken yet."""

    kind: str = "bullmq"

    def __init__(self, server: SourceServer, name: str, shape: Shape, *, prefix: str = "bull", waiting: bool = False) -> None:
        self._name = name
        self._queue: str = f"{prefix}:{name}"
        super().__init__(server, self._queue)
        self._shape = shape
        self._lists: tuple[str, ...] = WAITING if waiting else DELAYED

    @property
    def shown(self) -> str:
        return f"the queue {self._queue} at {self._server.shown}"

    def count(self) -> int | None:
        waiting = sum(
            int(self._server.call("LLEN" if name in ("wait", "paused") else "ZCARD", f"{self._queue}:{name}"))
            for name in self._lists
        )
        if not (waiting or any(self._server.call("EXISTS", key) for key in (f"{self._queue}:meta", self._beside))):
            raise ConfigError(f"{self._server.shown} has no queue {self._name} of BullMQ: check its name and --prefix.")
        return waiting

    def page(self, first: int, limit: int) -> list[StoredEntry]:
        found = self._server.run("read_bullmq", self._keys(), [first, limit, *self._lists])
        return [
            StoredEntry(id, float(score) if score else None, bytes(job), place) for id, score, job, place in in_groups(found, 4)
        ]

    def message(self, entry: StoredEntry) -> NewMessage:
        job = unpacked(entry.job or b"")
        if not job:
            raise UnreadableEntry("has no job: it was removed")
        if OTHER_TYPE in job:
            raise UnreadableEntry("has a job that is no hash")
        if job.get("rjk"):
            raise UnreadableEntry("is the next one of a repeated job: make it a schedule of bide, and remove it in BullMQ")
        if job.get("parentKey") or job.get("flow"):
            raise UnreadableEntry("is part of a flow")
        id, name, data = entry.content, job.get("name", b""), job.get("data", b"{}")
        check_json(data)
        about = b"{" + b",".join(b'"%s":%s' % (word, value) for word, value in self._about(id, name, data)) + b"}"
        due = None if entry.place != b"delayed" or entry.score is None else _due(entry.score)
        headers = {NAME: name.decode(errors="replace"), ID: id.decode(errors="replace")}
        topic, key = self._shape.names(about)
        return self._shape.sealed(data, due, topic=topic, key=key, headers=headers, max_attempts=_attempts_left(job))

    def job(self, entry: StoredEntry) -> bytes | None:
        return entry.content

    def move(self, entries: Sequence[StoredEntry]) -> list[TakenEntry]:
        pairs = [part for each in entries for part in (each.content, each.place)]
        taken = self._server.run("take_bullmq", self._keys(), [new_take(self.destination), *pairs])
        return [
            TakenEntry(name.decode(), StoredEntry(entries[at].content, float(score) if score else None, job, entries[at].place))
            for at, name, score, job in in_groups(taken, 4)
        ]

    def move_back(self, names: Sequence[str]) -> None:
        self._server.run("back_bullmq", self._keys(), list(reversed(names)))

    def _keys(self) -> list[str]:
        return [f"{self._queue}:", self._beside]

    @staticmethod
    def _about(id: bytes, name: bytes, data: bytes) -> list[tuple[bytes, bytes]]:
        """What --topic-field and --key-field may name."""
        text = msgspec.json.encode
        return [(b"id", text(id.decode(errors="replace"))), (b"name", text(name.decode(errors="replace"))), (b"data", data)]


def unpacked(job: bytes) -> Mapping[str, bytes]:
    """The fields of a job, each with its value: four bytes of length before each text, as take_bullmq.lua packs them."""
    parts, at = list[bytes](), 0
    while at < len(job):
        length = int.from_bytes(job[at : at + 4], "big")
        parts.append(job[at + 4 : at + 4 + length])
        at += 4 + length
    return {name.decode(errors="replace"): value for name, value in zip(parts[::2], parts[1::2], strict=True)}


def _due(score: float) -> int:
    if not math.isfinite(score):
        raise UnreadableEntry("has a score that is no time")
    return int(score // COUNTED)


def _attempts_left(job: Mapping[str, bytes]) -> int:
    """Of a job that may have failed already. atm: since version 5."""
    try:
        wanted = msgspec.json.decode(job.get("opts", b"{}"), type=_Options, strict=False).attempts
        made = int(job.get("atm") or job.get("attemptsMade") or 0)
    except ValueError:
        raise UnreadableEntry("has options that can't be read") from None
    return min(max(1, wanted - made), 1_000)
