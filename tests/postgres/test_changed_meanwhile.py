"""Messages that change while a call that names them waits for an earlier one: its answers are true, and nobody deadlocks."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from bide.engines.base import Condition, End, Move, NewMessage, Past, Ref
from bide.engines.postgres.sync.engine import Postgres
from tests.postgres.test_lock_order import HOUR, deadlocks, opened, wait_until_one_waits

DEAD = Past(dead=True, error="no")


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Postgres]:
    made = opened(postgres_url)
    yield made
    made.close()


@pytest.fixture
def another(postgres_url: str) -> Iterator[Postgres]:
    made = opened(postgres_url)
    yield made
    made.close()


def while_it_waits(url: str, key: str, call: Callable[[], Sequence[str]], change: Callable[[], object]) -> Sequence[str]:
    """What a call answers that waits for the message with this key, while something else changes."""
    with (
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(url, autocommit=True) as other,
        psycopg.connect(url) as own,
    ):
        own.execute("select from bide.message where key = %s for update", [key])
        calling = threads.submit(call)
        wait_until_one_waits(other, calling)
        change()
        own.rollback()
        return calling.result()


def put(engine: Postgres, key: str) -> str:
    [put] = engine.put([NewMessage("t", b"1", key=key, delay=HOUR)])
    return put.id


def cancelled(engine: Postgres, *ids: str) -> list[str]:
    return [each.value for each in engine.cancel([Ref(id) for id in ids])]


def moved(engine: Postgres, *ids: str) -> list[str]:
    return [each.value for each in engine.reschedule([Move(Ref(id), delay=5_000) for id in ids])]


def test_what_comes_back_can_be_cancelled(postgres_url: str, engine: Postgres, another: Postgres) -> None:
    engine.put([NewMessage("t", b"1", key="c")])
    [taken] = engine.claim(["t"], 1, HOUR).messages
    first = put(engine, "B")

    def back() -> None:
        assert another.settle([End("t", taken.id, taken.token, "retry", delay=HOUR)]) == ["scheduled"]

    assert while_it_waits(postgres_url, "B", lambda: cancelled(engine, taken.id, first), back) == ["cancelled", "cancelled"]


def test_what_comes_back_without_its_key_is_told_as_running(postgres_url: str, engine: Postgres, another: Postgres) -> None:
    """As it was when the call began: its place in the order is another one."""
    engine.put([NewMessage("t", b"1", key="c")])
    [taken] = engine.claim(["t"], 1, HOUR).messages
    first = put(engine, "B")

    def back() -> None:
        another.put([NewMessage("t", b"2", key="c", if_exists="replace", delay=HOUR)])
        assert another.settle([End("t", taken.id, taken.token, "retry", delay=HOUR)]) == ["scheduled"]

    answers = while_it_waits(postgres_url, "B", lambda: cancelled(engine, taken.id, first, first), back)
    assert answers == ["running", "cancelled", "gone"]


def test_what_comes_back_and_somebody_else_has_is_told_as_running(
    postgres_url: str, engine: Postgres, another: Postgres
) -> None:
    """Nobody waits for it: he who has it may wait for what this call has."""
    engine.put([NewMessage("t", b"1", key="c")])
    [taken] = engine.claim(["t"], 1, HOUR).messages
    first = put(engine, "B")
    with psycopg.connect(postgres_url) as own:

        def back() -> None:
            assert another.settle([End("t", taken.id, taken.token, "retry", delay=HOUR)]) == ["scheduled"]
            own.execute("select from bide.message where key = 'c' for update")

        assert while_it_waits(postgres_url, "B", lambda: cancelled(engine, taken.id, first), back) == ["running", "cancelled"]


@pytest.mark.parametrize("call", [cancelled, moved])
@pytest.mark.parametrize("twice", [False, True])
def test_what_loses_its_key_and_was_never_taken(
    postgres_url: str, engine: Postgres, another: Postgres, call: Callable[..., list[str]], twice: bool
) -> None:
    """A message that is merged into it does not fit, and takes its key."""

    def merge(body: bytes) -> str:
        [put] = another.put([NewMessage("t", body, key="c", delay=HOUR, if_exists="merge", largest=20)])
        return put.id

    last = merge(b'["x"]')
    first = put(engine, "B")
    named = [last, first, first] if twice else [last, first]
    longer = b'["yyyyyyyyyyyyyyyyyyy"]'
    answers = while_it_waits(postgres_url, "B", lambda: call(engine, *named), lambda: merge(longer))
    assert set(answers[:2]) <= {"cancelled", "moved"}


@pytest.mark.parametrize("call", [cancelled, moved])
@pytest.mark.parametrize("twice", [False, True])
def test_a_dead_letter_that_is_requeued(
    postgres_url: str, engine: Postgres, another: Postgres, call: Callable[..., list[str]], twice: bool
) -> None:
    [last] = engine.put([NewMessage("t", b"2", key="c", past=DEAD)])
    first = put(engine, "B")
    named = [last.id, first, first] if twice else [last.id, first]
    answers = while_it_waits(postgres_url, "B", lambda: call(engine, *named), lambda: another.requeue("t"))
    assert set(answers[:2]) <= {"cancelled", "moved"}


@pytest.mark.parametrize("call", [cancelled, moved])
def test_what_a_transaction_sends_that_is_committed(
    postgres_url: str, engine: Postgres, another: Postgres, call: Callable[..., list[str]]
) -> None:
    first = put(engine, "B")
    with psycopg.connect(postgres_url) as own:
        [sent] = another.put([NewMessage("t", b"1", key="c", delay=HOUR)], connection=own)
        answers = while_it_waits(postgres_url, "B", lambda: call(engine, sent.id, first), own.commit)
    assert set(answers) <= {"cancelled", "moved"}


def test_a_dead_letter_that_is_requeued_is_locked_in_order(postgres_url: str, engine: Postgres, another: Postgres) -> None:
    """By a call that names one message twice, and so locks one by one. Others have the dead letter, and want a later one."""
    [dead] = engine.put([NewMessage("t", b"2", key="a", past=DEAD)])
    middle, last = put(engine, "m"), put(engine, "z")
    with psycopg.connect(postgres_url) as own, psycopg.connect(postgres_url) as a_and_z:
        own.execute("select from bide.message where key = 'm' for update")
        named = [dead.id, middle, last, last]
        with ThreadPoolExecutor(1) as threads, psycopg.connect(postgres_url, autocommit=True) as other:
            calling = threads.submit(cancelled, engine, *named)
            wait_until_one_waits(other, calling)
            another.requeue("t")
            a_and_z.execute("select from bide.message where key = 'a' for update")
            own.rollback()
            a_and_z.execute("select from bide.message where key = 'z' for update")
            a_and_z.rollback()
            assert calling.result()[1:] == ["cancelled", "cancelled", "gone"]
    engine.close()
    another.close()
    assert deadlocks(postgres_url) == 0


@pytest.mark.parametrize("condition", ["due", "message"])
def test_what_has_another_due_time_than_was_seen_is_not_moved(
    postgres_url: str, engine: Postgres, another: Postgres, condition: str
) -> None:
    engine.put([NewMessage("t", b"1", key="c")])
    [seen] = [each.due for each in engine.get([Ref(topic="t", key="c")]) if each is not None]
    [taken] = engine.claim(["t"], 1, HOUR).messages
    first = put(engine, "B")
    [at_first] = [each.due for each in engine.get([Ref(first)]) if each is not None]

    def back() -> None:
        assert another.settle([End("t", taken.id, taken.token, "retry", delay=2 * HOUR)]) == ["scheduled"]

    def move() -> list[str]:
        if condition == "due":
            moves = [Move(Ref(taken.id), delay=5_000, seen=seen), Move(Ref(first), delay=5_000, seen=at_first)]
            return [each.value for each in engine.reschedule(moves)]
        moves = [Move(Ref(first), delay=5_000)]
        return [each.value for each in engine.reschedule(moves, condition=Condition(taken.id, seen))]

    answers = while_it_waits(postgres_url, "B", move, back)
    assert answers == (["gone", "moved"] if condition == "due" else ["gone"])
    [now] = [each for each in engine.get([Ref(taken.id)]) if each is not None]
    assert now.due > seen + HOUR
