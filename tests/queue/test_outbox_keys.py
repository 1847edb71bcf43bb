"""Messages with a key on their way through an outbox: their order, and what cancel, reschedule and get say of them."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bide import CancelResult, OutcomeUnknown, Queue, RescheduleResult, Unavailable, Unsupported
from bide.engines.base import Claim
from bide.queue import outbox


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/app.db"


@pytest.fixture(params=["memory", "sqlite", pytest.param("redis", marks=pytest.mark.server)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory://{request.node.name.replace('[', '.').rstrip(']')}"
    if request.param == "redis":
        found: str = request.getfixturevalue("redis_url")
        return found
    return f"sqlite:///{tmp_path}/queue.db"


@pytest.fixture
def queue(store: str, url: str) -> Iterator[Queue]:
    with Queue(url, outbox=store) as queue:
        queue.open()
        yield queue


@pytest.fixture
def own(queue: Queue, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        yield connection


def committed(queue: Queue, own: sqlite3.Connection, body: object, **options: Any) -> str:
    sent = queue.send("t", body, key="k", connection=own, **{"if_exists": "replace", **options})
    own.commit()
    return sent.id


def die(queue: Queue, *, after_put: bool = False) -> None:
    """What a relay does that dies between its claim and its put, or after that."""
    found = queue.session.open().outbox
    assert found is not None
    claim = found.store.claim([outbox.TOPIC], 100, 30_000)
    if after_put:
        queue.session.open().engine.put([new for each in claim.messages if (new := outbox.handed_on(each, claim.now))])


def later(queue: Queue) -> None:
    """When the leases of dead relays have ended, and pauses are over."""
    found = queue.session.open().outbox
    assert found is not None
    found.store.tend(now=time.time_ns() // 1_000_000 + 60_000)


def bodies(queue: Queue) -> list[Any]:
    found = queue.receive("t", limit=9)
    queue.ack_many(found)
    return [each.body for each in found]


@pytest.mark.parametrize("after_put", [False, True])
def test_an_older_send_does_not_win_over_a_newer_one_when_its_relay_has_died(
    after_put: bool, queue: Queue, own: sqlite3.Connection
) -> None:
    committed(queue, own, "old")
    die(queue, after_put=after_put)
    committed(queue, own, "new")
    queue.send("t", "of another key", key="other", connection=own)
    own.commit()
    assert queue.relay(wait=False) == 1  # of another key: the new one waits for the old one
    later(queue)
    assert queue.relay(wait=False) == 2
    info = queue.get(topic="t", key="k")
    assert info is not None
    assert info.body == "new"
    assert sorted(bodies(queue)) == ["new", "of another key"]


def test_what_a_dead_relay_had_is_taken_over_though_each_look_finds_a_later_one_of_its_key(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By who calls `relay(wait=False)` from time to time."""
    monkeypatch.setattr("bide.queue.sync.relay.SWEEP", 0.0)
    committed(queue, own, "old")
    queue.send("t", "of another key", key="other", connection=own)
    own.commit()
    found = queue.session.open().outbox
    assert found is not None
    assert len(found.store.claim([outbox.TOPIC], 100, 1).messages) == 2  # by a relay that dies
    committed(queue, own, "new")
    handed_on = 0
    while handed_on < 3:
        handed_on += queue.relay(wait=False)
    assert sorted(bodies(queue)) == ["new", "of another key"]


def test_the_last_of_many_values_wins_while_relays_die(queue: Queue, own: sqlite3.Connection) -> None:
    for value in range(12):
        committed(queue, own, value)
        if value % 3 == 1:
            die(queue, after_put=value % 2 == 0)
        if value % 4 == 3:
            queue.relay(wait=False)
    own_outbox = queue.session.open().outbox
    assert own_outbox is not None
    while (stats := own_outbox.store.stats()).pending + stats.leased:
        later(queue)
        queue.relay(wait=False)
    assert bodies(queue) == [11]


def test_what_is_cancelled_before_it_was_handed_on_never_runs(queue: Queue, own: sqlite3.Connection) -> None:
    committed(queue, own, 1)
    assert queue.cancel(topic="t", key="k") is CancelResult.CANCELLED
    assert queue.cancel(topic="t", key="k") is CancelResult.GONE
    assert queue.relay(wait=False) == 0
    assert bodies(queue) == []


