"""Cancels of many messages that may be in an outbox: each has its answer or its error, and one error tells of all."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import CancelResult, ConfirmTimeout, OutcomeUnknown, Queue, QueueFull, Unavailable, Unsupported
from bide.queue import outbox
from bide.queue.sync import withdrawal
from tests.queue.test_outbox_handed_on import die, later
from tests.queue.test_outbox_hooks import Spoils

CANCELLED, GONE, RUNNING = CancelResult.CANCELLED, CancelResult.GONE, CancelResult.RUNNING


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/app.db"


@pytest.fixture
def hook() -> Spoils:
    return Spoils()


@pytest.fixture
def queue(store: str, tmp_path: Path, hook: Spoils) -> Iterator[Queue]:
    with Queue(f"memory://{tmp_path.name}", outbox=store, hooks=[hook]) as queue:
        assert queue.relay(wait=False) == 0  # makes the tables
        yield queue


@pytest.fixture
def own(queue: Queue, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The caller's own connection."""
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        yield connection


def committed(queue: Queue, own: sqlite3.Connection, *bodies: Any, key: str | None = None) -> list[str]:
    """Their ids. Each replaces the one before, if they have a key."""
    sent = [queue.send("t", body, key=key, if_exists="replace" if key else "keep", connection=own).id for body in bodies]
    own.commit()
    return sent


def waits(queue: Queue) -> int:
    """How many are in the outbox."""
    found = queue.session.open().outbox
    assert found is not None
    stats = found.store.stats(outbox.TOPIC)
    return stats.pending + stats.leased


def unconfirmed(queue: Queue, monkeypatch: pytest.MonkeyPatch, *, calls: int = 99) -> None:
    """So many calls of cancel in the queue are done and not confirmed."""
    engine = queue.session.open().engine
    cancel, left = engine.cancel, [calls]

    def short(refs: Sequence[Any], **options: Any) -> Any:
        done = cancel(refs, **options)
        left[0] -= 1
        if left[0] < 0:
            return done
        raise ConfirmTimeout("Not confirmed.", answers=[None if each else each for each in done], done=done)

    monkeypatch.setattr(engine, "cancel", short)


