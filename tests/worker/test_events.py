"""What a worker tells subscribers: each delivery begins and ends once, and those of one call are told together."""

import asyncio
import sys
import time
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from bide import (
    AsyncDelivery,
    AsyncQueue,
    MessagesBegun,
    MessagesEnded,
    MessagesSent,
    Queue,
    Snooze,
    current,
    current_batch,
    steps,
)
from bide.queue import events
from bide.queue.deliveries import internals
from bide.worker.leased import Leased
from tests.told import Told
from tests.worker.faults import Faults

MANY = 1_000


class Ends:
    """Counts, as metrics do. `all`: so many have ended, or have ended so."""

    def __init__(self, enough: int, outcome: str | None = None) -> None:
        self._outcome = outcome
        self.calls = 0
        self.outcomes: Counter[str] = Counter()
        self._enough = enough
        self.all = asyncio.Event()

    def ended(self, event: MessagesEnded) -> None:
        self.calls += 1
        self.outcomes[event.outcome] += event.count
        if (self.outcomes.total() if self._outcome is None else self.outcomes[self._outcome]) >= self._enough:
            self.all.set()


async def test_a_subscriber_is_called_in_the_loop_for_many_messages_at_once(queue: AsyncQueue, working: Any, soon: Any) -> None:
    ends = Ends(MANY)
    queue.events.subscribe(ends)

    @queue.task("t")
    async def handle(number: int) -> None: ...

    await handle.send_many({"number": each} for each in range(MANY))
    async with working(queue):
        await soon(ends.all.wait())

    assert ends.outcomes == {"done": MANY}
    assert ends.calls <= MANY / 5


