"""Whatever is cancelled, refused or lost on the way: no message stays with a process that does nothing with it."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from aiormq.abc import DeliveredMessage

from bide import AsyncQueue
from bide.engines.base import Claimed, NewMessage
from bide.engines.rabbitmq.aio import inbox
from bide.engines.rabbitmq.aio.engine import AsyncRabbit
from bide.engines.rabbitmq.ladder import QueueNames
from bide.errors import QueueFull
from bide.testing.contract.bench import ending
from tests.rabbitmq.conftest import New
from tests.redis.away import COLOURS, Either
from tests.worker.conftest import once

LEASE = 600_000


async def _claimed(engine: AsyncRabbit, topic: str = "mail") -> Claimed:
    async with asyncio.timeout(20):
        while not (claim := await engine.claim([topic], 1, LEASE)).messages:
            await engine.wait([topic], 5.0)
    return claim.messages[0]


class Stop:
    """Takes the place of a verb: the first call stands still until it is let go or cancelled."""

    def __init__(self, owner: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._verb = getattr(owner, name)
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        monkeypatch.setattr(owner, name, self._call)

    async def _call(self, *given: Any, **how: Any) -> Any:
        if not self.reached.is_set():
            self.reached.set()
            await self.go.wait()
        return await self._verb(*given, **how)


async def _cancel_at(stop: Stop, task: "asyncio.Task[Any]") -> None:
    async with asyncio.timeout(20):
        await stop.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    stop.go.set()


async def test_what_came_too_much_goes_to_others_when_its_copy_was_refused_at_first(
    new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await new(), await new()
    send, refused = one._sender.send, asyncio.Event()

    async def refuse(*_: object) -> Sequence[Any]:
        monkeypatch.setattr(one._sender, "send", send)
        refused.set()
        raise QueueFull("The memory is full.")

    await one.put([NewMessage("mail", b"x")])
    monkeypatch.setattr(inbox, "SURPLUS", 0.05)
    monkeypatch.setattr(one._sender, "send", refuse)
    await one.wait(["mail"], 5.0)
    async with asyncio.timeout(20):
        await refused.wait()
    claimed = await _claimed(other)
    assert (claimed.body, claimed.attempt) == (b"x", 1)


async def test_a_retry_that_is_cancelled_happens(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = await new(), await new()
    await one.put([NewMessage("mail", b"x")])
    claimed = await _claimed(one)
    stop = Stop(one._sender, "send", monkeypatch)
    await _cancel_at(stop, asyncio.create_task(one.settle([ending(claimed, "retry")])))
    again = await _claimed(other)
    assert (again.body, again.attempt) == (b"x", 2)


async def test_a_tending_that_is_cancelled_gives_back_leases_that_have_ended(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = await new(), await new()
    await one.put([NewMessage("mail", b"x")])
    claimed = await _claimed(one)
    stop = Stop(one._sender, "send", monkeypatch)
    await _cancel_at(stop, asyncio.create_task(one.tend(now=claimed.due + 10 * LEASE)))
    again = await _claimed(other)
    assert (again.body, again.attempt) == (b"x", 2)


async def test_a_receiver_that_is_cancelled_as_it_is_woken_wakes_another_one(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await new()
    for each in ("SWEEP", "SURPLUS", "IDLE"):
        monkeypatch.setattr(inbox, each, 600.0)
    first = asyncio.create_task(one.wait(["mail"], 600.0))
    await once(lambda: len(one._inbox._asleep) == 1)
    second = asyncio.create_task(one.wait(["mail"], 600.0))
    await once(lambda: len(one._inbox._asleep) == 2)
    wake = one._inbox._sleepers.wake

    def wake_and_cancel(topics: Iterable[str]) -> None:
        wake(topics)
        first.cancel()

    monkeypatch.setattr(one._inbox._sleepers, "wake", wake_and_cancel)
    await one.put([NewMessage("mail", b"x")])
    async with asyncio.timeout(20):
        await second
    assert first.cancelled()
    await _claimed(one)


async def test_receivers_of_other_topics_take_no_messages_from_other_programs(
    new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await new(), await new(apart=True)
    for each in ("SURPLUS", "IDLE"):
        monkeypatch.setattr(inbox, each, 600.0)
    waiting = []
    for topic in ("news", "post", "mail"):
        waiting.append(asyncio.create_task(one.wait([topic], 600.0)))
        await once(lambda: len(one._inbox._asleep) == len(waiting))
    await one.put([NewMessage("mail", b"x") for _ in range(3)])
    await asyncio.gather(*(_claimed(other) for _ in range(2)))
    await asyncio.gather(*waiting)


@pytest.mark.parametrize("verb", ["Channel.Flow", "Basic.Qos", "Basic.Consume"])
async def test_a_call_that_is_cancelled_takes_nothing_from_others(verb: str, new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await new()
    await one.put([NewMessage("mail", b"1"), NewMessage("mail", b"2")])
    first, second = await _claimed(one), await _claimed(one)
    # When a call is cancelled while the broker answers
    channel = one._inbox._line.opened
    assert channel is not None
    stop = Stop(channel, "rpc", monkeypatch)
    asked = one.settle([ending(first, "done")]) if verb == "Channel.Flow" else one.claim(["news"], 1, LEASE)
    monkeypatch.setattr(channel, "rpc", Late(channel, verb, stop).rpc)
    await _cancel_at(stop, asyncio.create_task(asked))
    # Then what is held is held still
    assert await one.settle([ending(second, "done")]) == ["done"]


class Late:
    """Stops after the frame of a verb was written, and before its answer is read."""

    def __init__(self, channel: Any, verb: str, stop: Stop) -> None:
        self._rpc = stop._verb
        self._name = verb
        self._stop = stop

    async def rpc(self, frame: Any, timeout: Any = None) -> Any:
        if frame.name == self._name:
            asyncio.get_running_loop().call_soon(self._stop.reached.set)
        return await self._rpc(frame, timeout=timeout)


async def test_what_comes_after_the_receiving_was_ended_goes_to_others(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = await new(), await new()
    monkeypatch.setattr(inbox, "SURPLUS", 0.05)
    assert (await one.claim(["mail"], 1, LEASE)).messages == []
    one._inbox._sources.clear()  # the broker delivers to it still
    await one.put([NewMessage("mail", b"x")])
    assert (await _claimed(other)).body == b"x"


async def test_a_renewed_delivery_is_not_lost_with_its_connection(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = await new(QueueNames("bide")), await new(QueueNames("bide"))
    await one.put([NewMessage("mail", b"x", max_attempts=9)])
    await _claimed(one)
    # When its copy has taken its place, and the connection is lost, and made again soon
    came, arrive = asyncio.Event(), one._parking._arrive

    async def notice(message: DeliveredMessage) -> None:
        await arrive(message)
        came.set()

    monkeypatch.setattr(one._parking, "_arrive", notice)
    await one._parking._park(next(iter(one._holdings._all())))
    async with asyncio.timeout(20):
        await came.wait()
    await one._endings.line.drop()
    await one._parking._receive()
    # Then it comes to its topic
    assert (await _claimed(other)).body == b"x"


async def test_what_a_closed_event_loop_held_goes_to_others(new: New) -> None:
    one, other = await new(), await new()
    await one.put([NewMessage("mail", b"x")])
    claimed = await _claimed(one)
    # When the loop that received it is closed, and its lease ends
    loop = asyncio.new_event_loop()
    loop.close()
    one._endings.loop = loop
    await other.tend(now=claimed.due + 10 * LEASE)
    # Then it is held no more, and its connection is given up
    assert claimed.id not in one._holdings
    assert (await _claimed(other)).body == b"x"


@pytest.mark.parametrize("colour", COLOURS)
async def test_receivers_that_begin_together_get_a_message_each(
    rabbitmq_url: str, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sweep makes room for what the broker keeps back while the first message is handled."""
    for module in ("engines.rabbitmq.aio.inbox", "queue.aio.receive", "queue.sync.receive"):
        monkeypatch.setattr(f"bide.{module}.SWEEP", 60.0)
    async with AsyncQueue(rabbitmq_url) as sender, Either(rabbitmq_url, colour) as queue:
        await sender.send("other", 0)
        waiting = [queue.begin("receive", "t", wait=60) for _ in range(3)]
        await asyncio.wait(waiting, timeout=0.5)  # they sleep
        await sender.send_many("t", range(3))
        async with asyncio.timeout(40):
            assert sorted(each.body for found in await asyncio.gather(*waiting) for each in found) == [0, 1, 2]
