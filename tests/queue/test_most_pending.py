"""Topics that may hold so many pending messages: what is sent beyond is refused, or waits for room."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, BadOption, Call, Exists, Outgoing, PartlySent, Queue, QueueFull
from bide.queue import later, topic_rules
from bide.queue.aio import parts as aio_rooms
from bide.queue.sync import parts as sync_rooms
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


class Calls(Counter[str]):
    """A hook that counts."""

    def before(self, call: Call) -> None:
        self[call.verb] += 1

    def after(self, call: Call) -> None: ...


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture(params=[AsyncQueue, Queue], ids=["async", "sync"])
async def queue(request: pytest.FixtureRequest, url: str, calls: Calls) -> AsyncIterator[Any]:
    made = request.param(url, hooks=[calls])
    made.topic("t", most_pending=5)
    async with made if request.param is AsyncQueue else Awaited(made) as opened:
        yield opened


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Senders count before each send."""
    for name in ("OFTEN", "SELDOM"):
        monkeypatch.setattr(topic_rules, name, 0.0)
    monkeypatch.setattr(topic_rules, "SHARE", 0)
    for module in (aio_rooms, sync_rooms):
        monkeypatch.setattr(module, "LAST_LOOK", 0.01)


async def test_a_send_beyond_is_refused_and_stores_nothing(queue: Any) -> None:
    for n in range(5):
        await queue.send("t", n, delay=n)
    with pytest.raises(QueueFull, match=r"t holds 5 pending messages: its most_pending is 5\. Send less, start more workers"):
        await queue.send("t", 5)
    assert (await queue.stats("t")).pending == 5
    # And other topics are not concerned
    await queue.send("u")


async def test_there_is_room_again_when_messages_were_received(queue: Any, always: None) -> None:
    await queue.send_many("t", range(5))
    [first] = await queue.receive("t")
    await queue.send("t", 5)
    with pytest.raises(QueueFull):
        await queue.send("t", 6)
    await first.release()  # what comes back is never refused
    assert (await queue.stats("t")).ready == 6


async def test_a_sender_counts_at_most_once_a_second(queue: Any, calls: Calls) -> None:
    topic_rules.OFTEN, before = 1_000.0, topic_rules.OFTEN
    try:
        for n in range(100):
            try:
                await queue.send("t", n)
            except QueueFull:
                assert n >= 5
        await queue.send("u")
    finally:
        topic_rules.OFTEN = before
    assert calls["stats"] <= 2  # the first one, and one from half full on
    assert calls["put"] == 6


async def test_a_key_that_is_taken_needs_no_room_of_its_own(queue: Any) -> None:
    for n in range(4):
        await queue.send("t", n)
    await queue.send("t", "once", key="k", delay=60)
    queue.session.setup.tasks.rules.most["t"] = 6
    for n in range(20):
        await queue.send("t", n, key="k", if_exists="replace")
        with pytest.raises(Exists):
            await queue.send("t", n, key="k", if_exists="error")
        await queue.send_many("t", [Outgoing(n, key="k")])
    await queue.send("t", "another")
    with pytest.raises(QueueFull):
        await queue.send("t", "one more")


async def test_many_are_sent_whole_or_not_at_all(queue: Any, always: None) -> None:
    with pytest.raises(QueueFull, match="holds 0 pending messages, and these are 6 more: its most_pending is 5"):
        await queue.send_many("t", range(6))
    assert len(await queue.send_many("t", range(3))) == 3
    with pytest.raises(QueueFull):
        await queue.send_many("t", range(3))
    assert (await queue.stats("t")).pending == 3
    assert await queue.send_many("t", []) == []


async def test_many_wait_for_room(url: str, always: None) -> None:
    async with AsyncQueue(url) as queue:
        queue.topic("t", most_pending=5)
        sending = asyncio.create_task(queue.send_many("t", range(23), wait="20s"))
        received: list[object] = []
        most = 0
        while len(received) < 23:
            most = max(most, (await queue.stats("t")).pending)
            for each in await queue.receive("t", limit=2, wait="20s"):
                received.append(each.body)
                await each.ack()
        assert len(await sending) == 23
        assert sorted(received) == list(range(23))  # type: ignore[type-var]
        assert most <= 5


