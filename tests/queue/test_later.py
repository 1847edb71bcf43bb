"""Sends in the background: nobody waits for them, nothing is sent twice, and what is lost is told and counted."""

import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bide import (
    AsyncQueue,
    BadMessage,
    BadOption,
    ConfirmTimeout,
    Flushed,
    ManualClock,
    OutcomeUnknown,
    Queue,
    QueueFull,
    Unavailable,
)
from bide.engines.base import NewMessage
from bide.errors import TooLarge
from bide.queue import later
from bide.types import Sent
from tests.queue.conftest import Awaited

ENGINES = [
    "memory",
    "sqlite",
    pytest.param("redis", marks=pytest.mark.server),
    pytest.param("postgres", marks=pytest.mark.server),
]


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param in ("redis", "postgres"):
        found: str = request.getfixturevalue(f"{request.param}_url")
        return found
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/bide.db"


@pytest.fixture(params=[AsyncQueue, Queue], ids=["async", "sync"])
async def queue(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Any]:
    made = request.param(url)
    yield made if request.param is AsyncQueue else Awaited(made)
    closed = made.close()
    if closed is not None:
        await closed


@pytest.fixture
def memory() -> Iterator[Queue]:
    with Queue("memory://") as made:
        yield made


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "SOON", 0.001)
    monkeypatch.setattr(later, "LATEST", 0.002)


class Shaky:
    """A source whose engines have a mishap with each of the next calls of `put`, and are themselves after that."""

    def __init__(self, queue: Any) -> None:
        setup = queue.session.setup
        self.source = setup.source
        self.mishaps: deque[Callable[[Callable[..., list[Sent]], Sequence[NewMessage]], list[Sent]]] = deque()
        self.puts: list[list[NewMessage]] = []
        self.engine: Any = None
        setup.later._source = self

    def sync(self) -> Any:
        self.engine = self.source.sync()
        put = self.engine.put

        def shaky(messages: Sequence[NewMessage]) -> list[Sent]:
            self.puts.append(list(messages))
            return self.mishaps.popleft()(put, messages) if self.mishaps else put(messages)

        self.engine.put = shaky
        return self.engine


def raises(error: Exception) -> Callable[..., list[Sent]]:
    def mishap(put: Any, messages: Any) -> list[Sent]:
        raise error

    return mishap


def loses_its_answer(put: Any, messages: Sequence[NewMessage]) -> list[Sent]:
    """It is done, and nobody hears of it; the engine's own names are in the error."""
    named = [replace(new, operation=new.operation or f"own-{place}") for place, new in enumerate(messages)]
    put(named)
    raise OutcomeUnknown("no answer", operations=[new.operation or "" for new in named])


