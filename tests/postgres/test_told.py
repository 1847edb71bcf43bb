"""A receiver that sleeps in another process is told of all that is committed, whatever came before and however long it took."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import psycopg
import pytest

from bide import AsyncQueue, Queue
from bide.engines.postgres import recent
from bide.engines.postgres.aio.engine import AsyncPostgres
from bide.engines.postgres.aio.wakeup import MANY, AsyncWaker
from bide.engines.postgres.recent import AGAIN
from bide.engines.postgres.sync.wakeup import Waker
from tests.sqlite.conftest import Child
from tests.worker.conftest import once

LATE = 2.0  # seconds; what nobody is told of waits for a sweep, after five
RECEIVER = """
    import sys, time
    from bide import Queue
    with Queue(sys.argv[1]) as queue:
        queue.stats()
        print("ready")
        while True:
            found = queue.receive("t", limit=100, wait=60)
            now = time.time()
            for name in {each.body["name"]: None for each in found}:
                print(f"{name}={now}")
            queue.ack_many(found)
            if any(each.body["name"] == "stop" for each in found):
                break
"""


class Sender:
    def __init__(self, queue: Any, url: str) -> None:
        self.queue = queue
        self.url = url
        self.round = 0
        self.sent: dict[str, float] = {}

    def named(self, name: str) -> str:
        return f"{name} in round {self.round}"

    async def one(self, name: str, **options: Any) -> None:
        name = self.named(name)
        await self.queue.send("t", {"name": name}, **options)
        self.sent[name] = time.time()

    async def in_the_background(self, name: str, **options: Any) -> None:
        """Also where a send blocks."""
        name = self.named(name)
        if hasattr(self.queue, "inner"):
            await asyncio.to_thread(self.queue.inner.send, "t", {"name": name}, **options)
        else:
            await self.queue.send("t", {"name": name}, **options)
        self.sent[name] = time.time()

    async def batch(self, name: str, size: int = 3_000) -> None:
        name = self.named(name)
        await self.queue.send_many("t", [{"name": name, "n": n, "x": "x" * size} for n in range(1_000)])
        self.sent[name] = time.time()


async def alone(sender: Sender) -> None:
    await sender.one("alone")


async def a_batch_after_a_send(sender: Sender) -> None:
    await sender.one("first")
    await sender.batch("batch")


async def a_batch_after_a_claim(sender: Sender) -> None:
    await sender.queue.receive("t")
    await sender.batch("batch")


async def a_rapid_sequence(sender: Sender) -> None:
    for n in range(60):
        await sender.one(f"rapid {n}")


async def batch_after_batch(sender: Sender) -> None:
    for n in range(4):
        await sender.batch(f"batch {n}", 1_000)


async def a_key_that_is_held(sender: Sender) -> None:
    """The send waits until a transaction with the same key is over."""
    with psycopg.connect(sender.url) as own, Queue(sender.url) as other:
        other.send("t", {"name": "never"}, key="held", delay="1h", connection=own)
        await sender.one("before")
        held = asyncio.create_task(sender.in_the_background("held", key="held"))
        with psycopg.connect(sender.url, autocommit=True) as looking:
            await once(lambda: looking.execute("select 1 from pg_locks where not granted").fetchall())
        await asyncio.sleep(0.1)  # the commit is to come this much later
        own.rollback()
        await held


async def an_own_transaction(sender: Sender) -> None:
    with psycopg.connect(sender.url) as own, Queue(sender.url) as other:
        name = sender.named("own")
        other.send("t", {"name": name}, connection=own)
        await sender.one("meanwhile")
        await asyncio.sleep(0.1)  # so late is the commit
        own.commit()
        sender.sent[name] = time.time()


async def several_programs(sender: Sender) -> None:
    with Queue(sender.url) as other:
        for n in range(5):
            await sender.one(f"mine {n}")
            name = sender.named(f"theirs {n}")
            other.send("t", {"name": name})
            sender.sent[name] = time.time()
        await sender.batch("batch beside others")


async def what_was_due_later(sender: Sender) -> None:
    await sender.one("now")
    await sender.one("soon", delay=0.3)
    await sender.one("moved", delay="1h", key="moved")
    await sender.one("now again")
    await sender.queue.reschedule(topic="t", key="moved", delay=0)
    sender.sent[sender.named("moved")] = time.time()


async def at_once_after_what_is_due_later(sender: Sender) -> None:
    """Nobody is told of that, as there is something due before it."""
    await sender.queue.send("t", {"name": "never"}, delay="1h")
    for n in range(3):
        await sender.queue.send("t", {"name": "never"}, delay="2h")
        await sender.one(f"at once {n}")
        await asyncio.sleep(0.1)  # the receiver sleeps again


SHAPES = [
    alone,
    a_batch_after_a_send,
    a_batch_after_a_claim,
    a_rapid_sequence,
    batch_after_batch,
    a_key_that_is_held,
    an_own_transaction,
    several_programs,
    what_was_due_later,
    at_once_after_what_is_due_later,
]


@pytest.mark.server
@pytest.mark.parametrize("shape", SHAPES, ids=lambda each: each.__name__)
async def test_an_idle_receiver_is_told_of_each_commit(
    shape: Callable[[Sender], Awaitable[None]], queue: Any, postgres_url: str, start: Callable[..., Child]
) -> None:
    receiver = start(RECEIVER, postgres_url)
    assert receiver.line() == "ready"
    sender = Sender(queue, postgres_url)
    await sender.one("begin")
    got: dict[str, float] = {}

    def hear(name: str) -> None:
        while name not in got:
            each, _, at = receiver.line().rpartition("=")
            got.setdefault(each, float(at))

    await asyncio.to_thread(hear, sender.named("begin"))
    for _ in range(3):  # a machine that is busy may be too slow for what is to happen
        sender.round += 1
        await shape(sender)
        for name in sender.sent:
            await asyncio.to_thread(hear, name)
    await queue.send("t", {"name": "stop"})
    receiver.end()
    delays = sorted(got[name] - at for name, at in sender.sent.items())
    p50, p99 = (1000 * delays[len(delays) * share // 100] for share in (50, 99))
    print(f"{len(delays)} commits: p50 {p50:.0f} ms, p99 {p99:.0f} ms")
    late = {name: round(got[name] - at, 3) for name, at in sender.sent.items() if got[name] > at + LATE}
    assert not late


@pytest.mark.server
async def test_who_begins_to_listen_looks_for_what_is_left_untold_then(
    make_queue: Callable[..., Any], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others were told before it listened, so that what comes soon after is not told."""
    for name, value in (("QUIET", 2.0), ("IN_TIME", 2.5), ("AGAIN", (0.5, 2.6))):
        monkeypatch.setattr(recent, name, value)
    sender, receiver = make_queue(), make_queue()
    await receiver.receive("t")
    await sender.send("t", 1)
    assert [each.body for each in await receiver.receive("t")] == [1]
    waiting = asyncio.create_task(receiver.receive("t", wait=60))
    with psycopg.connect(postgres_url, autocommit=True) as looking:
        await once(lambda: looking.execute("select 1 from pg_stat_activity where query like 'listen%'").fetchall())
    await sender.send("t", 2)
    async with asyncio.timeout(4):  # a sweep would find it after five
        assert [each.body for each in await waiting] == [2]