async def test_many_that_wait_in_vain_tell_what_was_sent(queue: Any, always: None) -> None:
    with pytest.raises(PartlySent, match="5 of 8 messages were accepted") as told:
        await queue.send_many("t", range(8), wait=0.02)
    assert (len(told.value.sent), type(told.value.error)) == (5, QueueFull)
    with pytest.raises(QueueFull):
        await queue.send_many("t", [1], wait=0.02)
    assert (await queue.stats("t")).pending == 5


async def test_a_transaction_does_not_wait(queue: Any) -> None:
    with pytest.raises(BadOption, match="a transaction would be kept open"):
        await queue.send_many("t", [1], wait=1, connection=object())


async def test_callers_at_once_do_not_go_beyond(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_rules, "OFTEN", 60.0)  # a count while messages are on their way may take some of them for others
    async with AsyncQueue(url) as queue:
        queue.topic("t", most_pending=20)
        results = await asyncio.gather(*(queue.send("t", n) for n in range(60)), return_exceptions=True)
        assert sum(isinstance(each, QueueFull) for each in results) == 40
        assert (await queue.stats("t")).pending == 20


def test_threads_at_once_do_not_go_beyond(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_rules, "OFTEN", 60.0)
    refused: list[QueueFull] = []
    with Queue(url) as queue:
        queue.topic("t", most_pending=20)
        queue.send("t")

        def send() -> None:
            for n in range(10):
                try:
                    queue.send("t", n)
                except QueueFull as error:
                    refused.append(error)

        threads = [threading.Thread(target=send) for _ in range(6)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert (queue.stats("t").pending, len(refused)) == (20, 41)


def test_the_count_is_exact_where_an_engine_estimates(url: str) -> None:
    with Queue(url) as queue:
        queue.send_many("t", [Outgoing(n, delay=60) for n in range(12_000)])
        queue.send_many("t", range(11_000))
        queue.topic("t", most_pending=23_001)
        queue.send("t")
        with pytest.raises(QueueFull, match="t holds 23,001 pending"):
            queue.send("t")


async def test_a_task_says_it_and_the_lower_one_counts(queue: Any) -> None:
    plain = getattr(queue, "inner", queue)

    @plain.task("mail", aliases=["post"], most_pending=2)
    def mail(n: int) -> None: ...

    twin: Any = plain.sync if isinstance(plain, AsyncQueue) else plain
    task = mail.on(twin)
    assert len(task.send_many([{"n": 1}, {"n": 2}])) == 2
    with pytest.raises(QueueFull):
        task.send(n=3)
    with pytest.raises(QueueFull):
        task.send_many([{"n": 3}], wait=0)
    twin.send("post", {"n": 1})  # each topic for itself
    plain.topic("post", most_pending=1)
    with pytest.raises(QueueFull):
        twin.send("post", {"n": 2})
    with pytest.raises(BadOption, match="most_pending is 0"):
        plain.topic("t", most_pending=0)
    if twin is not plain:
        twin.close()


def test_what_is_sent_later_waits_for_room_and_holds_up_no_other_topic(
    url: str, always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(later, "SOON", 0.001)
    monkeypatch.setattr(later, "LATEST", 0.002)
    monkeypatch.setattr(later, "MAX_BATCH", 2)
    with Queue(url) as queue:
        queue.topic("t", most_pending=3)
        for n in range(8):
            queue.later("t", n)
        queue.later("u", 8)
        assert queue.receive("u", wait="20s")[0].body == 8
        received: list[Any] = []
        while len(received) < 8:
            for each in queue.receive("t", wait="20s"):
                received.append(each.body)
                each.ack()
        assert sorted(received) == list(range(8))
        assert queue.flush() == (0, 9, 0)
