"""What a relay put off, or had when it died or froze: it has the times of its send, and ends for all processes."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bide import CancelResult, OutcomeUnknown, Queue, RescheduleResult, Unavailable, Unsupported
from bide.engines.base import Move, NewMessage, Ref
from bide.queue import outbox
from bide.queue.sync import relay as sync_relay
from bide.queue.sync.outbox import Outbox
from tests.worker.processes import until


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_url")
        return found
    return f"sqlite:///{tmp_path}/app.db"


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory://{request.node.name.replace('[', '.').rstrip(']')}"


@pytest.fixture
def queue(store: str, url: str) -> Iterator[Queue]:
    with Queue(url, outbox=store) as queue:
        queue.open()
        yield queue


@pytest.fixture
def other(store: str, url: str, queue: Queue) -> Iterator[Queue]:
    """Another process."""
    with Queue(url, outbox=store) as other:
        yield other


@pytest.fixture
def own(queue: Queue, store: str) -> Iterator[Any]:
    with connected(store) as connection:
        yield connection


def outbox_of(queue: Queue) -> Outbox:
    found = queue.session.open().outbox
    assert found is not None
    return found


def die(queue: Queue, *, after_put: bool) -> Callable[[], object]:
    """What a relay does that dies between its claim and its put, or after that. What is returned is a late put."""
    claim = outbox_of(queue).store.claim([outbox.TOPIC], 100, 30_000)
    new = [new for each in claim.messages if (new := outbox.handed_on(each, claim.now))]
    if after_put:
        queue.session.open().engine.put(new)
    return lambda: queue.session.open().engine.put(new)


def holds(own: Outbox) -> int:
    stats = own.store.stats(outbox.TOPIC)
    return stats.pending + stats.leased


def later(queue: Queue) -> None:
    """When the leases of dead relays have ended, and pauses are over."""
    outbox_of(queue).store.tend(now=time.time_ns() // 1_000_000 + 60_000)


def put_off(queue: Queue, monkeypatch: pytest.MonkeyPatch, *, sent: bool = False, pause: int = 300_000) -> None:
    """By a relay that does not reach the queue, or does not hear its answer. It is still there."""
    engine = queue.session.open().engine
    put = engine.put

    def fail(messages: Sequence[NewMessage], **options: Any) -> Any:
        if sent:
            put(messages, **options)
            raise OutcomeUnknown("No answer.")
        raise Unavailable("It is away.")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "put", fail)
        patch.setattr(sync_relay, "SOON", pause)
        patch.setattr(sync_relay.Relay, "give_back", lambda _: None)
        with pytest.raises((OutcomeUnknown, Unavailable)):
            queue.relay(wait=False)


def sent_unheard(queue: Queue, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue has it, and the outbox too: its relay died after the put, or did not hear the answer."""
    if how == "died":
        die(queue, after_put=True)
        later(queue)
    else:
        put_off(queue, monkeypatch, sent=True)