def test_what_is_cancelled_by_the_id_that_its_sender_was_told_never_runs(queue: Queue, own: sqlite3.Connection) -> None:
    ids = [committed(queue, own, 1), str(queue.send("t", 2, connection=own))]
    own.commit()
    direct = queue.send("t", 3)
    assert queue.cancel_many([direct, *ids]) == [CancelResult.CANCELLED] * 3
    assert queue.relay(wait=False) == 0
    assert bodies(queue) == []


def test_an_id_that_has_left_the_outbox_is_not_called_gone(queue: Queue, own: sqlite3.Connection) -> None:
    id = committed(queue, own, 1)
    queue.relay(wait=False)
    for call in (queue.cancel, queue.get, lambda each: queue.reschedule(each, delay=1)):
        with pytest.raises(Unsupported, match="Give messages a key"):
            call(id)


def cancel(queue: Queue, _id: str) -> CancelResult:
    return queue.cancel(topic="t", key="k")


def cancel_by_id(queue: Queue, id: str) -> CancelResult:
    return queue.cancel(id)


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("by", [cancel, cancel_by_id])
def test_what_is_cancelled_while_a_relay_has_it_never_runs(
    by: Callable[[Queue, str], CancelResult], dies: bool, queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = committed(queue, own, 1)
    if dies:
        die(queue)
        assert by(queue, id) is CancelResult.CANCELLED
        later(queue)
        queue.relay(wait=False)
    else:
        found = queue.session.open().outbox
        assert found is not None
        claim = found.store.claim
        answers: list[CancelResult] = []

        def claim_and_be_slow(*args: Any, **options: Any) -> Claim:
            claimed = claim(*args, **options)
            if claimed.messages:
                answers.append(by(queue, id))
            return claimed

        monkeypatch.setattr(found.store, "claim", claim_and_be_slow)
        queue.relay(wait=False)
        assert answers == [CancelResult.CANCELLED]
    assert bodies(queue) == []
    stats = queue.stats("t")
    assert stats.pending == 0


def test_what_a_relay_has_put_and_not_ended_is_cancelled_in_the_queue(queue: Queue, own: sqlite3.Connection) -> None:
    committed(queue, own, 1, delay="1h")
    die(queue, after_put=True)
    assert queue.cancel(topic="t", key="k") is CancelResult.CANCELLED
    later(queue)
    queue.relay(wait=False)
    assert queue.stats("t").pending == 0


def test_what_runs_already_is_running(queue: Queue, own: sqlite3.Connection) -> None:
    committed(queue, own, 1)
    die(queue, after_put=True)
    [held] = queue.receive("t")
    assert queue.cancel(topic="t", key="k") is CancelResult.RUNNING
    held.ack()


def test_a_successor_that_waits_is_cancelled_while_the_one_before_it_runs(queue: Queue, own: sqlite3.Connection) -> None:
    """As it is a moment later, when it is in the queue."""
    queue.send("t", "runs", key="k")
    [running] = queue.receive("t")
    for relayed in (False, True):
        committed(queue, own, "successor", delay="1h")
        if relayed:
            queue.relay(wait=False)
        assert queue.cancel(topic="t", key="k") is CancelResult.CANCELLED
    running.ack()
    assert queue.relay(wait=False) == 0


def test_what_was_cancelled_in_the_outbox_is_told_though_the_queue_does_not_answer(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("It does not answer.")

    committed(queue, own, 1)
    found = queue.session.open()
    with monkeypatch.context() as patch:
        for verb in ("put", "cancel"):
            patch.setattr(found.engine, verb, away)
        with pytest.raises(OutcomeUnknown, match=r"It is cancelled in the outbox.*cancel again.*does not answer"):
            queue.cancel(topic="t", key="k")
        with pytest.raises(Unavailable):
            queue.cancel(topic="t", key="k")
    assert queue.cancel(topic="t", key="k") is CancelResult.GONE
    assert queue.relay(wait=False) == 0


def test_all_that_waits_with_a_key_is_cancelled(queue: Queue, own: sqlite3.Connection) -> None:
    queue.send("t", "in the queue", key="k", delay="1h")
    for value in range(3):
        committed(queue, own, value)
    assert queue.cancel(topic="t", key="k") is CancelResult.CANCELLED
    assert queue.relay(wait=False) == 0
    assert queue.stats("t").pending == 0


@pytest.mark.parametrize("by_id", [False, True])
def test_a_message_is_moved_before_it_was_handed_on(by_id: bool, queue: Queue, own: sqlite3.Connection) -> None:
    committed(queue, own, "first", delay="1h")
    id = committed(queue, own, "second", delay="1h")
    which: dict[str, Any] = {"message": id} if by_id else {"topic": "t", "key": "k"}
    assert queue.reschedule(**which, delay="2h") is RescheduleResult.MOVED
    assert queue.relay(wait=False) == 0
    info = queue.get(topic="t", key="k")
    assert info is not None
    assert info.body == "second"
    assert time.time() + 7000 < info.due / 1000 < time.time() + 7300
    assert queue.stats("t").pending == 1


def test_a_message_is_shown_before_it_was_handed_on(queue: Queue, own: sqlite3.Connection) -> None:
    id = committed(queue, own, {"a": 1}, delay="1h", priority="high", headers={"h": "1"})
    for info in (queue.get(id), queue.get(topic="t", key="k")):
        assert info is not None
        assert (info.id, info.topic, info.key, info.body) == (id, "t", "k", {"a": 1})
        assert (info.state, info.priority, info.headers) == ("scheduled", "high", {"h": "1"})
        assert 3500 < info.due / 1000 - time.time() < 3700


def test_what_was_cancelled_in_the_queue_is_not_shown_though_a_dead_relay_has_it_still(
    queue: Queue, own: sqlite3.Connection
) -> None:
    committed(queue, own, 1, delay="1h")
    die(queue, after_put=True)
    assert queue.get(topic="t", key="k").body == 1  # type: ignore[union-attr]
    assert queue.cancel(topic="t", key="k") is CancelResult.CANCELLED
    assert queue.get(topic="t", key="k") is None
    committed(queue, own, 2, delay="1h")
    die(queue)
    assert queue.get(topic="t", key="k").body == 2  # type: ignore[union-attr]


def test_in_the_same_transaction_it_is_cancelled_by_its_id(queue: Queue, own: sqlite3.Connection) -> None:
    for ending in (own.rollback, own.commit):
        id = committed(queue, own, 1)
        assert queue.cancel(id, connection=own) is CancelResult.CANCELLED
        ending()
    sent = queue.send("t", 2, key="k", connection=own)
    assert queue.cancel(sent, connection=own) is CancelResult.CANCELLED
    with pytest.raises(Unsupported, match="without connection="):
        queue.cancel(topic="t", key="k", connection=own)
    own.commit()
    assert queue.relay(wait=False) == 1  # of the cancel that was rolled back
    assert queue.cancel(topic="t", key="k") is CancelResult.CANCELLED


def test_it_is_found_among_more_than_one_look_takes_in(queue: Queue, own: sqlite3.Connection) -> None:
    queue.send_many("t", list(range(1_200)), connection=own)
    committed(queue, own, "keyed")
    die(queue)
    assert queue.cancel(topic="t", key="k") is CancelResult.CANCELLED
    assert queue.cancel(topic="t", key="k") is CancelResult.GONE


def test_a_message_that_is_handed_on_while_it_is_cancelled_by_its_id_is_cancelled_in_the_queue(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = queue.send("t", 1, connection=own)
    own.commit()
    found = queue.session.open().outbox
    assert found is not None
    cancel = found.store.cancel

    def relay_first(*args: Any, **options: Any) -> list[CancelResult]:
        queue.relay(wait=False)
        return cancel(*args, **options)

    monkeypatch.setattr(found.store, "cancel", relay_first)
    assert queue.cancel(sent) is CancelResult.CANCELLED
    assert bodies(queue) == []


def test_many_that_wait_for_a_dead_relay_keep_no_others_back(queue: Queue, own: sqlite3.Connection) -> None:
    committed(queue, own, 0)
    die(queue)
    for value in range(1, 151):
        queue.send("t", value, key="k", if_exists="replace", connection=own)
    queue.send("t", "of another key", key="other", connection=own)
    own.commit()
    assert queue.relay(wait=False) == 1
    assert bodies(queue) == ["of another key"]
    later(queue)
    while queue.relay(wait=False):
        later(queue)
    assert bodies(queue) == [150]


def test_messages_of_several_outboxes_arrive_though_their_ids_are_equal(
    url: str, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.engines.sqlite.change.os", SimpleNamespace(urandom=bytes))  # what else tells ids apart
    ids = set()
    for name in ("one", "two"):
        with Queue(url, outbox=f"sqlite:///{tmp_path}/{name}.db") as shop:
            shop.open()
            with closing(sqlite3.connect(tmp_path / f"{name}.db")) as own:
                ids.add(shop.send("t", name, connection=own).id)
                own.commit()
            assert shop.relay(wait=False) == 1
    assert len(ids) == 1
    assert sorted(bodies(queue)) == ["one", "two"]
