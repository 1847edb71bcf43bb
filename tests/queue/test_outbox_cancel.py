"""Cancels of many messages that may be in an outbox: each has its answer or its error, and one error tells of all."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import CancelResult, ConfirmTimeout, OutcomeUnknown, Queue, QueueFull, TooLarge, Unavailable, Unsupported
from bide.engines.base import End, Ref
from bide.engines.each import keep_each
from bide.queue import outbox
from bide.queue.sync import outbox_changes
from tests.queue.test_outbox_handed_on import die, later, outbox_of
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
    stats = outbox_of(queue).store.stats(outbox.TOPIC)
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
def test_of_two_ids_of_one_key_each_is_told_what_became_of_its_own_message(
    size: int, queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the second one is looked for when both are gone."""
    monkeypatch.setattr(outbox_changes, "MAX_BATCH", size)
    old, new = committed(queue, own, "old", "new", key="k")
    first, second = committed(queue, own, 1, 2)
    assert queue.cancel_many([old, first, new, second, old, new]) == [CANCELLED] * 4 + [GONE] * 2
    assert (waits(queue), queue.stats("t").pending) == (0, 0)
    [old] = committed(queue, own, "old", key="k")
    die(queue, after_put=True)
    [delivery] = queue.receive("t")
    delivery.ack()
    [new] = committed(queue, own, "new", key="k")
    assert queue.cancel_many([old, new]) == [GONE, CANCELLED]
    [old] = committed(queue, own, "old", key="k")
    die(queue, after_put=True)
    assert len(queue.receive("t")) == 1
    [new] = committed(queue, own, "new", key="k")
    assert queue.cancel_many([new, old]) == [CANCELLED, RUNNING]
    assert queue.cancel(topic="t", key="k") is RUNNING


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
        with pytest.raises(
            OutcomeUnknown, match=r"^4 of 6 were answered\. Of the others: .*A hook has added headers"
        ) as caught:
            await asked.cancel_many([*waiting, there, waiting[0], waiting[1]])
        assert caught.value.answers == [CANCELLED, None, CANCELLED, CANCELLED, GONE, None]
        assert ((await asked.stats("t")).pending, waits(queue)) == (0, 0)


