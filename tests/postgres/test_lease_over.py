"""What calls answer of messages whose lease is over, and that only those end it which are to."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from bide import CancelResult, Queue, RescheduleResult
from bide.engines.base import Condition, Move, NewMessage, Past, Ref, Seen, Settings
from bide.engines.postgres import source
from bide.engines.postgres.sync.engine import Postgres

HOUR = 3_600_000


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Postgres]:
    made = source(Settings(url=postgres_url)).sync()
    made.open()
    yield made
    made.close()


def taken(engine: Postgres, owner: psycopg.Connection, *keys: str, most: int = 9) -> list[str]:
    """Messages of which the receiver is gone, and the lease is over."""
    sent = engine.put([NewMessage("t", b"1", key=key, max_attempts=most) for key in keys])
    assert len(engine.claim(["t"], len(keys), 1).messages) == len(keys)
    while owner.execute("select from bide.message where until > extract(epoch from clock_timestamp()) * 1000").fetchone():
        pass
    return [each.id for each in sent]


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("role", ["owner", "sender"])
def test_a_role_that_only_sends_cancels_and_moves_it_too(
    engine: Postgres, other: psycopg.Connection, postgres_url: str, role: str, joined: bool
) -> None:
    page = Path("docs/postgres.md").read_text(encoding="utf-8")
    grants = page[page.index("grant usage on schema bide to sender") :]
    other.execute(b"create role sender login; " + grants[: grants.index("```")].encode())
    url = postgres_url.replace("postgres@", "sender@") if role == "sender" else postgres_url
    taken(engine, other, "1", "2")
    [last] = taken(engine, other, "last", most=1)
    with Queue(url) as queue, ExitStack() as stack:
        connection = stack.enter_context(psycopg.connect(url)) if joined else None
        assert queue.cancel(topic="t", key="1", connection=connection) is CancelResult.CANCELLED
        assert queue.reschedule(topic="t", key="2", delay="1h", connection=connection) is RescheduleResult.MOVED
        if role == "sender":  # which can't bury it
            assert queue.cancel(topic="t", key="last", connection=connection) is CancelResult.RUNNING
        else:
            assert queue.cancel_many([last], connection=connection) == [CancelResult.DEAD]
    one, two = engine.get([Ref(topic="t", key=key) for key in ("1", "2")])
    assert (one, two and two.state) == (None, "scheduled")


@pytest.mark.parametrize("joined", [False, True])
def test_what_was_seen_leaves_it_running(engine: Postgres, other: psycopg.Connection, postgres_url: str, joined: bool) -> None:
    [id] = taken(engine, other, "k")
    [pending] = [each.id for each in engine.put([NewMessage("t", b"1", delay=HOUR)])]
    dues = [each.due for each in engine.get([Ref(id=id), Ref(id=pending)]) if each is not None]
    refs, moves = [Ref(id=id), Ref(id=pending)], [Move(Ref(id=pending), delay=5)]
    with ExitStack() as stack:
        connection = stack.enter_context(psycopg.connect(postgres_url)) if joined else None
        cancelled = engine.cancel(refs, seen=[Seen(due) for due in dues], connection=connection)
        assert cancelled == [CancelResult.RUNNING, CancelResult.CANCELLED]
        assert engine.reschedule(moves, condition=Condition(id, dues[0]), connection=connection) == [RescheduleResult.GONE]
        assert engine.reschedule([Move(Ref(id=id), delay=5, seen=dues[0])], connection=connection) == [RescheduleResult.RUNNING]
    assert other.execute("select count(*) from bide.message where until > 0").fetchone() == (1,)


def test_a_call_that_is_not_of_a_caller_leaves_it_to_upkeep(engine: Postgres, other: psycopg.Connection) -> None:
    [id] = taken(engine, other, "k")
    assert engine.cancel([Ref(id=id)]) == engine.cancel([Ref(topic="t", key="k")]) == [CancelResult.RUNNING]
    assert engine.reschedule([Move(Ref(topic="t", key="k"), delay=5)]) == [RescheduleResult.RUNNING]


def test_requeue_looks_at_its_key_and_leaves_it(engine: Postgres, other: psycopg.Connection) -> None:
    taken(engine, other, "k")
    engine.put([NewMessage("t", b"2", key="k", past=Past(dead=True, error="no"))])
    assert engine.requeue("t").keyless == 1
    assert other.execute("select count(*) from bide.message where until > 0").fetchone() == (1,)
