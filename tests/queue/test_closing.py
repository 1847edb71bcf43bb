"""A queue that is closed amid what others receive: nothing stays leased to nobody, and nobody waits for ever."""

import asyncio
import functools
import os
import sqlite3
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from bide import AsyncQueue, Call, Hook, LeaseLost, Queue, Unavailable
from bide.queue.aio.claims import NAP

PATIENCE = 30.0  # seconds
ROUNDS = 40
MANY = 100


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.server)])
def place(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "memory":
        return f"memory://{uuid.uuid4()}"
    return str(request.getfixturevalue("redis_url")) if request.param == "redis" else f"sqlite:///{tmp_path}/bide.db"


class Answer(NamedTuple):
    """Of a claim, which is held back."""

    is_there: asyncio.Event
    may_come: asyncio.Event


@asynccontextmanager
async def answer_held(queue: AsyncQueue) -> AsyncIterator[Answer]:
    opened = await queue.session.open()
    answer, real = Answer(asyncio.Event(), asyncio.Event()), opened.engine.claim

    async def claim(*asked: Any, **options: Any) -> Any:
        found = await real(*asked, **options)
        if not answer.is_there.is_set():
            answer.is_there.set()
            await answer.may_come.wait()
        return found

    with patch.object(opened.engine, "claim", claim):
        yield answer


def received_anew(place: str) -> list[tuple[Any, int]]:
    """The bodies, and which attempt it is."""
    with Queue(place) as after:
        return [(each.body, each.attempt) for each in after.receive("t", limit=100)]


THREE = [(0, 1), (1, 1), (2, 1)]


async def test_what_a_listener_has_not_looked_at_is_given_back(place: str) -> None:
    queue = AsyncQueue(place)
    await queue.send_many("t", range(4))
    deliveries = queue.listen("t", limit=10)
    await (await anext(deliveries)).ack()
    await queue.close()
    assert received_anew(place) == [(1, 1), (2, 1), (3, 1)]
    with pytest.raises(StopAsyncIteration):
        await anext(deliveries)


async def test_what_a_receive_has_while_it_lingers_is_given_back(place: str) -> None:
    queue = AsyncQueue(place)
    await queue.send_many("t", range(3))
    opened = await queue.session.open()
    lingers, real = asyncio.Event(), opened.engine.wait

    async def wait(*asked: Any) -> None:
        lingers.set()
        await real(*asked)

    with patch.object(opened.engine, "wait", wait):
        receiving = asyncio.create_task(queue.receive("t", limit=9, linger="10s"))
        await lingers.wait()
        await queue.close()
        with pytest.raises(Unavailable, match="is closed"):
            await receiving
    assert received_anew(place) == THREE


@pytest.mark.parametrize("closes", [1, 2])
@pytest.mark.parametrize("how", ["receive", "listen"])
async def test_what_a_claim_brings_meanwhile_is_given_back(place: str, how: str, closes: int) -> None:
    queue = AsyncQueue(place)
    await queue.send_many("t", range(3))
    async with answer_held(queue) as answer:
        got: Any = queue.receive("t", limit=3) if how == "receive" else anext(queue.listen("t", limit=3))
        receiving = asyncio.ensure_future(got)
        await answer.is_there.wait()
        closing = [asyncio.create_task(queue.close()) for _ in range(closes)]
        await asyncio.sleep(10 * NAP)  # it looks several times, and freezes nobody meanwhile
        assert not any(each.done() for each in closing)
        answer.may_come.set()
        await asyncio.gather(*closing)
    with pytest.raises(Unavailable if how == "receive" else StopAsyncIteration):
        await receiving
    assert received_anew(place) == THREE


@pytest.mark.parametrize("ends", ["hangs", "is cancelled"])
async def test_what_a_claim_has_taken_that_a_close_does_not_wait_for_is_given_back(
    place: str, ends: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The claim hangs, or the close is cancelled."""
    if ends == "hangs":
        monkeypatch.setattr("bide.queue.aio.claims.SWEEP", 4 * NAP)
    queue = AsyncQueue(place)
    await queue.send_many("t", range(3))
    async with answer_held(queue) as answer:
        receiving = asyncio.create_task(queue.receive("t", limit=3))
        await answer.is_there.wait()
        closing = asyncio.create_task(queue.close())
        if ends == "is cancelled":
            await asyncio.sleep(4 * NAP)
            closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        assert closing.cancelled() is (ends == "is cancelled")
        assert received_anew(place) == THREE
        answer.may_come.set()
        with pytest.raises(Unavailable):
            await receiving
    await queue.close()
    assert "could not be given back" not in caplog.text


@asynccontextmanager
async def one_give_back_hangs(queue: AsyncQueue) -> AsyncIterator[asyncio.Event]:
    """Is set when that has been asked for."""
    opened = await queue.session.open()
    is_asked, real = asyncio.Event(), opened.engine.settle

    async def hang_once(*asked: Any) -> Any:
        if not is_asked.is_set():
            is_asked.set()
            await asyncio.Event().wait()
        return await real(*asked)

    with patch.object(opened.engine, "settle", hang_once):
        yield is_asked


@pytest.mark.parametrize("who", ["the listener", "the close", "the close, which the listener has met"])
async def test_what_was_cut_short_as_it_went_back_goes_back_in_the_end(place: str, who: str) -> None:
    queue = AsyncQueue(place)
    await queue.send_many("t", range(3))
    deliveries = queue.listen("t", limit=3)
    await (await anext(deliveries)).ack()
    async with one_give_back_hangs(queue) as is_asked:
        leaving: Any = deliveries.aclose() if who == "the listener" else queue.close()
        ending = asyncio.ensure_future(leaving)
        await is_asked.wait()
        if "met" in who:
            with pytest.raises(StopAsyncIteration):
                await anext(deliveries)
        ending.cancel()
        await asyncio.wait({ending})
        await queue.close()
    assert received_anew(place) == [(1, 1), (2, 1)]


class Closing(Hook):
    """Closes the queue, in the middle of its own claim."""

    queue: Queue | None = None

    def after(self, call: Call) -> None:
        if call.verb == "claim" and (queue := self.queue) is not None:
            self.queue = None
            queue.close()


def test_a_close_does_not_wait_for_the_claim_that_it_interrupts(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.queue.sync.claims.SWEEP", 3_600.0)
    hook = Closing()
    queue = Queue(place, hooks=[hook])
    queue.send_many("t", range(3))
    told: list[str] = []

    def receive() -> None:
        hook.queue = queue
        try:
            queue.receive("t", limit=3)
        except Unavailable as error:
            told.append(str(error))

    receiving = threading.Thread(target=receive, daemon=True)
    receiving.start()
    receiving.join(PATIENCE)
    assert told == ["The queue is closed: make a new one."]
    assert received_anew(place) == THREE


async def test_a_listener_that_is_full_ends(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.queue.aio.receive.SWEEP", 4 * NAP)
    queue = AsyncQueue(place)
    await queue.send_many("t", range(3))
    deliveries = queue.listen("t", limit=2)
    _held = [await anext(deliveries), await anext(deliveries)]
    following = asyncio.ensure_future(anext(deliveries))
    await queue.close()
    with pytest.raises(StopAsyncIteration):
        async with asyncio.timeout(PATIENCE):
            await following


def test_a_close_in_another_thread_ends_a_listen_without_an_error(place: str) -> None:
    queue = Queue(place)
    queue.send_many("t", range(3))
    seen: list[object] = []
    all_seen = threading.Event()

    def consume() -> None:
        for delivery in queue.listen("t"):
            with delivery:
                seen.append(delivery.body)
            if len(seen) == 3:
                all_seen.set()
        seen.append("ended")

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    assert all_seen.wait(PATIENCE)
    queue.close()
    consumer.join(PATIENCE)
    assert seen == [0, 1, 2, "ended"]
    with pytest.raises(Unavailable, match="is closed"):
        next(queue.listen("t"))


@pytest.mark.parametrize("how", ["receive", "listen", "listen and leave", "receive and close"])
@pytest.mark.parametrize("place", ["memory", "sqlite", pytest.param("redis", marks=pytest.mark.server)], indirect=True)
def test_threads_that_receive_when_another_one_closes_leave_nothing_leased(
    place: str, how: str, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    """At whichever moment that comes. What they were handed before, they end in vain."""
    request.addfinalizer(functools.partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(0.0001)
    for attempt in range(1, ROUNDS):
        queue, handed, wrong = Queue(place), set[int](), list[BaseException]()
        queue.send_many("t", range(MANY))
        began = threading.Barrier(4)
        threads = [threading.Thread(target=receive_all, args=(queue, how, began, handed, wrong)) for _ in range(3)]
        for thread in threads:
            thread.start()
        began.wait()
        threading.Event().wait(attempt / ROUNDS / 50)
        queue.close()
        for thread in threads:
            thread.join(PATIENCE)
        assert wrong == []
        with Queue(place) as after:
            left = after.receive("t", limit=MANY)
            assert handed | {each.body for each in left} == set(range(MANY))
            after.ack_many(left)
            for each in after.messages("t", state="leased"):  # those that were handed out, and the close came then
                after.reschedule(each.id, delay=0)
            after.purge("t", state="ready")
    assert "could not be given back" not in caplog.text


def receive_all(queue: Queue, how: str, began: threading.Barrier, handed: set[int], wrong: list[BaseException]) -> None:
    began.wait()
    try:
        while how.startswith("receive"):
            deliveries = queue.receive("t", limit=MANY // 2)
            handed |= {each.body for each in deliveries}
            queue.ack_many(deliveries)
            if how == "receive and close" and deliveries:
                queue.close()
        while True:
            listening = queue.listen("t", limit=MANY // 2)
            for delivery in listening:
                handed.add(delivery.body)
                with suppress(LeaseLost):
                    delivery.ack()
                if how == "listen and leave":
                    break
            listening.close()
    except Unavailable:
        return
    except BaseException as error:
        wrong.append(error)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are of POSIX")
def test_a_forked_child_that_leaves_a_listener_gives_back_nothing_of_its_parent(place: str) -> None:
    with Queue(place) as queue:
        queue.send_many("t", range(3))
        deliveries = queue.listen("t", limit=3)
        first = next(deliveries)
        child = os.fork()
        if not child:
            deliveries.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert received_anew(place) == []
        assert [first.body, next(deliveries).body, next(deliveries).body] == [0, 1, 2]


@contextmanager
def relay_waits(opened: Any, away: bool) -> Iterator[threading.Event]:
    """Set when a relay sleeps, or has met an engine that does not answer."""
    waits = threading.Event()
    engine, verb = (opened.engine, "put") if away else (opened.outbox.store, "wait")
    real = getattr(engine, verb)

    def told(*asked: Any, **options: Any) -> Any:
        waits.set()
        if away:
            raise Unavailable("It does not answer.")
        return real(*asked, **options)

    with patch.object(engine, verb, told):
        yield waits


def with_one_in_its_outbox(folder: Path) -> Queue:
    queue = Queue("memory://", outbox=f"sqlite:///{folder}/outbox.db")
    queue.open()
    with closing(sqlite3.connect(folder / "outbox.db")) as own:
        queue.send("t", 1, connection=own)
        own.commit()
    return queue


@pytest.mark.parametrize("away", [False, True])
def test_a_relay_in_a_thread_ends_when_its_queue_is_closed(away: bool, tmp_path: Path) -> None:
    queue = with_one_in_its_outbox(tmp_path)
    with relay_waits(queue.session.open(), away) as waits, ThreadPoolExecutor(1) as threads:
        relaying = threads.submit(queue.relay)
        assert waits.wait(PATIENCE)
        queue.close()
        assert relaying.result(PATIENCE) == (0 if away else 1)


@pytest.mark.parametrize("away", [False, True])
async def test_a_relay_in_a_task_ends_when_its_queue_is_closed(away: bool, tmp_path: Path) -> None:
    with with_one_in_its_outbox(tmp_path) as plain:
        queue = plain.aio
        with relay_waits(await queue.session.open(), away) as waits:
            relaying = asyncio.create_task(queue.relay())
            assert await asyncio.to_thread(waits.wait, PATIENCE)
            await queue.close()
            assert await asyncio.wait_for(relaying, PATIENCE) == (0 if away else 1)
