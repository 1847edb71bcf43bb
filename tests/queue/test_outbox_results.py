"""What went through an outbox is asked for its result by the id that its sender was told."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import (
    AsyncQueue,
    BadOption,
    Queue,
    ResultCancelled,
    ResultFailed,
    ResultPending,
    ResultUnknown,
    Sent,
    Unavailable,
    Worker,
)
from bide.engines.results import Kept
from bide.errors import BadTime
from bide.queue.run.sync.keep import KeepStep


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/app.db"


@pytest.fixture
def queue(store: str, request: pytest.FixtureRequest) -> Iterator[Queue]:
    with Queue(f"memory://{request.node.name.replace('[', '.').rstrip(']')}", outbox=store) as queue:
        yield queue


@pytest.fixture
def own(queue: Queue, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The caller's own connection."""
    queue.relay(wait=False)
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        yield connection


@pytest.fixture
def add(queue: Queue) -> Any:
    @queue.task("add", keep="1h")
    def add(a: int, b: int) -> int:
        return a + b

    return add


def work(queue: Queue, *values: int) -> None:
    """As a worker does: results are kept, then the messages end."""
    opened = queue.session.open()
    held = queue.receive("add", limit=len(values))
    assert len(held) == len(values)
    step = KeepStep(opened.engine, queue.session.setup.envelope)
    kept = [Kept(each.id, 3_600_000, b"%d" % value) for each, value in zip(held, values, strict=True)]
    step.arrive([arrival for arrivals in step.fulfil(kept) for arrival in arrivals])
    assert queue.ack_many(held) == [True] * len(held)


@pytest.mark.parametrize("many", [False, True], ids=["send", "send_many"])
def test_each_step_of_a_message_is_told(queue: Queue, own: sqlite3.Connection, add: Any, many: bool) -> None:
    to = add.options(connection=own)
    sent: Sent = to.send_many([{"a": 1, "b": 2}])[0] if many else to.send(1, 2)
    with pytest.raises(ResultUnknown, match="is not committed or was rolled back"):
        sent.result(timeout=0)
    own.commit()
    with pytest.raises(ResultPending, match=f"Message {sent.id} is not done yet: it is in the outbox"):
        sent.result(timeout=0)
    assert queue.relay(wait=False) == 1
    with pytest.raises(ResultPending, match="is not done yet: it is ready"):
        sent.result(timeout=0)
    work(queue, 3)
    assert sent.result(timeout=0) == sent.result() == queue.result(sent.id) == 3


def test_what_was_rolled_back_never_was(own: sqlite3.Connection, add: Any) -> None:
    sent = add.options(connection=own).send(1, 2)
    own.rollback()
    with pytest.raises(ResultUnknown, match="was rolled back"):
        sent.result(timeout=0)


def test_a_message_that_was_cancelled_in_the_queue_is_told(queue: Queue, own: sqlite3.Connection, add: Any) -> None:
    sent = add.after("1h", key="k", connection=own).send(1, 2)
    own.commit()
    queue.relay(wait=False)
    assert add.cancel(key="k")
    with pytest.raises(ResultCancelled):
        sent.result(timeout=0)


def test_a_message_that_expired_in_the_outbox_is_told(
    queue: Queue, own: sqlite3.Connection, add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = add.options(expires_in="1m", connection=own).send(1, 2)
    own.commit()
    outbox = queue.session.open().outbox
    assert outbox is not None
    claim = outbox.store.claim
    monkeypatch.setattr(outbox.store, "claim", lambda *args: claim(*args, now=sent.due + 60_000))
    assert queue.relay(wait=False) == 1
    with pytest.raises(ResultCancelled, match="has expired"):
        sent.result(timeout=0)


def test_a_message_that_the_queue_refused_is_told(
    queue: Queue, own: sqlite3.Connection, add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = add.options(connection=own).send(1, 2)
    own.commit()

    def refuse(*_: object, **__: object) -> Any:
        raise BadTime("Not this one.")

    monkeypatch.setattr(queue.session.open().engine, "put", refuse)
    assert queue.relay(wait=False) == 1
    with pytest.raises(ResultFailed, match="Not this one"):
        sent.result(timeout=0)


def test_one_that_found_its_key_taken_has_the_result_of_the_other(queue: Queue, own: sqlite3.Connection, add: Any) -> None:
    first = add.options(key="k").send(1, 2)
    sent = add.options(key="k", connection=own).send(5, 5)
    own.commit()
    queue.relay(wait=False)
    work(queue, 3)
    assert first.result(timeout=0) == sent.result(timeout=0) == 3


def test_a_relay_that_dies_between_its_steps_loses_no_result(
    queue: Queue, own: sqlite3.Connection, add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = add.options(connection=own).send_many([{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    own.commit()
    outbox = queue.session.open().outbox
    assert outbox is not None

    def die(*_: object, **__: object) -> Any:
        raise Unavailable("The relay died here.")

    for part, verb in ((outbox.store.results, "fulfil"), (outbox.store, "settle")):
        with monkeypatch.context() as patch:
            patch.setattr(part, verb, die)
            with pytest.raises(Unavailable):
                queue.relay(wait=False)
        outbox.store.tend(now=outbox.store.claim([], 1, 1).now + 60_000)  # when the lease has ended
    assert queue.relay(wait=False) == 2
    work(queue, 3, 7)
    assert [each.result(timeout=0) for each in sent] == [3, 7]


def test_a_relay_that_does_not_know_the_task_keeps_its_ids(queue: Queue, own: sqlite3.Connection, add: Any, store: str) -> None:
    sent = add.options(connection=own).send(1, 2)
    own.commit()
    with Queue(f"memory://{queue.session.setup.settings.url.removeprefix('memory://')}", outbox=store) as relay:
        assert relay.relay(wait=False) == 1
    work(queue, 3)
    assert sent.result(timeout=0) == 3


def test_a_queue_without_the_outbox_says_so(queue: Queue) -> None:
    with Queue("memory://") as other, pytest.raises(BadOption, match="ask a queue with the same outbox="):
        other.result("outbox-1", timeout=0)


def test_tasks_without_keep_leave_nothing_in_the_outbox(queue: Queue, own: sqlite3.Connection, add: Any) -> None:
    queue.send("other", 1, connection=own)
    own.commit()
    queue.relay(wait=False)
    assert own.execute("select count(*) from bide_result").fetchone() == (0,)


async def test_a_worker_hands_on_and_keeps_what_is_waited_for(store: str, tmp_path: Path) -> None:
    queue = AsyncQueue("memory://test_a_worker_hands_on_and_keeps", outbox=store)

    @queue.task("add", keep="1h")
    async def add(a: int, b: int) -> int:
        return a + b

    async with queue, Worker(queue):
        with closing(sqlite3.connect(tmp_path / "app.db")) as own:
            await queue.relay(wait=False)
            sent = await add.options(connection=own).send(1, 2)
            own.commit()
        assert await sent.result(timeout="30s") == 3
