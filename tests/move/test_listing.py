"""In what pages the messages of a queue are listed, and how many of them are ended at once."""

import re
import time
from pathlib import Path
from typing import Any

from bide import Outgoing, Queue
from bide.adopt.queue.messages import FEW, LARGE, Able, MessageListing
from bide.adopt.queue.move import QueueSource
from tests.move.test_meanwhile import moving, run


def test_large_messages_come_in_small_pages() -> None:
    large = "x" * 200_000
    with Queue("memory://") as queue:
        queue.send_many("letter", [Outgoing(large, delay="1h")] * 200)
        queue.send_many("mail", [Outgoing("x", delay="1h")] * 3_000)
        pages = list(MessageListing(queue.session.engine(), re.compile(".*"), Able()).pages(1_000))
    assert sum(map(len, pages)) == len({each.id for page in pages for each in page}) == 3_200
    assert max(map(len, pages)) == 1_000
    assert max(sum(len(each.body) for each in page) for page in pages) <= LARGE + FEW * len(large)
    assert len(pages) < 10


def test_large_bodies_are_compared_a_few_at_a_time(tmp_path: Path) -> None:
    with Queue(f"sqlite:///{tmp_path}/old.db") as old, Queue(f"sqlite:///{tmp_path}/new.db") as new:
        old.send_many("mail", [Outgoing("x" * 250_000, key=f"k{n}", delay="1h") for n in range(20)])
        engine = Counting(old.session.engine())
        source = QueueSource(engine, "old", re.compile(".*"), Able(), "new")  # type: ignore[arg-type]
        run(source, new)
        assert len(list(new.messages("mail"))) == 20
        assert 5 <= len(engine.compared) <= 10
        assert max(engine.compared) <= 2**20


class Counting:
    """Counts the bytes that each cancel compares."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.compared: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def cancel(self, refs: Any, *, seen: Any = None) -> Any:
        if seen is None:
            return self._engine.cancel(refs)
        self.compared.append(sum(len(each.body or b"") for each in seen))
        return self._engine.cancel(refs, seen=seen)


def test_what_a_dead_receiver_has_is_moved_though_nobody_receives(old: Queue, new: Queue) -> None:
    old.send("mail", 1)
    [taken] = old.receive("mail", lease=0.05)
    old.send("mail", 2, delay="1h")
    found = old.get(taken.id)
    assert found is not None
    assert found.lease_until is not None
    while time.time() < found.lease_until / 1000:
        pass
    assert run(moving(old), new).adopted == 2
    assert (old.stats("mail").leased, new.stats("mail").pending) == (0, 2)
