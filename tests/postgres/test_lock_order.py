"""Batches lock messages in the order of their keys, whatever order they name them in: so no two wait for each other."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from bide import Outgoing, Queue
from bide.engines.base import Condition, End, Move, NewMessage, Past, Ref, Seen, Settings
from bide.engines.postgres import source
from bide.engines.postgres.sync.engine import Postgres

KEYS = ["c", "a", "B"]  # B is the first by its bytes; a dictionary has it after a
HOUR = 3_600_000


def opened(url: str) -> Postgres:
    made = source(Settings(url=url)).sync()
    made.open()
    return made


def ids_of(engine: Postgres) -> list[str]:
    """In the order in which they were sent, which is not that of their keys."""
    return [each.id for each in engine.get([Ref(topic="t", key=key) for key in KEYS]) if each is not None]


def send(engine: Postgres) -> Sequence[str]:
    return [each.outcome for each in engine.put([NewMessage("t", b"1", key=key, if_exists="replace") for key in KEYS])]


def send_with_free_keys(engine: Postgres) -> Sequence[str]:
    hows = {"a": "keep", "B": "replace", "c": "later", "d": "keep"}
    batch = [NewMessage("t", key.encode(), key=key, if_exists=hows[key]) for key in [*KEYS, "d", "d"]]
    batch.insert(1, NewMessage("t", b"none"))
    return [each.outcome for each in engine.put(batch)]


def send_again(engine: Postgres) -> Sequence[str]:
    keys = [*KEYS, "new", "a"]
    sent = engine.put([NewMessage("t", b"1", key=key, if_exists="later", operation="o") for key in keys])
    return [each.outcome for each in sent]


def cancel(engine: Postgres) -> Sequence[str]:
    return [each.value for each in engine.cancel([Ref(topic="t", key=key) for key in [*KEYS, "a", "none"]])]


def cancel_by_ids(engine: Postgres) -> Sequence[str]:
    return [each.value for each in engine.cancel([Ref(id=id) for id in ids_of(engine)])]


def cancel_twice(engine: Postgres) -> Sequence[str]:
    ids = ids_of(engine)
    return [each.value for each in engine.cancel([Ref(id=id) for id in [*ids, ids[0]]])]


def cancel_both_ways(engine: Postgres) -> Sequence[str]:
    first, second, _ = ids_of(engine)
    refs = [Ref(id=first), Ref(topic="t", key="a"), Ref(id=second), Ref(topic="t", key="B"), Ref(topic="t", key="c")]
    return [each.value for each in engine.cancel(refs)]


def cancel_as_seen(engine: Postgres) -> Sequence[str]:
    ids = ids_of(engine)
    seen = [Seen(each.due) for each in engine.get([Ref(id=id) for id in ids]) if each is not None]
    return [each.value for each in engine.cancel([Ref(id=id) for id in ids], seen=seen)]


def move(engine: Postgres) -> Sequence[str]:
    moved = engine.reschedule([Move(Ref(topic="t", key=key), delay=60_000) for key in [*KEYS, "none", "a"]])
    return [each.value for each in moved]


def move_by_ids(engine: Postgres) -> Sequence[str]:
    return [each.value for each in engine.reschedule([Move(Ref(id=id), delay=60_000) for id in ids_of(engine)])]


def move_twice(engine: Postgres) -> Sequence[str]:
    ids = ids_of(engine)
    moved = engine.reschedule([Move(Ref(id=id), delay=60_000, origin="due") for id in [*ids, ids[0]]])
    assert [each.due - HOUR > 60_000 for each in engine.get([Ref(id=id) for id in ids]) if each is not None]
    return [each.value for each in moved]


def move_as_seen(engine: Postgres) -> Sequence[str]:
    ids = ids_of(engine)
    [stored] = engine.get([Ref(id=ids[0])])
    assert stored is not None
    moves = [Move(Ref(id=id), delay=60_000) for id in ids[1:]]
    return [each.value for each in engine.reschedule(moves, condition=Condition(ids[0], stored.due))]


def requeue(engine: Postgres) -> Sequence[str]:
    """Their keys are held, so that they come back without."""
    engine.put([NewMessage("t", b"2", key=key, past=Past(dead=True, error="no")) for key in KEYS])
    swept = engine.requeue("t", delay=1000, over=3000, limit=3)
    back = sorted((each for each in engine.scan("t", None, 10).messages if each.body == b"2"), key=lambda each: each.id)
    assert [round((each.due - back[0].due) / 1000) for each in back] == [0, 1, 2]
    return [f"{swept.keyless} without"]


@pytest.fixture(params=["bytes", "words"])
def url(request: pytest.FixtureRequest, postgres_url: str) -> str:
    """A database that compares texts by their bytes, and one that does it as a dictionary."""
    if request.param == "words":
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("create database words template template0 locale_provider icu icu_locale 'en'")
        postgres_url = postgres_url.rpartition("/")[0] + "/words"
    return postgres_url


@pytest.mark.parametrize(
    ("call", "answers"),
    [
        (send, ["replaced"] * 3),
        (send_with_free_keys, ["postponed", "created", "kept", "replaced", "created", "kept"]),
        (send_again, ["postponed", "postponed", "postponed", "created", "postponed"]),
        (cancel, ["cancelled", "cancelled", "cancelled", "gone", "gone"]),
        (cancel_by_ids, ["cancelled"] * 3),
        (cancel_twice, ["cancelled", "cancelled", "cancelled", "gone"]),
        (cancel_both_ways, ["cancelled", "cancelled", "gone", "cancelled", "gone"]),
        (cancel_as_seen, ["cancelled"] * 3),
        (move, ["moved", "moved", "moved", "gone", "moved"]),
        (move_by_ids, ["moved"] * 3),
        (move_twice, ["moved"] * 4),
        (move_as_seen, ["moved"] * 2),
        (requeue, ["3 without"]),
    ],
)
def test_a_batch_waits_for_the_first_key_and_holds_no_later_one(
    url: str, call: Callable[[Postgres], Sequence[str]], answers: Sequence[str]
) -> None:
    made = opened(url)
    with psycopg.connect(url, autocommit=True) as other, psycopg.connect(url) as own, ThreadPoolExecutor(1) as threads:
        for key in KEYS:
            made.put([NewMessage("t", b"1", key=key, delay=HOUR)])
        own.execute("select from bide.message where key = 'B' for update")
        calling = threads.submit(call, made)
        wait_until_one_waits(other, calling)
        assert len(other.execute("select from bide.message where key in ('a', 'c') for update nowait").fetchall()) == 2
        own.rollback()
        assert calling.result() == answers
    made.close()


def test_a_batch_that_waits_for_a_key_has_stored_no_later_one(url: str) -> None:
    made, second = opened(url), opened(url)
    made.put([NewMessage("t", b"1", key="B", delay=HOUR)])
    with psycopg.connect(url, autocommit=True) as other, psycopg.connect(url) as own, ThreadPoolExecutor(1) as threads:
        own.execute("select from bide.message where key = 'B' for update")
        calling = threads.submit(made.put, [NewMessage("t", b"2", key=key) for key in ("c", "B", "A")])
        wait_until_one_waits(other, calling)
        assert [each.outcome for each in second.put([NewMessage("t", b"3", key="c")])] == ["created"]
        own.rollback()
        assert [each.outcome for each in calling.result()] == ["kept", "kept", "created"]
    assert {each.key: each.body for each in made.scan("t", None, 9).messages} == {"A": b"2", "B": b"1", "c": b"3"}
    made.close()
    second.close()


def test_a_batch_waits_for_no_message_that_is_running(url: str) -> None:
    made = opened(url)
    made.put([NewMessage("t", b"1", key="B")])
    [running] = made.claim(["t"], 1, HOUR).messages
    with psycopg.connect(url) as own:
        own.execute("select from bide.message where key = 'B' for update")
        sent = made.put([NewMessage("t", b"2", key=key) for key in KEYS])
        assert [each.outcome for each in sent] == ["created", "created", "kept"]
        assert sent[2].id == running.id
    made.close()


def test_ends_in_the_transaction_of_a_caller_wait_for_the_first_key_and_hold_no_later_one(url: str) -> None:
    made = opened(url)
    for key in KEYS:
        made.put([NewMessage("t", b"1", key=key)])
    taken = made.claim(["t"], 3, HOUR).messages
    for verdict in ("retry", "done"):
        with psycopg.connect(url, autocommit=True) as other, psycopg.connect(url) as own, ThreadPoolExecutor(1) as threads:
            ends = [End("t", each.id, each.token, verdict) for each in taken]
            with psycopg.connect(url) as callers:
                own.execute("select from bide.message where key = 'B' for update")
                calling = threads.submit(made.settle, ends, connection=callers)
                wait_until_one_waits(other, calling)
                assert len(other.execute("select from bide.message where key in ('a', 'c') for update nowait").fetchall()) == 2
                own.rollback()
                assert calling.result() == ["scheduled" if verdict == "retry" else "done"] * 3
                callers.rollback()
    made.close()


def over(url: str, engine: Postgres) -> None:
    """Messages of all keys, of which that of the last one holds a lease that is over."""
    engine.put([NewMessage("t", b"1", key="c")])
    assert len(engine.claim(["t"], 1, 1).messages) == 1
    engine.put([NewMessage("t", b"1", key=key, delay=HOUR) for key in ("a", "B")])
    with psycopg.connect(url, autocommit=True) as other:
        while other.execute("select from bide.message where until > extract(epoch from clock_timestamp()) * 1000").fetchone():
            pass


@pytest.mark.parametrize("named", ["ids", "keys", "both"])
@pytest.mark.parametrize("verb", ["cancel", "reschedule"])
def test_a_lease_that_is_over_ends_at_its_turn_in_the_transaction_of_a_caller(url: str, named: str, verb: str) -> None:
    made = opened(url)
    over(url, made)
    refs = [Ref(topic="t", key=key) for key in KEYS]
    if named != "keys":
        refs[: 1 if named == "both" else None] = [Ref(id=id) for id in ids_of(made)[: 1 if named == "both" else None]]
    with (
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(url, autocommit=True) as other,
        psycopg.connect(url) as callers,
        psycopg.connect(url) as own,
    ):
        own.execute("select from bide.message where key = 'B' for update")
        calling: Future[Any]
        if verb == "cancel":
            calling = threads.submit(made.cancel, refs, connection=callers)
        else:
            calling = threads.submit(made.reschedule, [Move(each, delay=60_000) for each in refs], connection=callers)
        wait_until_one_waits(other, calling)
        assert len(other.execute("select from bide.message where key in ('a', 'c') for update nowait").fetchall()) == 2
        own.rollback()
        assert [each.value for each in calling.result()] == [{"cancel": "cancelled", "reschedule": "moved"}[verb]] * 3
        callers.commit()
    made.close()


def wait_until_one_waits(other: psycopg.Connection, calling: Future[Any]) -> None:
    waiting = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    while other.execute(waiting).fetchone() is None:
        assert not calling.done()


@pytest.mark.always
def test_no_two_calls_wait_for_each_other(postgres_url: str) -> None:
    """Sends by key, cancels and reschedules by id and by key, ends, and what is brought back, in any order."""
    keys = [f"k{n}" for n in range(20)]
    with psycopg.connect(postgres_url, autocommit=True) as other:
        [[name]] = other.execute("select current_database()").fetchall()
        other.execute(f"alter database {name} set deadlock_timeout = '5ms'".encode())
    engines = [opened(postgres_url) for _ in range(6)]
    known: list[str] = []

    def sends(engine: Postgres, chance: random.Random) -> None:
        batch = [
            NewMessage("t", b"1", key=key, delay=chance.choice([0, 50]), if_exists=chance.choice(["replace", "later", "keep"]))
            for key in chance.sample(keys, 12)
        ]
        known.extend(each.id for each in engine.put(batch))

    def cancels(engine: Postgres, chance: random.Random) -> None:
        engine.cancel([Ref(id=id) for id in chance.choices(known[-80:], k=12)])
        engine.cancel([Ref(id=id) for id in set(chance.choices(known[-80:], k=12))])

    def cancels_both_ways(engine: Postgres, chance: random.Random) -> None:
        ids = [Ref(id=id) for id in chance.choices(known[-80:], k=6)]
        engine.cancel([*ids, *(Ref(topic="t", key=key) for key in chance.sample(keys, 6))])

    def moves(engine: Postgres, chance: random.Random) -> None:
        engine.reschedule([Move(Ref(id=id), delay=50) for id in chance.choices(known[-80:], k=12)])
        engine.reschedule([Move(Ref(id=id), delay=0) for id in set(chance.choices(known[-80:], k=12))])

    def cancels_what_is_over(engine: Postgres, chance: random.Random) -> None:
        engine.claim(["t"], 6, 1)
        with psycopg.connect(postgres_url) as callers:
            engine.cancel([Ref(id=id) for id in set(chance.choices(known[-80:], k=12))], connection=callers)

    def ends(engine: Postgres, chance: random.Random) -> None:
        taken = list(engine.claim(["t"], 12, HOUR).messages)
        chance.shuffle(taken)
        half = len(taken) // 2
        engine.settle([End("t", each.id, each.token, "done") for each in taken[:half]])
        engine.settle([End("t", each.id, each.token, chance.choice(["retry", "dead"])) for each in taken[half:]])
        engine.requeue("t")

    def again(act: Callable[[Postgres, random.Random], None], engine: Postgres, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(100):
            act(engine, chance)

    sends(engines[0], random.Random(0))
    acts = (sends, cancels, cancels_both_ways, cancels_what_is_over, moves, ends)
    with ThreadPoolExecutor(len(acts)) as threads:
        for done in [threads.submit(again, act, engines[n], n) for n, act in enumerate(acts)]:
            done.result()
    for engine in engines:
        engine.close()
    assert deadlocks(postgres_url) == 0


def deadlocks(url: str) -> int:
    """When all others are gone: a connection tells of its deadlocks when it ends, at the latest."""
    with psycopg.connect(url, autocommit=True) as other:
        others = "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        while other.execute(f"{others} and backend_type = 'client backend'".encode()).fetchone() is not None:
            pass
        [[found]] = other.execute("select deadlocks from pg_stat_database where datname = current_database()").fetchall()
        return int(found)


def test_messages_of_a_batch_keep_their_order_whatever_their_keys_are(postgres_url: str) -> None:
    with Queue(postgres_url) as queue:
        sent = queue.send_many("t", [Outgoing(key, key=key, delay=0) for key in KEYS])
        assert [each.id for each in sent] == sorted(each.id for each in sent)
        assert {each.body: each.id for each in queue.messages("t")} == dict(zip(KEYS, (each.id for each in sent), strict=True))


def test_messages_of_a_batch_that_share_a_key_are_taken_in_their_order(postgres_url: str) -> None:
    made = opened(postgres_url)
    for operations in ((None, "o"), ("p", None), ("z", "a")):
        key = f"k {operations}"
        batch = [NewMessage("t", b"1", key=key, operation=each) for each in operations]
        assert [each.outcome for each in made.put(batch)] == ["created", "kept"]
    made.close()