@pytest.mark.server
async def test_a_receiver_that_still_sleeps_looks_for_what_is_left_untold_when_another_was_woken(
    make_queue: Callable[..., Any], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("QUIET", 2.0), ("IN_TIME", 2.5), ("AGAIN", (0.5, 2.6))):
        monkeypatch.setattr(recent, name, value)
    without_sweeps(monkeypatch)
    sender, receiver = make_queue(), make_queue()
    await receiver.receive("t")
    waiting = [asyncio.create_task(receiver.receive("t", wait=60)) for _ in range(2)]
    with psycopg.connect(postgres_url, autocommit=True) as looking:
        await once(lambda: looking.execute("select 1 from pg_stat_activity where query like 'listen%'").fetchall())
    await sender.send("t", 1)
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await sender.send("t", 2)
    async with asyncio.timeout(20):
        assert {each.body for found in await asyncio.gather(*waiting) for each in found} == {1, 2}


@pytest.mark.server
async def test_all_who_sleep_look_when_one_of_them_has_begun_to_listen(
    make_queue: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came meanwhile was told to nobody in their process."""
    without_sweeps(monkeypatch)
    may_listen = threading.Event()
    listen, listen_sync = AsyncWaker._listen, Waker._listen

    async def late(self: AsyncWaker) -> None:
        await once(may_listen.is_set)
        await listen(self)

    def late_sync(self: Waker) -> None:
        may_listen.wait()
        listen_sync(self)

    monkeypatch.setattr(AsyncWaker, "_listen", late)
    monkeypatch.setattr(Waker, "_listen", late_sync)
    sender, receiver = make_queue(), make_queue()
    waking = await waking_of(receiver)
    waiting = [asyncio.create_task(receiver.receive(topic, wait=60)) for topic in ("x", "y", "z")]
    await once(lambda: len(waking._asleep) == 3)
    for topic in ("x", "y", "z"):
        await sender.send(topic, topic)
    may_listen.set()
    async with asyncio.timeout(20):
        assert [each.body for found in await asyncio.gather(*waiting) for each in found] == ["x", "y", "z"]


@pytest.mark.server
async def test_a_receiver_is_told_after_many_others_were_cancelled_at_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that reads for all ends, and asks another to go on that ends at the same instant."""
    without_sweeps(monkeypatch)
    async with AsyncQueue(postgres_url) as sender, AsyncQueue(postgres_url) as receiver:
        waking = await waking_of(receiver)
        await receiver.receive("t", wait=0.1)  # it listens
        others = {f"other.{n}": asyncio.create_task(receiver.receive(f"other.{n}", wait=60)) for n in range(20)}
        await once(lambda: waking._leader is not None and len(waking._asleep) == 20)
        waiting = asyncio.create_task(receiver.receive("t", wait=60))
        await once(lambda: len(waking._asleep) == 21)
        leave = waking._leave

        def leave_together(sleeper: Any, signal: Any, **options: Any) -> None:
            leave(sleeper, signal, **options)
            for each in others.values():
                each.cancel()

        monkeypatch.setattr(waking, "_leave", leave_together)
        assert waking._leader is not None
        others[waking._leader.topics[0]].cancel()
        await asyncio.wait(others.values())
        await sender.send("t", 1)
        async with asyncio.timeout(20):
            assert [each.body for each in await waiting] == [1]


@pytest.mark.server
async def test_a_receiver_that_is_cancelled_when_it_was_woken_wakes_another_one(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sweeps(monkeypatch)
    async with AsyncQueue(postgres_url) as sender, AsyncQueue(postgres_url) as receiver:
        waking = await waking_of(receiver)
        await receiver.receive("t", wait=0.1)  # it listens
        reading = asyncio.create_task(receiver.receive("other", wait=60))
        await once(lambda: waking._leader is not None)
        first = asyncio.create_task(receiver.receive("t", wait=60))
        await once(lambda: len(waking._asleep) == 2)
        second = asyncio.create_task(receiver.receive("t", wait=60))
        await once(lambda: len(waking._asleep) == 3)
        wake = waking._sleepers.wake

        def cancel_the_first(topics: Iterable[str]) -> None:
            wake(topics)
            first.cancel()

        monkeypatch.setattr(waking._sleepers, "wake", cancel_the_first)
        await sender.send("t", 1)
        async with asyncio.timeout(20):
            assert [each.body for each in await second] == [1]
        await asyncio.wait({first})
        assert first.cancelled()
        reading.cancel()
        await asyncio.wait({reading})


@pytest.mark.server
@pytest.mark.parametrize("many", [1, 2])
async def test_receivers_that_are_cancelled_in_the_claim_for_which_they_were_woken_wake_another_one(
    many: int, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sweeps(monkeypatch)
    async with AsyncQueue(postgres_url) as sender, AsyncQueue(postgres_url) as receiver:
        waking = await waking_of(receiver)
        receivers = [asyncio.create_task(receiver.receive("t", wait=60))]
        await once(lambda: waking._listening is not None and time.monotonic() > waking._since + 2 * max(AGAIN))
        await once(lambda: len(waking._asleep) == 1)
        for number in range(2, many + 2):
            receivers.append(asyncio.create_task(receiver.receive("t", wait=60)))
            await once(lambda number=number: len(waking._asleep) == number)  # type: ignore[misc]
        *doomed, last = receivers
        claim = AsyncPostgres.claim

        async def cancelled(self: Any, *args: Any, **options: Any) -> Any:
            me = asyncio.current_task()
            if me in doomed and not me.cancelling():
                me.cancel()
                await asyncio.sleep(0)
            return await claim(self, *args, **options)

        monkeypatch.setattr(AsyncPostgres, "claim", cancelled)
        await sender.send("t", 1)
        async with asyncio.timeout(20):
            assert [each.body for each in await last] == [1]
        await asyncio.wait(doomed)
        assert all(each.cancelled() for each in doomed)


@pytest.mark.server
async def test_topics_of_single_messages_are_forgotten(postgres_url: str) -> None:
    async with AsyncQueue(postgres_url) as receiver:
        waking = await waking_of(receiver)
        waking._again.update({f"answer.{n}": time.monotonic() - 60 for n in range(MANY)} | {"soon": time.monotonic() + 60})
        await receiver.receive("t", wait=0.1)
        waking._heard_of.note(["t"], time.monotonic())
        waking._note_again("t", looked=time.monotonic())
        assert waking._again.keys() == {"soon", "t"}


@pytest.mark.server
@pytest.mark.parametrize("then", ["cancelled", "busy"])
async def test_a_message_that_will_be_due_does_not_wait_for_the_receiver_that_was_told_of_it(
    then: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sweeps(monkeypatch)
    async with AsyncQueue(postgres_url) as sender, AsyncQueue(postgres_url) as receiver:
        waking = await waking_of(receiver)
        await receiver.receive("t", wait=0.1)  # it listens
        told = asyncio.create_task(receiver.receive("t", "other", wait=60))
        await once(lambda: len(waking._asleep) == 1)
        idle = asyncio.create_task(receiver.receive("t", wait=60))
        await once(lambda: len(waking._asleep) == 2)
        await sender.send("t", "later", delay=2)
        await once(lambda: 0 < waking._heard_of.at("t") < time.monotonic() - 2 * max(AGAIN))
        await once(lambda: len(waking._asleep) == 2)
        if then == "cancelled":
            told.cancel()
            await asyncio.wait({told})
        else:
            await sender.send("other", "now")
            assert [each.body for each in await told] == ["now"]
        async with asyncio.timeout(20):
            assert [each.body for each in await idle] == ["later"]


@pytest.mark.server
async def test_a_delayed_message_is_told_if_the_one_before_it_was_handed_out_while_its_send_was_under_way(
    queue: Any, make_queue: Callable[..., Any], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The send saw that one, to which a receiver would come; and that receiver came before the send was committed."""
    without_sweeps(monkeypatch)
    receiver = make_queue()
    waking = await waking_of(receiver)
    with psycopg.connect(postgres_url) as own, psycopg.connect(postgres_url, autocommit=True) as looking:
        own.execute("select bide.send('t', delay => '1 hour', key => 'held')")
        first = asyncio.create_task(receiver.receive("t", wait=60))
        await once(lambda: looking.execute("select 1 from pg_stat_activity where query like 'listen%'").fetchall())
        await queue.send("t", "before", delay=0.4)  # the send that waits looks again after a second
        sender = Sender(queue, postgres_url)
        sending = asyncio.create_task(sender.in_the_background("held", key="held", delay=1))
        await once(lambda: looking.execute("select 1 from pg_locks where not granted").fetchall())
        assert [each.body for each in await first] == ["before"]
        second = asyncio.create_task(receiver.receive("t", wait=60))
        await once(lambda: waking._asleep)
        assert not sending.done()
        own.rollback()
        await sending
    async with asyncio.timeout(20):
        assert [each.body["name"] for each in await second] == ["held in round 0"]


@pytest.mark.server
async def test_a_message_is_told_if_one_before_it_may_be_handed_out_before_the_commit(queue: Any, postgres_url: str) -> None:
    sent = await queue.send("t", delay="1h")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("listen bide")
        for soon in (1_000, 50):  # milliseconds from the call to that one
            connection.execute("select bide.tell('t', %s, %s)", [sent.due + 60_000 + soon, sent.due - soon])
        connection.execute(
            "select bide.tell('t', %s, %s)", [sent.due + 5, sent.due - 10]
        )  # due soon itself: half of that will do
        connection.execute("select bide.tell('t', %s, %s)", [sent.due + 600_000, sent.due - 600_000])
        connection.execute("notify bide, 'end'")
        told = [each.payload for each in connection.notifies(timeout=60, stop_after=2)]
    assert told == [f"t {sent.due + 60_050}", "end"]


@pytest.mark.server
async def test_a_delayed_send_is_one_call_also_if_the_server_is_far_away(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncQueue(postgres_url) as sender:
        connections = (await waking_of(sender))._connections
        run, calls = connections.run, []

        async def from_afar(*args: Any, **options: Any) -> Any:
            calls.append(args)
            answer = await run(*args, **options)
            await asyncio.sleep(0.15)
            return answer

        monkeypatch.setattr(connections, "run", from_afar)
        await sender.send("t", delay=60)
        assert len(calls) == 1


@pytest.mark.server
async def test_no_wake_up_is_kept_for_a_topic_that_nobody_receives_here(postgres_url: str) -> None:
    async with AsyncQueue(postgres_url) as sender, AsyncQueue(postgres_url) as receiver:
        waking = await waking_of(receiver)
        await receiver.receive("t", wait=0.1)  # it listens
        waiting = asyncio.create_task(receiver.receive("t", wait=60))
        await once(lambda: waking._leader is not None)
        for n in range(10):
            await sender.send(f"reply.{n}", n)
        await once(lambda: waking._heard_of.at("reply.9"))
        assert not waking._sleepers._kept
        await sender.send("t", 1)
        assert [each.body for each in await waiting] == [1]


async def waking_of(queue: Any) -> Any:
    await queue.stats()  # it is open
    engine = getattr(queue, "inner", queue).session.engine()
    return vars(await engine if asyncio.iscoroutine(engine) else engine)["_verbs"]._waking


def without_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.engines.postgres.recent.EVERY", 60.0)
    for colour in ("aio", "sync"):
        for module in (f"engines.postgres.{colour}.engine", f"queue.{colour}.receive"):
            monkeypatch.setattr(f"bide.{module}.SWEEP", 60.0)