def test_those_that_are_not_in_the_outbox_are_told_when_all_others_are_cancelled(queue: Queue, own: sqlite3.Connection) -> None:
    handed_on = committed(queue, own, 1, 2)
    queue.relay(wait=False)
    waiting = committed(queue, own, 3, 4)
    there = [sent.id for sent in queue.send_many("t", range(1_001))]
    asked = [handed_on[0], waiting[0], *there, handed_on[1], waiting[1]]
    told = rf"^1,003 of 1,005 were done\. Of the others: {handed_on[0]} and 1 other are not in the outbox: .*name them by it\.$"
    with pytest.raises(OutcomeUnknown, match=told) as caught:
        queue.cancel_many(asked)
    assert caught.value.answers == [None, *[CANCELLED] * 1_002, None, CANCELLED]
    assert queue.stats("t").pending == 2
    with pytest.raises(Unsupported, match=rf"^{handed_on[0]} and 1 other are not in the outbox"):
        queue.cancel_many(handed_on)


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
        "3 of 6 were answered, 2 of them not confirmed. Of the others: It is away."
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
    queue.session.open().engine.tend(now=time.time_ns() // 1_000_000 + 60_000)  # its lease has ended
    assert queue.cancel(running) is CANCELLED
    assert (waits(queue), queue.stats("t").pending) == (0, 0)


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
        with pytest.raises(OutcomeUnknown, match=r"^2 of 3 were done\. Of the others: .*It is away\.$") as caught:
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
    with pytest.raises(
        OutcomeUnknown, match=r"^2 of 3 were done\. Of the others: It is cancelled in the outbox.*full\.$"
    ) as caught:
        queue.cancel_many(ids)
    assert caught.value.answers == [CANCELLED, None, CANCELLED]
    assert (queue.stats("t").pending, waits(queue)) == (0, 0)


def test_those_that_are_refused_one_by_one_wait_twice_for_a_part_that_is_away(
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
    assert (len(alone), list(caught.value.answers), waits(queue)) == (2, [None] * 4, 0)


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
        with pytest.raises(
            OutcomeUnknown, match=r"^It is cancelled in the queue.*again\. The outbox says: It is locked"
        ) as caught:
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


@pytest.mark.parametrize("error", [QueueFull("It is full."), Unavailable("It is away."), TooLarge("It is too large.")])
@pytest.mark.parametrize("key", ["k", None])
def test_what_a_relay_may_have_sent_can_be_named_when_the_queue_has_not_taken_it(
    key: str | None, error: Exception, queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its key in the queue, or else it stays in the outbox."""
    [id] = committed(queue, own, 1, key=key)
    die(queue, after_put=True)
    with monkeypatch.context() as patch:
        failing(queue, patch, "put", error)
        how = "cancel again by the key" if key else "stays in the outbox: cancel it again by its id"
        with pytest.raises(OutcomeUnknown, match=rf"{how}\. The queue says: {error}$"):
            queue.cancel(id)
    # whether it could be asked by the key
    there = 0 if key and isinstance(error, TooLarge) else 1
    assert (waits(queue), queue.stats("t").pending) == (0 if key else 1, there)
    if key:
        assert bool(queue.cancel(topic="t", key=key)) is bool(there)
    else:
        assert queue.cancel(id) is CANCELLED
    assert (waits(queue), queue.relay(wait=False), queue.stats("t").pending) == (0, 0, 0)


def test_what_the_queue_refuses_is_cancelled_if_no_relay_had_it(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [*committed(queue, own, 1, 2, key="k"), *committed(queue, own, 3)]
    failing(queue, monkeypatch, "put", TooLarge("It is too large."))
    assert queue.cancel_many(ids) == [CANCELLED] * 3
    assert waits(queue) == 0


@pytest.mark.parametrize("key", ["k", None])
def test_what_a_relay_gives_back_meanwhile_leaves_the_outbox(
    key: str | None, queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    [id] = committed(queue, own, 1, key=key)
    store = outbox_of(queue).store
    [held] = store.claim([outbox.TOPIC], 9, 30_000).messages
    cancel = store.cancel

    def cancel_and_release(refs: Sequence[Any], **options: Any) -> Any:
        told = cancel(refs, **options)
        store.settle([End(outbox.TOPIC, held.id, held.token, "release")])
        return told

    with monkeypatch.context() as patch:
        patch.setattr(store, "cancel", cancel_and_release)
        assert queue.cancel(id) is CANCELLED
    assert waits(queue) == 0
    again = committed(queue, own, 1, key=key)
    store.claim([outbox.TOPIC], 9, 30_000)
    monkeypatch.setattr(store, "settle", lambda ends: ["lost"] * len(ends))  # others claim it again and again
    with pytest.raises(OutcomeUnknown, match=r"it could not be taken out of the outbox.*A relay has it\.$") as caught:
        queue.cancel_many(again)
    assert caught.value.done == [CANCELLED]


def test_one_that_is_locked_in_the_outbox_keeps_no_other_there(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = committed(queue, own, 1, 2, 3)
    store = outbox_of(queue).store
    cancel = store.cancel

    def locked(refs: Sequence[Any], **options: Any) -> Any:
        if any(ids[1].endswith(ref.id) for ref in refs):
            raise Unavailable("It is locked, so nothing was done.")
        return cancel(refs, **options)

    monkeypatch.setattr(store, "cancel", locked)
    with pytest.raises(
        OutcomeUnknown, match=r"^3 of 3 were done, 1 of them not confirmed: It is .*, but it could not be"
    ) as caught:
        queue.cancel_many(ids)
    assert (caught.value.answers, caught.value.done) == ([CANCELLED, None, CANCELLED], [CANCELLED] * 3)
    assert waits(queue) == 1


def test_a_queue_that_is_away_is_waited_for_twice_by_all_parts_of_a_call(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_changes, "MAX_BATCH", 2)
    ids = committed(queue, own, *range(6))
    calls: list[object] = []

    def away(*_: object, **__: object) -> Any:
        calls.append(1)
        raise OutcomeUnknown("No answer.")

    with monkeypatch.context() as patch:
        patch.setattr(queue.session.open().engine, "put", away)
        with pytest.raises(OutcomeUnknown, match=r"^No answer\.$"):
            queue.cancel_many(ids)
    assert (len(calls), waits(queue)) == (2, 6)
    assert queue.cancel_many(ids) == [CANCELLED] * 6


def test_a_message_that_another_transaction_holds_keeps_no_later_ones_back(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_changes, "MAX_BATCH", 2)
    ids = committed(queue, own, *range(6))
    engine = queue.session.open().engine
    put = engine.put

    def locked(batch: Sequence[Any], **options: Any) -> Any:
        if bytes(batch[0].body) == b"0":
            raise Unavailable("Another transaction holds it, so nothing was done.")
        return put(batch, **options)

    monkeypatch.setattr(engine, "put", locked)
    with pytest.raises(OutcomeUnknown) as caught:
        queue.cancel_many(ids)
    assert caught.value.answers == [None, None, *[CANCELLED] * 4]


def test_all_that_are_missing_are_told_in_one_sentence(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_changes, "MAX_BATCH", 2)
    with pytest.raises(Unsupported, match=r"^outbox-a and 4 others are not in the outbox: [^:]+$"):
        queue.cancel_many([f"outbox-{name}" for name in "abcde"])


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
    with pytest.raises(OutcomeUnknown, match=r"^1 of 3 was done\. Of the others: The outbox is away\.$") as caught:
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
        with pytest.raises(OutcomeUnknown, match=r"^4 of 5 were answered\. Of the others: outbox-gone is not in") as caught:
            queue.cancel_many([*tried, "outbox-gone", *waiting, waiting[0]])
        assert caught.value.answers == [RUNNING, None, CANCELLED, CANCELLED, GONE]


def test_of_a_queue_that_can_not_cancel_those_are_told_that_left_the_outbox(
    store: str, modest_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also those that have a key, as the queue before had keys, and if the outbox is away at the end."""
    with (
        Queue(modest_url, outbox=store) as queue,
        Queue("memory://before", outbox=store) as before,
        closing(sqlite3.connect(tmp_path / "app.db")) as own,
    ):
        queue.relay(wait=False)
        keyed = committed(before, own, 1, 2, key="k")
        assert queue.cancel_many(keyed) == [CANCELLED] * 2
        ids = committed(queue, own, 3, 4)
        asked = outbox_of(queue).store
        cancel, get, away = asked.cancel, asked.get, list[int]()

        def one_is_gone(refs: Sequence[Any], **options: Any) -> Any:
            away.append(1)
            return [GONE, *cancel(refs, **options)[1:]]

        def fails_after_that(*args: Any, **options: Any) -> Any:
            if away:
                raise Unavailable("The outbox is away.")
            return get(*args, **options)

        monkeypatch.setattr(asked, "cancel", one_is_gone)
        monkeypatch.setattr(asked, "get", fails_after_that)
        with pytest.raises(OutcomeUnknown, match=r"The outbox is away\.$") as caught:
            queue.cancel_many(ids)
        assert caught.value.answers == [None, CANCELLED]


def test_each_that_a_part_of_the_queue_has_not_taken_is_told_its_own_error(
    queue: Queue, own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = committed(queue, own, "one", "another")
    errors = [Unavailable("One is away."), Unavailable("Another is away.")]
    failing(queue, monkeypatch, "put", keep_each(OutcomeUnknown("Two parts are away.", answers=[None, None]), errors))
    told = outbox_of(queue).withdrawal(queue.session.engine().cancel).cancel([Ref(id) for id in ids], None)
    assert [str(each).partition("says: ")[2] for each in told] == ["One is away.", "Another is away."]
