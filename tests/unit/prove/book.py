"""Histories written by hand."""

from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from bide.prove import Report, check
from bide.prove.record import Record, Result

MS = 1_000_000


class Book:
    """A history by hand. Each record comes a millisecond after the one before, and the engine's clock goes alike."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 1_000
        self.calls = count(1)
        self.file = path.open("wb")
        self.one("begin", note="this machine")

    def write(self, op: str, result: Result, call: int = 0, **fields: Any) -> None:
        self.now += 1
        process = fields.pop("process", "p")
        record = Record(mono=self.now * MS, wall=self.now * MS, process=process, op=op, result=result, call=call, **fields)
        self.file.write(msgspec.json.encode(record) + b"\n")
        self.file.flush()

    def one(self, op: str, **fields: Any) -> None:
        self.write(op, "ok", **fields)

    def begin(self, op: str, **fields: Any) -> tuple[str, int]:
        call = next(self.calls)
        self.write(op, "invoke", call, **fields)
        return op, call

    def end(self, under_way: tuple[str, int], result: Result = "ok", **fields: Any) -> None:
        self.write(under_way[0], result, under_way[1], **fields)

    def send(self, id: str = "m", result: Result = "ok", *, tag: str = "", outcome: str = "created", **fields: Any) -> None:
        asked = {"topic": "t", "tag": tag or id, "body": f"body of {tag or id}", "headers": "h", "max_attempts": 3, "delay": 0}
        due = fields.pop("due", None) or self.now + 1 + fields.get("delay", 0)
        under_way = self.begin("send", **(asked | fields))
        if result != "unknown":
            self.end(under_way, result, id=id, due=due, outcome=outcome)

    def receive(self, *ids: str, **fields: Any) -> None:
        """A receive that hands out these; `fields` are of the deliveries."""
        under_way = self.begin("receive", topics=["t"], limit=5)
        for id in ids:
            self.deliver(id, call=under_way[1], **fields)
        self.end(under_way)

    def deliver(self, id: str = "m", token: str = "1", attempt: int = 1, call: int = 0, **fields: Any) -> None:
        tag = fields.get("tag", id)
        known = {"topic": "t", "tag": tag, "body": f"body of {tag}", "headers": "h", "max_attempts": 3, "lease": 100}
        now = fields.pop("now", self.now)
        times = {"now": now, "due": now}
        self.write("deliver", "ok", call, id=id, token=token, attempt=attempt, **(times | known | fields))

    def act(self, op: str, id: str | None = "m", result: Result = "ok", *, outcome: str | None = None, **fields: Any) -> None:
        count = fields.pop("count", None)
        under_way = self.begin(op, id=id, **fields)
        if result != "unknown":
            self.end(under_way, result, outcome=outcome, count=count)

    def look(self, *left: dict[str, Any], drained: bool = True, counts: dict[str, dict[str, int]] | None = None) -> None:
        call = next(self.calls)
        for each in left:
            known = {"id": "m", "topic": "t", "tag": "m", "body": "body of m", "headers": "h", "due": 0, "attempt": 0}
            self.write("left", "ok", call, **(known | {"state": "scheduled"} | each))
        self.write("look", "ok", call, counts=counts, note="drained" if drained else None)

    def check(self, **terms: Any) -> Report:
        return check([self.path], **terms)

    def broken(self, **terms: Any) -> set[str]:
        return set(self.check(**terms).violations)


def sent_and_done(book: Book, id: str = "other") -> None:
    """A message that nothing is wrong with, so that a run has shown something."""
    book.send(id)
    book.receive(id)
    book.act("ack", id, token="1")