class Gate:
    """A call of the engine that waits until it is let go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, put: Any, messages: Sequence[NewMessage]) -> list[Sent]:
        self.reached.set()
        assert self.open.wait(20)
        return put(messages)  # type: ignore[no-any-return]


async def test_what_is_sent_later_arrives_as_it_was_said(queue: Any) -> None:
    session = getattr(queue, "inner", queue).session
    session.later(session.setup.envelope.message("t", {"n": 1}, key="k", headers={"a": "b"}, priority="high"))
    for n in range(3):
        getattr(queue, "inner", queue).later("u", n, delay="1h")
    assert await queue.flush() == Flushed(waiting=0, sent=4, lost=0)
    info = await queue.get(topic="t", key="k")
    assert (info.body, info.headers, info.priority) == ({"n": 1}, {"a": "b"}, "high")
    assert (await queue.stats("u")).scheduled == 3


async def test_what_is_sent_later_is_gathered_put_off_or_sent_once_too(queue: Any) -> None:
    plain = getattr(queue, "inner", queue)
    for n in range(3):
        plain.later("merged", n, key="k", if_exists="merge")
        plain.later("later", n, delay="1m", key="k", if_exists="later", max_wait="2m")
        plain.later("once", n, key="k", unique_for="1h")
    await queue.flush()
    assert [(await queue.get(topic=topic, key="k")).body for topic in ("merged", "later", "once")] == [[0, 1, 2], 2, 0]


async def test_a_task_is_sent_later_too(queue: Any) -> None:
    plain = getattr(queue, "inner", queue)

    @plain.task("order.cancel", max_attempts=5)
    def cancel(order: int) -> None: ...

    cancel.after("15m", key="order:42").later(order=42)
    with pytest.raises(BadMessage):
        cancel.later(wrong=1)
    with pytest.raises(BadOption, match="joins no transaction"):
        cancel.options(connection=object()).later(order=1)
    await queue.flush()
    info = await queue.get(topic="order.cancel", key="order:42")
    assert (info.body, info.max_attempts) == ({"order": 42}, 5)


async def test_close_sends_the_rest_and_both_colours_share_it(url: str) -> None:
    queue = AsyncQueue(url)
    for n in range(2_500):
        queue.later("t", n)
    queue.sync.later("t", 2_500)
    if url == "memory://":
        await queue.flush()
    else:
        await queue.close()
    async with AsyncQueue(url) if url != "memory://" else queue as again:
        assert (await again.stats("t")).ready == 2_501
    queue.sync.close()


async def test_what_may_have_been_sent_is_sent_under_the_same_name(queue: Any) -> None:
    plain = getattr(queue, "inner", queue)
    shaky = Shaky(plain)
    shaky.mishaps += [loses_its_answer, loses_its_answer, raises(Unavailable("away"))]
    for n in range(3):
        plain.later("t", n)
    plain.later("t", 3, operation="mine")
    assert await queue.flush("20s") == Flushed(0, 4, 0)
    assert sorted(each.body for each in await queue.messages("t")) == [0, 1, 2, 3]


def test_what_was_not_confirmed_was_sent(memory: Queue, caplog: pytest.LogCaptureFixture) -> None:
    def is_not_confirmed(put: Any, messages: Sequence[NewMessage]) -> list[Sent]:
        put(messages)
        raise ConfirmTimeout("0 of 1 replicas had it in time", operations=["own"] * len(messages))

    shaky = Shaky(memory)
    shaky.mishaps += [is_not_confirmed] * 3
    for n in range(3):
        memory.later("t", n)
        assert memory.flush("20s") == Flushed(0, n + 1, 0)
    assert [len(put) for put in shaky.puts] == [1, 1, 1]
    assert [each.body for each in memory.messages("t")] == [0, 1, 2]
    assert [each.getMessage() for each in caplog.records if each.name == "bide.later"] == [
        "1 message sent but not confirmed, so far: 0 of 1 replicas had it in time"
    ]


def test_callers_do_not_wait_and_what_gathers_is_one_call(memory: Queue) -> None:
    shaky, gate = Shaky(memory), Gate()
    shaky.mishaps.append(gate)
    memory.later("t", 0)
    assert gate.reached.wait(20)
    for n in range(1, 6):
        memory.later("t", n)
    assert memory.flush(0) == Flushed(waiting=6, sent=0, lost=0)
    gate.open.set()
    assert memory.flush() == Flushed(0, 6, 0)
    assert [len(put) for put in shaky.puts] == [1, 5]
    assert [each.body for each in memory.receive("t", limit=10)] == [0, 1, 2, 3, 4, 5]


def test_too_many_are_refused_at_once(memory: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "MOST", 3)
    shaky, gate = Shaky(memory), Gate()
    shaky.mishaps.append(gate)
    for n in range(3):
        memory.later("t", n)
    with pytest.raises(QueueFull, match="3 messages of this process wait to be sent"):
        memory.later("t", 3)
    gate.open.set()
    assert memory.flush() == Flushed(0, 3, 0)
    memory.later("t", 4)
    assert memory.flush() == Flushed(0, 4, 0)


def test_too_many_bytes_are_refused_at_once(memory: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "MOST_BYTES", 1_000)
    shaky, gate = Shaky(memory), Gate()
    shaky.mishaps += [gate, raises(Unavailable("away"))]
    memory.later("t", "x" * 900)
    with pytest.raises(QueueFull):
        memory.later("t", "x" * 200)
    gate.open.set()
    assert memory.flush() == Flushed(0, 1, 0)
    memory.later("t", "x" * 900)  # its room was given back
    assert memory.flush() == Flushed(0, 2, 0)


def test_one_that_is_refused_is_lost_alone(memory: Queue, caplog: pytest.LogCaptureFixture) -> None:
    def refuses(put: Any, messages: Sequence[NewMessage]) -> list[Sent]:
        if any(each.body == b"1" for each in messages):
            raise TooLarge("too large for this server")
        return put(messages)  # type: ignore[no-any-return]

    shaky, gate = Shaky(memory), Gate()
    shaky.mishaps += [gate, *[refuses] * 5]
    memory.later("t", 9)
    assert gate.reached.wait(20)
    for n in range(3):
        memory.later("t", n)
    gate.open.set()
    assert memory.flush() == Flushed(0, 3, 1)
    assert [each.body for each in memory.messages("t")] == [9, 0, 2]
    assert "A message for t is lost: too large for this server" in caplog.text


def test_an_unforeseen_error_loses_no_others(memory: Queue) -> None:
    shaky = Shaky(memory)
    shaky.mishaps.append(raises(ZeroDivisionError("of a hook")))
    memory.later("t", 0)
    assert memory.flush() == Flushed(0, 0, 1)
    memory.later("t", 1)
    assert memory.flush() == Flushed(0, 1, 1)


def test_a_dead_engine_is_given_up_at_close_and_told(caplog: pytest.LogCaptureFixture) -> None:
    queue = Queue("redis://127.0.0.1:1/0")
    for n in range(3):
        queue.later("t", n)
    queue.session.setup.later.close(0.05)
    assert queue.flush() == Flushed(0, 0, 3)
    assert "3 messages could not be sent in time: lost" in caplog.text
    queue.close()


def test_an_engine_that_does_not_answer_does_not_hold_close_up(memory: Queue, caplog: pytest.LogCaptureFixture) -> None:
    shaky, gate = Shaky(memory), Gate()
    shaky.mishaps.append(gate)
    memory.later("t", 0)
    assert gate.reached.wait(20)
    memory.later("t", 1)
    background = memory.session.setup.later
    background.close(0)
    assert memory.flush(0) == Flushed(0, 0, 2)
    assert "2 messages could not be sent in time: lost, but for 1 that may have been sent" in caplog.text
    gate.open.set()
    memory.later("t", 2)  # the thread goes on; what was given up counts no more
    assert memory.flush() == Flushed(0, 1, 2)


def test_what_may_have_been_sent_long_ago_is_not_sent_again(memory: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "SURE", 0.0)
    shaky = Shaky(memory)
    shaky.mishaps.append(loses_its_answer)
    memory.later("t", 0)
    assert memory.flush() == Flushed(0, 0, 1)
    assert len(memory.messages("t")) == 1


def test_a_delay_and_a_life_count_from_the_call() -> None:
    clock = ManualClock()
    with Queue("memory://", clock=clock) as queue:
        shaky, gate = Shaky(queue), Gate()
        shaky.mishaps.append(gate)
        began = clock.now_ms
        queue.later("t", "first", delay=10)
        assert gate.reached.wait(20)
        queue.later("t", "delayed", delay=60)
        queue.later("t", "short", expires_in=20)
        queue.later("t", "long", delay=10, expires_in=60)
        clock.advance(30)
        gate.open.set()
        assert queue.flush() == Flushed(0, 3, 1)
        found = {each.body: (each.due - began, each.expires and each.expires - began) for each in queue.messages("t")}
        assert found == {"first": (40_000, None), "long": (30_000, 70_000), "delayed": (60_000, None)}


def test_a_closed_queue_takes_nothing() -> None:
    queue = Queue("memory://")
    queue.close()
    with pytest.raises(Unavailable, match="closed"):
        queue.later("t")


def test_without_a_thread_nothing_is_taken(memory: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(Unavailable, match="No thread can be started"):
        memory.later("t")
    monkeypatch.undo()
    memory.later("t")
    assert memory.flush() == Flushed(0, 1, 0)


def test_a_thread_that_has_left_is_followed_by_another(memory: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "LINGER", 0.0)
    for n in range(20):
        memory.later("t", n)
        memory.flush()
    assert memory.flush() == Flushed(0, 20, 0)


def test_many_threads_may_send_at_once(memory: Queue) -> None:
    def send() -> None:
        for n in range(200):
            memory.later("t", n)

    threads = [threading.Thread(target=send) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert memory.flush() == Flushed(0, 1_600, 0)
    assert memory.stats("t").ready == 1_600


def test_time_travel_sees_what_handlers_send_later(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with Queue("memory://", clock=ManualClock()) as queue:
        called: list[int] = []

        @queue.task("t")
        def chain(n: int) -> None:
            called.append(n)
            if n < 5:
                chain.after("1m").later(n=n + 1)

        chain.later(n=0)
        queue.testing.advance("3m")
        assert called == [0, 1, 2, 3]
        with queue.testing.in_memory():
            queue.later("t", {"n": 5})
            queue.testing.advance(0)
            assert called == [0, 1, 2, 3, 5]
        queue.testing.advance("1m")
        assert called == [0, 1, 2, 3, 5, 4]