async def test_for_those_who_listen_no_delivery_is_made_of_a_message(
    queue: AsyncQueue, working: Any, soon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, made = Ends(MANY), list[Any]()
    seconds: list[float] = []

    class Seconds:
        def ended(self, event: MessagesEnded) -> None:
            seconds.extend(event.seconds)
            assert len(event.lateness) == event.count
            assert all(each.seconds is not None for each in event.messages)

    queue.events.subscribe(ends)
    queue.events.subscribe(Seconds())
    make = Leased.delivery

    def noting(taken: Leased, handling: Any) -> AsyncDelivery:
        made.append(handling)
        return make(taken, handling)

    monkeypatch.setattr(Leased, "delivery", noting)

    @queue.task("t")
    async def handle(number: int) -> None: ...

    await handle.send_many({"number": each} for each in range(MANY))
    async with working(queue):
        await soon(ends.all.wait())

    assert made == []
    assert len(seconds) == MANY
    assert all(0 <= each < 1 for each in seconds)


async def test_while_nobody_listens_a_worker_calls_nothing_of_it(queue: AsyncQueue, working: Any, soon: Any) -> None:
    calls: list[str] = []
    noted: list[Any] = []
    left, over = MANY, asyncio.Event()

    @queue.task("t")
    async def handle(number: int) -> None:
        nonlocal left
        left -= 1
        noted.append(internals(current()).at_work)
        if not left:
            over.set()

    def count(frame: FrameType, what: str, _: object) -> None:
        if what == "call" and frame.f_code.co_filename == events.__file__:
            calls.append(frame.f_code.co_qualname)

    await handle.send_many({"number": each} for each in range(MANY))
    sys.setprofile(count)
    try:
        async with working(queue):
            await soon(over.wait())
    finally:
        sys.setprofile(None)

    assert not left
    assert calls == []
    assert noted == [None] * MANY


async def test_each_delivery_begins_and_ends_once(either: Any, working: Any, soon: Any) -> None:
    told, ends = Told(), Ends(5, "done")
    either.events.subscribe(told)
    either.events.subscribe(ends)

    @either.task("plain", max_attempts=2, backoff=steps("1ms"))
    async def plain() -> None:
        if current().attempt == 1:
            raise ValueError("bad")

    @either.task("thread")
    def thread() -> None:
        current().ack()

    @either.task("many", batch=2, linger="10s")
    async def many(numbers: list[int]) -> None: ...

    begun: list[str] = []

    @either.task("limited", concurrency=1)
    async def limited() -> None:
        begun.append("limited")
        if len(begun) == 1:
            raise Snooze(0)

    sent: dict[str, str] = {}
    for task, args in ((plain, ()), (thread, ()), (many, (1,)), (many, (2,)), (limited, ())):
        made = task.send(*args)
        sent[task.topic] = (await made if isinstance(either, AsyncQueue) else made).id
    async with working(either):
        await soon(ends.all.wait())

    assert told.of(sent["plain"]) == ["created", "begun", "retried", "begun", "done"]
    assert told.of(sent["thread"]) == ["created", "begun", "done"]
    assert told.of(sent["many"]) == ["created", "begun", "done"]
    # it may come again before the answer to its release is heard, or before its place is free
    counts = Counter(told.of(sent["limited"]))
    assert (counts["created"], counts["done"], counts["begun"]) == (1, 1, 1 + counts["released"])
    assert counts["released"] >= 1
    assert counts.keys() == {"created", "begun", "released", "done"}


async def test_the_seconds_of_a_handler_begin_when_it_is_called(memory: AsyncQueue, working: Any, soon: Any) -> None:
    ends = Ends(2)
    memory.events.subscribe(ends)
    began: list[Any] = []
    first_ended: list[float] = []

    @memory.task("t")
    async def handle(number: int) -> None:
        began.append(internals(current()).at_work)
        first_ended.append(time.monotonic())

    await handle.send_many({"number": each} for each in range(2))  # one claim brings both, one after the other is called
    async with working(memory):
        await soon(ends.all.wait())

    assert began[0] <= first_ended[0] <= began[1]


async def test_the_seconds_of_a_batch_begin_when_its_handler_is_called(memory: AsyncQueue, working: Any, soon: Any) -> None:
    ends, first = Ends(2), asyncio.Event()
    received: list[float] = []
    began: list[Any] = []

    class Begun:
        def begun(self, event: MessagesBegun) -> None:
            received.append(time.monotonic())
            first.set()

    memory.events.subscribe(ends)
    memory.events.subscribe(Begun())

    @memory.task("t", batch=2, linger="10s")
    async def handle(numbers: list[int]) -> None:
        began.extend(internals(each).at_work for each in current_batch())

    async with working(memory):
        await handle.send(1)
        await soon(first.wait())
        await handle.send(2)
        await soon(ends.all.wait())

    assert len(began) == len(received) == 2
    assert received[1] <= began[0] <= began[1]


async def test_a_lease_that_a_worker_sees_lost_ends_as_lost(memory: AsyncQueue, working: Any, soon: Any, until: Any) -> None:
    told, ends, begun = Told(), Ends(1), asyncio.Event()
    memory.events.subscribe(told)
    memory.events.subscribe(ends)
    faults = await Faults.of(memory)

    @memory.task("t")
    async def handle() -> None:
        begun.set()
        await asyncio.Event().wait()

    sent = await handle.send()
    faults.lose_leases()
    async with working(memory, lease="200ms"):
        await soon(begun.wait())
        stolen: list[Any] = []

        async def taken() -> bool:
            stolen.extend(await memory.receive("t"))
            return bool(stolen)

        await until(taken)
        faults.keep_leases()
        await soon(ends.all.wait())

    assert told.of(sent.id) == ["created", "begun", "begun", "lost"]


async def test_what_a_worker_gives_back_has_been_released(queue: AsyncQueue, working: Any, soon: Any) -> None:
    told, begun = Told(), asyncio.Event()
    queue.events.subscribe(told)

    @queue.task("t")
    async def handle() -> None:
        begun.set()
        await asyncio.Event().wait()

    sent = await handle.send()
    async with working(queue):
        await soon(begun.wait())

    assert told.of(sent.id) == ["created", "begun", "released"]


async def test_what_handlers_send_is_told_while_the_worker_goes_on(memory: AsyncQueue, working: Any, soon: Any) -> None:
    """A subscriber that raises and one that sends harm no message of a worker."""
    ends, audited = Ends(20), asyncio.Event()

    class Broken:
        def ended(self, event: MessagesEnded) -> None:
            raise ValueError("bad")

    class Audit:
        def sent(self, event: MessagesSent) -> None:
            if event.topic == "t":
                memory.later("audit", event.count)

    for each in (Broken(), Audit(), ends):
        memory.events.subscribe(each)
    got: list[int] = []

    @memory.task("t")
    async def handle(number: int) -> None: ...

    @memory.task("audit")
    async def audit(count: int) -> None:
        got.append(count)
        audited.set()

    await handle.send_many({"number": each} for each in range(19))
    async with working(memory):
        await soon(ends.all.wait())

    assert ends.outcomes.total() == 20


async def test_a_worker_of_a_sync_queue_tells_the_same(working: Any, soon: Any) -> None:
    queue, ends = Queue("memory://"), Ends(3)
    queue.events.subscribe(ends)

    @queue.task("t")
    def handle(number: int) -> None: ...

    handle.send_many({"number": each} for each in range(3))
    async with working(queue):
        await soon(ends.all.wait())
    queue.close()

    assert ends.outcomes == {"done": 3}
