"""A file with many topics: what is done with one message costs no more than in a file with few."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from bide.clock import ManualClock
from bide.engines.base import End, Hold, Move, NewMessage, Ref, Settings
from bide.engines.sqlite import source
from bide.engines.sqlite.sync import Sqlite
from tests.sqlite.test_gates import steps


@pytest.fixture
def engine(url: str) -> Iterator[Sqlite]:
    with closing(source(Settings(url=url, clock=ManualClock())).sync()) as engine:
        engine.open()
        yield engine


def life(engine: Sqlite) -> None:
    [first, second, third] = engine.put([NewMessage("t", b"1", delay=5, key="k"), *[NewMessage("t", b"1", expires_in=1)] * 2])
    assert [each is not None for each in engine.get([Ref(first.id), Ref(topic="t", key="k")])] == [True, True]
    engine.reschedule([Move(Ref(first.id), 7), Move(Ref(topic="t", key="k"), 9)])
    engine.put([NewMessage("t", b"2", delay=5, key="k", if_exists="replace", unique_for=None)])
    assert [*map(bool, engine.cancel([Ref(first.id), Ref(second.id)]))] == [True, True]
    [claimed] = engine.claim(["t"], 9, 1_000).messages
    assert claimed.id == third.id
    assert engine.extend([Hold("t", claimed.id, claimed.token)], 5) == [True]
    assert engine.settle([End("t", claimed.id, claimed.token, "dead", error="no")]) == ["dead"]
    assert engine.requeue("t", [claimed.id]).count == 1
    [claimed] = engine.claim(["t"], 9, 1_000).messages
    assert engine.settle([End("t", claimed.id, claimed.token, "done")]) == ["done"]


def test_other_topics_make_nothing_slower(engine: Sqlite) -> None:
    life(engine)
    few = steps(engine, lambda: life(engine))
    engine.put([NewMessage(f"other.{n}", b"", delay=10**9) for n in range(1_000)])
    assert 0 < steps(engine, lambda: life(engine)) < 1.1 * few