@pytest.mark.parametrize("has_it", [False, True])
def test_what_was_put_off_is_shown_with_the_times_of_its_send(
    has_it: bool, queue: Queue, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = queue.send("t", 1, key="k", delay="1h", expires_in="10m", connection=own)
    own.commit()
    put_off(queue, monkeypatch)
    if has_it:
        outbox_of(queue).store.claim([outbox.TOPIC], 1, 30_000, now=sent.due)
    for info in (queue.get(sent), queue.get(topic="t", key="k")):
        assert info is not None
        assert (info.due, info.expires) == (sent.due, sent.due + 600_000)


def test_what_was_put_off_is_moved_from_the_time_of_its_send(queue: Queue, own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = queue.send("t", 1, key="k", delay="1h", connection=own)
    own.commit()
    put_off(queue, monkeypatch)
    assert queue.reschedule(topic="t", key="k", by="1h") is RescheduleResult.MOVED
    info = queue.get(topic="t", key="k")
    assert info is not None
    assert abs(info.due - sent.due - 3_600_000) < 60_000  # not by the five minutes


def test_what_was_put_off_beyond_its_life_has_expired(queue: Queue, own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = queue.send("t", 1, key="k", expires_in="1m", connection=own)
    own.commit()
    put_off(queue, monkeypatch)
    [each] = outbox_of(queue).waiting.of([outbox.Name("t", "k")])
    assert outbox.shown(each, sent.due + 59_999) is not None
    assert outbox.shown(each, sent.due + 60_000) is None


def test_what_was_put_off_is_not_overtaken_in_a_long_line(queue: Queue, own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than one look takes in."""
    queue.send("t", "old", key="k", if_exists="replace", connection=own)
    queue.send_many("t", list(range(99)), connection=own)
    queue.send("t", "new", key="k", if_exists="replace", connection=own)
    queue.send_many("t", list(range(1_200)), connection=own)
    own.commit()
    put_off(queue, monkeypatch, pause=1)
    while queue.relay(wait=False) or holds(outbox_of(queue)):
        later(queue)
    info = queue.get(topic="t", key="k")
    assert info is not None
    assert info.body == "new"


@pytest.mark.parametrize("after_put", [False, True])
@pytest.mark.parametrize("verb", ["cancel", "reschedule"])
def test_nobody_is_shown_in_the_outbox_what_was_handed_on_though_a_dead_relay_had_it(
    verb: str, after_put: bool, queue: Queue, other: Queue, own: Any
) -> None:
    queue.send("t", 1, key="k", delay="1h", connection=own)
    own.commit()
    die(queue, after_put=after_put)
    if verb == "cancel":
        assert queue.cancel(topic="t", key="k") is CancelResult.CANCELLED
    else:
        assert queue.reschedule(topic="t", key="k", delay="2h") is RescheduleResult.MOVED
        assert other.cancel(topic="t", key="k") is CancelResult.CANCELLED
    for each in (other, queue):
        assert each.get(topic="t", key="k") is None
        assert each.cancel(topic="t", key="k") is CancelResult.GONE
        assert each.reschedule(topic="t", key="k", delay="1h") is RescheduleResult.GONE
    waiting = outbox_of(queue).store.stats(outbox.TOPIC)
    assert waiting.leased == waiting.pending == 0
    # And what is sent next does not wait for it
    queue.send("t", 2, key="k", connection=own)
    own.commit()
    assert queue.relay(wait=False) == 1


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("how", ["died", "unanswered"])
def test_what_the_queue_has_already_is_cancelled_there(
    how: str, key: str | None, queue: Queue, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = queue.send("t", 1, key=key, connection=own)
    own.commit()
    sent_unheard(queue, how, monkeypatch)
    assert queue.cancel(sent) is CancelResult.CANCELLED
    assert queue.receive("t") == []
    assert queue.relay(wait=False) == 0


@pytest.mark.parametrize("how", ["died", "unanswered"])
def test_what_runs_already_is_not_called_cancelled(how: str, queue: Queue, own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.send("t", 1, key="k", connection=own)
    own.commit()
    sent_unheard(queue, how, monkeypatch)
    [held] = queue.receive("t")
    assert queue.cancel(topic="t", key="k") is CancelResult.RUNNING
    held.ack()
    assert queue.cancel(topic="t", key="k") is CancelResult.GONE


def test_what_was_put_off_is_cancelled_in_the_outbox_while_the_queue_is_away(
    queue: Queue, other: Queue, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send("t", 1, key="k", connection=own)
    own.commit()
    put_off(queue, monkeypatch)

    def away(*_: object, **__: object) -> Any:
        raise Unavailable("It is away.")

    with monkeypatch.context() as patch:
        patch.setattr(queue.session.open().engine, "put", away)
        patch.setattr(queue.session.open().engine, "cancel", away)
        with pytest.raises(OutcomeUnknown, match="cancel again"):
            queue.cancel(topic="t", key="k")
    assert other.cancel(topic="t", key="k") is CancelResult.GONE
    later(queue)
    assert queue.relay(wait=False) == 0
    assert queue.stats("t").pending == 0


def test_what_was_cancelled_is_not_sent_by_a_relay_that_froze_with_it(queue: Queue, own: Any) -> None:
    queue.send("t", 1, key="k", connection=own)
    own.commit()
    thaw = die(queue, after_put=False)
    later(queue)
    assert queue.cancel(topic="t", key="k") is CancelResult.CANCELLED
    thaw()
    assert queue.stats("t").pending == 0


def test_what_was_cancelled_meanwhile_is_not_moved(
    queue: Queue, other: Queue, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send("t", 1, key="k", connection=own)
    own.commit()
    claim = outbox_of(queue).store.claim
    answers: list[CancelResult] = []

    def slow(*args: Any, **options: Any) -> Any:
        answers.append(other.cancel(topic="t", key="k"))
        return claim(*args, **options)

    monkeypatch.setattr(outbox_of(queue).store, "claim", slow)  # by which a move asks for the time, when it has looked
    assert queue.reschedule(topic="t", key="k", delay="1h") is RescheduleResult.GONE
    assert answers == [CancelResult.CANCELLED]
    assert queue.stats("t").pending == 0


def test_all_that_wait_for_a_key_are_cancelled_while_the_queue_is_away(
    queue: Queue, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in range(3):
        queue.send("t", body, key="k", if_exists="replace", connection=own)
        own.commit()
    asked: list[object] = []

    def away(*args: object, **__: object) -> Any:
        asked.append(args)
        raise Unavailable("It is away.")

    with monkeypatch.context() as patch:
        patch.setattr(queue.session.open().engine, "put", away)
        with pytest.raises(OutcomeUnknown, match=r"It is cancelled in the outbox.*: cancel again by the key"):
            queue.cancel(topic="t", key="k")
    assert len(asked) == 1  # who waits for it once need not wait for it again
    later(queue)
    assert queue.relay(wait=False) == 0
    assert queue.stats("t").pending == 0


def test_what_a_relay_tries_again_is_not_cancelled_in_a_transaction(
    queue: Queue, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = queue.send("t", 1, key="k", connection=own)
    own.commit()
    put_off(queue, monkeypatch)
    with pytest.raises(Unsupported, match="not while a relay has it or tries it again"):
        queue.cancel(sent, connection=own)
    own.rollback()
    assert queue.cancel(sent) is CancelResult.CANCELLED


def connected(store: str) -> Any:
    """For `with`."""
    return psycopg.connect(store) if "postgres" in store else closing(sqlite3.connect(store.removeprefix("sqlite://")))


def commit(queue: Queue, store: str, *keys: str | None) -> str:
    """A message for each key. Gives the id of the last."""
    queue.open()
    with connected(store) as own:
        *_, sent = [queue.send("t", 1, key=key, connection=own) for key in keys]
        own.commit()
    return sent.id


@pytest.mark.parametrize(
    ("error", "result"), [(Unavailable("It is away."), CancelResult.CANCELLED), (OutcomeUnknown("?"), CancelResult.RUNNING)]
)
def test_what_has_never_been_in_a_queue_that_can_not_cancel_is_cancelled(
    store: str, modest_url: str, monkeypatch: pytest.MonkeyPatch, error: Exception, result: CancelResult
) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise error

    with Queue(modest_url, outbox=store) as queue:
        id = commit(queue, store, None)
        monkeypatch.setattr(outbox_of(queue)._target, "put", fail)
        with pytest.raises(type(error)):
            queue.relay(wait=False)
        assert queue.cancel(id) is result


def test_what_waits_for_a_queue_that_can_not_move_is_not_moved(store: str, modest_url: str) -> None:
    with Queue(modest_url, outbox=store) as queue:
        id = commit(queue, store, None)
        with pytest.raises(Unsupported, match="cancel the message, and send it again"):
            queue.reschedule(id, delay=9)
        assert queue.cancel(id) is CancelResult.CANCELLED


def test_messages_with_a_key_that_the_queue_can_not_take_keep_no_other_back(
    store: str, modest_url: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many: none of them is looked for."""
    with Queue(url, outbox=store) as before:
        commit(before, store, *map(str, range(150)))
    with Queue(modest_url, outbox=store) as queue:
        commit(queue, store, None)
        monkeypatch.setattr(outbox_of(queue).waiting, "of", None)
        assert queue.relay(wait=False) == 1


def test_relays_beside_one_another_hand_on_all_that_has_a_few_keys(
    queue: Queue, other: Queue, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one holds back for another is tried again as soon as that one is done, without a look for what nobody tells of."""
    monkeypatch.setattr(sync_relay, "SWEEP", 1_000.0)
    for n in range(1_000):
        queue.send("t", n, key=f"k{n % 3}", if_exists="replace", delay="1h", connection=own)
    own.commit()
    with ThreadPoolExecutor() as pool:
        relays = [pool.submit(each.relay) for each in (queue, other)]
        until(lambda: holds(outbox_of(queue)) == 0)
        found = [queue.get(topic="t", key=f"k{n}") for n in range(3)]
        queue.close()
        other.close()
        assert sum(each.result() for each in relays) == 1_000
    assert {each.body for each in found if each is not None} == {997, 998, 999}


@pytest.mark.parametrize(
    ("holder", "keys"), [("relay", 1), ("transaction", 1), ("relay", 100)], ids=["relay", "transaction", "many"]
)
def test_what_waits_for_some_keys_holds_up_no_other_topic(
    queue: Queue, other: Queue, store: str, own: Any, holder: str, keys: int
) -> None:
    """A dead relay has the first ones, or somebody's transaction: more wait than are seen before the first are tried again."""
    if holder == "transaction" and store.startswith("sqlite"):
        pytest.skip("it can't lock one row there")
    many = 2_000 if keys == 1 else 5_000
    first = [queue.send("t", -1, key=f"k{key}", if_exists="replace", delay="1h", connection=own) for key in range(keys)]
    own.commit()
    if holder == "transaction":
        queue.cancel(first[0].id, connection=own)
    else:
        die(queue, after_put=False)
    with connected(store) as mine:
        for n in range(many):
            queue.send("t", n, key=f"k{n * keys // many}", if_exists="replace", delay="1h", connection=mine)
        queue.send("other", 0, connection=mine)
        mine.commit()
    with ThreadPoolExecutor() as pool:
        relay = pool.submit(other.relay)
        got = queue.receive("other", wait="20s")
        waiting = holds(outbox_of(queue))
        other.close()
        relay.result()
    assert [each.body for each in got] == [0]
    assert waiting >= keys + many


def test_the_newest_wins_although_an_earlier_one_is_due_later(queue: Queue, own: Any) -> None:
    """As after the clock of the database was set back."""
    old = queue.send("t", "old", key="k", if_exists="replace", delay="1h", connection=own)
    queue.send("t", "new", key="k", if_exists="replace", delay="1h", connection=own)
    for n in range(1_500):
        queue.send("t", n, delay="1h", connection=own)
    own.commit()
    [moved] = outbox_of(queue).store.reschedule([Move(Ref(old.id.removeprefix(outbox.PREFIX)), delay=0)])
    assert moved is RescheduleResult.MOVED
    until(lambda: queue.relay(wait=False) == 0 and holds(outbox_of(queue)) == 0)
    found = queue.get(topic="t", key="k")
    assert found is not None
    assert found.body == "new"


def test_a_relay_takes_again_what_it_handed_on_too_late_to_say_so(
    queue: Queue, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        queue.send("t", n, key="k", if_exists="replace", delay="1h", connection=own)
    own.commit()
    store = outbox_of(queue).store
    with monkeypatch.context() as late:
        late.setattr(store, "settle", lambda ends: ["lost"] * len(ends))
        queue.relay(wait=False)
    store.tend(now=time.time_ns() // 1_000_000 + 60_000)
    until(lambda: queue.relay(wait=False) == 0 and holds(outbox_of(queue)) == 0)
    found = queue.get(topic="t", key="k")
    assert found is not None
    assert found.body == 2


def test_a_relay_remembers_nothing_of_messages_without_keys(queue: Queue, own: Any) -> None:
    """However many it has handed on: only those of its last look at keys count."""
    queue.send_many("t", list(range(300)), connection=own)
    for n in range(2):  # of one key in two claims: the second one makes it look
        queue.send("t", n, key="k", if_exists="replace", connection=own)
        queue.send_many("t", list(range(150)), connection=own)
    own.commit()
    queue.relay(wait=False)
    turns = outbox_of(queue)._turns
    seen = set(turns._seen)
    for _ in range(5):
        queue.send_many("t", list(range(100)), connection=own)
        own.commit()
        assert queue.relay(wait=False) == 100
    assert turns._seen == seen
    assert turns._gone <= seen