def failing(queue: Queue, monkeypatch: pytest.MonkeyPatch, verb: str, error: Exception, *, after: int = 0) -> None:
    """The queue's engine, when it has been called so often."""
    engine = queue.session.open().engine
    call, left = getattr(engine, verb), [after]

    def fail(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise error
        return call(*args, **options)

    monkeypatch.setattr(engine, verb, fail)


@pytest.mark.parametrize(
    "cancel",
    [
        lambda queue, ids: queue.cancel(topic="t", key="k"),
        lambda queue, ids: queue.cancel(ids[0]),
        lambda queue, ids: queue.cancel_many(ids[-1:]),
    ],
    ids=["by key", "by id", "many"],
)
def test_all_of_a_key_are_cancelled_though_none_is_confirmed(
    cancel: Callable[[Queue, list[str]], object], queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = committed(queue, own, "old", "newer", "newest", key="k")
    unconfirmed(queue, monkeypatch)
    with pytest.raises(ConfirmTimeout, match=r"^Not confirmed\.$") as caught:
        cancel(queue, ids)
    assert caught.value.done == [CANCELLED]
    assert waits(queue) == 0
    assert queue.relay(wait=False) == 0
    assert queue.receive("t") == []


@pytest.mark.parametrize("size", [1_000, 2])
def test_two_ids_of_one_key_are_cancelled_once(
    size: int, queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the second one is looked for when the first is gone."""
    monkeypatch.setattr(withdrawal, "MAX_BATCH", size)
    old, new = committed(queue, own, "old", "new", key="k")
    first, second = committed(queue, own, 1, 2)
    assert queue.cancel_many([old, first, new, second]) == [CANCELLED, CANCELLED, GONE, CANCELLED]
    assert (waits(queue), queue.stats("t").pending) == (0, 0)


async def test_an_id_that_is_named_twice_is_cancelled_once(
    make_queue: Callable[..., Any], store: str, queue: Queue, own: sqlite3.Connection, tmp_path: Path
) -> None:
    async with make_queue(f"memory://{tmp_path.name}", outbox=store) as asked:
        [waiting] = committed(queue, own, 1)
        there = (await asked.send("t", 2)).id
        assert await asked.cancel_many([waiting, there, waiting, there]) == [CANCELLED, CANCELLED, GONE, GONE]


async def test_one_that_fails_leaves_no_other_untried(
    make_queue: Callable[..., Any], store: str, queue: Queue, own: sqlite3.Connection, tmp_path: Path
) -> None:
    hook = Spoils()
    async with make_queue(f"memory://{tmp_path.name}", outbox=store, hooks=[hook]) as asked:
        hook.bad = None
        waiting = [(await asked.send("t", body, connection=own)).id for body in ("one", "bad", "three")]
        own.commit()
        there = (await asked.send("t", "four")).id
        hook.bad = "bad"
        with pytest.raises(OutcomeUnknown, match=r"A hook has added headers.* 4 of 6 were answered\.$") as caught:
            await asked.cancel_many([*waiting, there, waiting[0], waiting[1]])
        assert caught.value.answers == [CANCELLED, None, CANCELLED, CANCELLED, GONE, None]
        assert ((await asked.stats("t")).pending, waits(queue)) == (0, 0)


def test_those_that_are_not_in_the_outbox_are_told_when_all_others_are_cancelled(queue: Queue, own: sqlite3.Connection) -> None:
    handed_on = committed(queue, own, 1, 2)
    queue.relay(wait=False)
    waiting = committed(queue, own, 3, 4)
    there = [sent.id for sent in queue.send_many("t", range(1_001))]
    asked = [handed_on[0], waiting[0], *there, handed_on[1], waiting[1]]
    told = rf"^{handed_on[0]} and 1 other are not in the outbox: .*name them by it\. 1,003 of 1,005 were done\.$"
    with pytest.raises(OutcomeUnknown, match=told) as caught:
        queue.cancel_many(asked)
    assert caught.value.answers == [None, *[CANCELLED] * 1_002, None, CANCELLED]
    assert queue.stats("t").pending == 2
    with pytest.raises(Unsupported, match="and 1 other are not in the outbox") as nothing:
        queue.cancel_many(handed_on)
    assert "were" not in str(nothing.value).partition("name them by it.")[2]


def test_those_that_a_relay_hands_on_meanwhile_are_cancelled_in_the_queue(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [*committed(queue, own, 1, 2), *committed(queue, own, 3, key="k")]
    found = queue.session.open().outbox
    assert found is not None
    get = found.store.get

    def get_and_relay(*args: Any, **options: Any) -> Any:
        stored = get(*args, **options)
        queue.relay(wait=False)
        return stored

    monkeypatch.setattr(found.store, "get", get_and_relay)
    assert queue.cancel_many(ids) == [CANCELLED] * 3
    assert (waits(queue), queue.stats("t").pending) == (0, 0)


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_not_confirmed_is_told_beside_the_others(
    fails: bool, queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the others are cancelled or not."""
    waiting = committed(queue, own, 1, 2)
    there = [sent.id for sent in queue.send_many("t", range(3))]
    if fails:
        failing(queue, monkeypatch, "cancel", Unavailable("It is away."), after=1)
    unconfirmed(queue, monkeypatch, calls=1)
    with pytest.raises(OutcomeUnknown) as caught:
        queue.cancel_many([there[0], *waiting, *there[1:], waiting[0]])
    assert isinstance(caught.value, ConfirmTimeout) is not fails
    known = None if fails else CANCELLED
    assert caught.value.done == [known, CANCELLED, CANCELLED, known, known, GONE]
    assert caught.value.answers == [known, None, None, known, known, GONE]
    assert str(caught.value) == (
        "It is away. 3 of 6 were answered, 2 of them not confirmed."
        if fails
        else "All 6 were answered, but 2 of them not confirmed: Not confirmed."
    )


def test_of_many_that_are_cancelled_in_the_queue_those_are_taken_back_whose_lease_has_ended(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay died after it had handed them on, and a receiver with them."""
    first, second = committed(queue, own, 1, 2)
    die(queue, after_put=True)
    assert len(queue.receive("t", limit=9, lease="1s")) == 2
    opened = queue.session.open()

    def take_back() -> bool:
        return bool(opened.engine.tend(now=time.time_ns() // 1_000_000 + 60_000).returned)

    monkeypatch.setattr(opened.receiver, "take_back", take_back)
    assert queue.cancel_many([first, second]) == [CANCELLED, CANCELLED]
    assert (waits(queue), queue.stats("t").pending, queue.stats("t").leased) == (0, 0, 0)


def test_one_that_runs_is_told_as_running(queue: Queue, own: sqlite3.Connection) -> None:
    [running] = committed(queue, own, "runs")
    die(queue, after_put=True)
    assert len(queue.receive("t")) == 1
    [waiting] = committed(queue, own, "waits")
    assert queue.cancel_many([running, waiting, running]) == [RUNNING, CANCELLED, RUNNING]


@pytest.mark.parametrize("verb", ["put", "cancel"])
def test_those_of_a_part_that_is_away_are_told_when_all_others_are_cancelled(
    verb: str, queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a Redis Cluster. What it was not handed stays out of the queue; what it can't cancel can be cancelled again."""
    ids = committed(queue, own, 1, 2, 3)
    engine = queue.session.open().engine
    call = getattr(engine, verb)

    def part(batch: Sequence[Any], **options: Any) -> Any:
        told = [*call(batch[:1], **options), None, *call(batch[2:], **options)]
        raise OutcomeUnknown("A part is away.", answers=told, done=told) from Unavailable("It is away.")

    with monkeypatch.context() as patch:
        patch.setattr(engine, verb, part)
        told = "It is away.* 2 of 3 were done" if verb == "put" else r"^It is away\. 2 of 3 were done\.$"
        with pytest.raises(OutcomeUnknown, match=told) as caught:
            queue.cancel_many(ids)
    assert caught.value.answers == [CANCELLED, None, CANCELLED]
    assert waits(queue) == (1 if verb == "cancel" else 0)
    if verb == "cancel":
        assert queue.cancel(ids[1]) is CANCELLED
    assert (queue.relay(wait=False), queue.stats("t").pending) == (0, 0)


def test_those_that_find_room_one_by_one_are_cancelled(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = committed(queue, own, 1, 2, 3)
    engine = queue.session.open().engine
    put = engine.put

    def full(batch: Sequence[Any], **options: Any) -> Any:
        if any(bytes(new.body) == b"2" for new in batch):
            raise QueueFull("It is full.")
        return put(batch, **options)

    monkeypatch.setattr(engine, "put", full)
    with pytest.raises(OutcomeUnknown, match=r"cancelled there.*It is full\. 2 of 3 were done\.$") as caught:
        queue.cancel_many(ids)
    assert caught.value.answers == [CANCELLED, None, CANCELLED]
    assert (queue.stats("t").pending, waits(queue)) == (0, 0)


def test_those_that_are_refused_one_by_one_wait_once_for_a_part_that_is_away(
    queue: Queue, own: sqlite3.Connection, hook: Spoils, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.bad = None
    ids = committed(queue, own, "bad", 2, 3, 4)
    hook.bad = "bad"
    engine = queue.session.open().engine
    put, alone = engine.put, list[int]()

    def away(batch: Sequence[Any], **options: Any) -> Any:
        if len(batch) > 1 or bytes(batch[0].body) == b'"bad"':
            return put(batch, **options)
        alone.append(1)
        raise Unavailable("It is away.")

    monkeypatch.setattr(engine, "put", away)
    with pytest.raises(OutcomeUnknown, match=r"A hook has added.*It is away\.$") as caught:
        queue.cancel_many(ids)
    assert (len(alone), list(caught.value.answers), waits(queue)) == (1, [None] * 4, 0)


@pytest.mark.parametrize("key", ["k", None])
def test_what_is_cancelled_and_can_not_leave_the_outbox_is_told_as_not_confirmed(
    key: str | None, queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has locked its row."""
    [id] = committed(queue, own, 1, key=key)
    found = queue.session.open().outbox
    assert found is not None

    def locked(*_: object, **__: object) -> Any:
        raise Unavailable("It is locked, so nothing was done.")

    with monkeypatch.context() as patch:
        patch.setattr(found.store, "cancel", locked)
        with pytest.raises(OutcomeUnknown, match=r"^It is cancelled in the queue.*cancel it again\. It is locked") as caught:
            queue.cancel(id)
    assert (caught.value.done, waits(queue), queue.stats("t").pending) == ([CANCELLED], 1, 0)
    assert queue.cancel(id) is GONE
    assert (waits(queue), queue.relay(wait=False), queue.stats("t").pending) == (0, 0, 0)


def test_what_the_queue_does_not_cancel_can_be_cancelled_again_by_its_id(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    [id] = committed(queue, own, 1)
    with monkeypatch.context() as patch:
        failing(queue, patch, "cancel", Unavailable("It is locked, so nothing was done."))
        with pytest.raises(Unavailable):
            queue.cancel(id)
    assert queue.cancel(id) is CANCELLED
    assert (waits(queue), queue.relay(wait=False), queue.stats("t").pending) == (0, 0, 0)


def test_those_in_the_queue_are_cancelled_though_the_outbox_is_away(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = committed(queue, own, 1, 2)
    there = queue.send("t", 3).id
    found = queue.session.open().outbox
    assert found is not None

    def away(*_: object, **__: object) -> Any:
        raise Unavailable("The outbox is away.")

    monkeypatch.setattr(found.store, "get", away)
    with pytest.raises(OutcomeUnknown, match=r"^The outbox is away\. 1 of 3 was done and 1 was not tried\.$") as caught:
        queue.cancel_many([*waiting, there])
    assert caught.value.answers == [None, None, CANCELLED]


def test_many_keys_are_looked_for_once(queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [id for key in "abcdef" for id in committed(queue, own, key, key=key)]
    found = queue.session.open().outbox
    assert found is not None
    scan, looks = found.store.scan, list[object]()

    def count(*args: Any, **options: Any) -> Any:
        looks.append(args)
        return scan(*args, **options)

    monkeypatch.setattr(found.store, "scan", count)
    assert queue.cancel_many(ids) == [CANCELLED] * 6
    assert len(looks) == 1


def test_of_many_for_a_queue_that_can_not_cancel_each_has_its_answer(
    store: str, modest_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Queue(modest_url, outbox=store) as queue:
        queue.relay(wait=False)
        with closing(sqlite3.connect(tmp_path / "app.db")) as own:
            tried = committed(queue, own, 1)
            found = queue.session.open().outbox
            assert found is not None
            found.store.claim([outbox.TOPIC], 1, 30_000)
            later(queue)
            waiting = committed(queue, own, 2, 3)
        with pytest.raises(OutcomeUnknown, match=r"^outbox-gone is not in the outbox.* 4 of 5 were answered\.$") as caught:
            queue.cancel_many([*tried, "outbox-gone", *waiting, waiting[0]])
        assert caught.value.answers == [RUNNING, None, CANCELLED, CANCELLED, GONE]
