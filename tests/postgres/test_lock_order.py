"""Batches lock messages in the order of their keys, whatever order they name them in: so no two wait for each other."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from bide import Outgoing, Queue
from bide.engines.base import Move, NewMessage, Ref, Settings
from bide.engines.postgres import source
from bide.engines.postgres.sync.engine import Postgres

KEYS = ["c", "a", "b"]


def send(queue: Queue, engine: Postgres) -> Sequence[str]:
    sent = queue.send_many("t", [Outgoing(key, key=key, if_exists="replace") for key in KEYS])
    return [each.outcome for each in sent]


def send_again(queue: Queue, engine: Postgres) -> Sequence[str]:
    sent = queue.send_many("t", [Outgoing(key, key=key, if_exists="later") for key in [*KEYS, "new", "a"]], operation="o")
    return [each.outcome for each in sent]


def cancel(queue: Queue, engine: Postgres) -> Sequence[str]:
    return [each.value for each in engine.cancel([Ref(topic="t", key=key) for key in [*KEYS, "a", "none"]])]


def move(queue: Queue, engine: Postgres) -> Sequence[str]:
    moved = engine.reschedule([Move(Ref(topic="t", key=key), delay=60_000) for key in [*KEYS, "none", "a"]])
    return [each.value for each in moved]


@pytest.mark.parametrize(
    ("call", "answers"),
    [
        (send, ["replaced"] * 3),
        (send_again, ["postponed", "postponed", "postponed", "created", "postponed"]),
        (cancel, ["cancelled", "cancelled", "cancelled", "gone", "gone"]),
        (move, ["moved", "moved", "moved", "gone", "moved"]),
    ],
)
def test_a_batch_waits_for_the_first_key_and_holds_no_later_one(
    postgres_url: str, other: psycopg.Connection, call: Callable[[Queue, Postgres], Sequence[str]], answers: Sequence[str]
) -> None:
    made = source(Settings(url=postgres_url)).sync()
    made.open()
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as own, ThreadPoolExecutor(1) as threads:
        for key in KEYS:
            queue.send("t", key=key, delay="1h")
        own.execute("select from bide.message where key = 'a' for update")
        calling = threads.submit(call, queue, made)
        waiting = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        while other.execute(waiting).fetchone() is None:
            assert not calling.done()
        assert len(other.execute("select from bide.message where key in ('b', 'c') for update nowait").fetchall()) == 2
        own.rollback()
        assert calling.result() == answers
    made.close()


def test_messages_of_a_batch_keep_their_order_whatever_their_keys_are(postgres_url: str) -> None:
    with Queue(postgres_url) as queue:
        sent = queue.send_many("t", [Outgoing(key, key=key, delay=0) for key in KEYS])
        assert [each.id for each in sent] == sorted(each.id for each in sent)
        assert {each.body: each.id for each in queue.messages("t")} == dict(zip(KEYS, (each.id for each in sent), strict=True))


def test_messages_of_a_batch_that_share_a_key_are_taken_in_their_order(postgres_url: str) -> None:
    made = source(Settings(url=postgres_url)).sync()
    made.open()
    for operations in ((None, "o"), ("p", None), ("z", "a")):
        key = f"k {operations}"
        batch = [NewMessage("t", b"1", key=key, operation=each) for each in operations]
        assert [each.outcome for each in made.put(batch)] == ["created", "kept"]
    made.close()
