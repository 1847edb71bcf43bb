"""Sends in an event loop: one that comes alone is made by its caller, and those that come together share a call."""

import asyncio
from collections.abc import Sequence

import pytest

from bide import AsyncQueue, OutcomeUnknown, Queue, Sent, Unavailable
from bide.engines.base import NewMessage


async def slow(queue: AsyncQueue) -> tuple[asyncio.Event, asyncio.Event]:
    """Calls that send have begun when the one is set, and go on when the other is."""
    puts = (await queue.session.open()).puts
    put, begun, left = puts._call, asyncio.Event(), asyncio.Event()

    async def wait(messages: Sequence[NewMessage]) -> Sequence[Sent]:
        begun.set()
        await left.wait()
        return await put(messages)

    puts._call = wait
    return begun, left


async def test_a_send_that_comes_alone_is_made_by_its_caller_and_those_that_come_together_share_a_call() -> None:
    async with AsyncQueue("memory://") as queue:
        puts = (await queue.session.open()).puts
        put, calls = puts._call, list[tuple[object, int]]()

        async def told(messages: Sequence[NewMessage]) -> Sequence[Sent]:
            calls.append((asyncio.current_task(), len(messages)))
            return await put(messages)

        puts._call = told
        await queue.send("t", 0)
        sending = [asyncio.create_task(queue.send("t", number)) for number in range(1, 4)]
        await asyncio.gather(*sending)
        assert calls[0] == (asyncio.current_task(), 1)
        [(caller, size)] = calls[1:]
        assert caller not in sending
        assert size == 3
        assert [each.body for each in await queue.receive("t", limit=9)] == [0, 1, 2, 3]


async def test_who_comes_while_a_lone_send_is_under_way_is_served_also_when_that_is_cancelled() -> None:
    async with AsyncQueue("memory://") as queue:
        begun, left = await slow(queue)
        alone = asyncio.create_task(queue.send("t", "alone"))
        await begun.wait()
        others = [asyncio.create_task(queue.send("t", number)) for number in range(3)]
        await asyncio.sleep(0)
        alone.cancel()
        await asyncio.wait([alone])
        assert alone.cancelled()
        left.set()
        assert all(each.created for each in await asyncio.gather(*others))
        assert [each.body for each in await queue.receive("t", limit=9)] == [0, 1, 2]


async def test_closing_sees_a_lone_send_through() -> None:
    queue = AsyncQueue("memory://close-alone")
    begun, left = await slow(queue)
    alone = asyncio.create_task(queue.send("t", 1))
    await begun.wait()
    closing = asyncio.create_task(queue.close())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not closing.done()
    left.set()
    await closing
    assert (await alone).created
    assert Queue("memory://close-alone").stats("t").ready == 1


async def test_the_error_of_a_lone_send_tells_its_own_operation() -> None:
    async with AsyncQueue("memory://") as queue:
        puts = (await queue.session.open()).puts

        async def unknown(messages: Sequence[NewMessage]) -> Sequence[Sent]:
            raise OutcomeUnknown("No answer.", operations=["o-1"])

        puts._call = unknown
        with pytest.raises(OutcomeUnknown, match=r"^No answer\.") as caught:
            await queue.send("t", 1)
        assert caught.value.operation == "o-1"


async def test_of_two_that_are_added_before_either_is_awaited_none_is_forgotten_by_a_close() -> None:
    queue = AsyncQueue("memory://close-two")
    begun, left = await slow(queue)
    puts = (await queue.session.open()).puts
    both = [puts.add(NewMessage("t", b"1")) for _ in range(2)]
    sending = [asyncio.ensure_future(each) for each in both]
    await begun.wait()
    closing = asyncio.create_task(queue.close())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not closing.done()
    left.set()
    await closing
    assert all(each.created for each in await asyncio.gather(*sending))


async def test_one_that_was_added_before_a_close_and_is_awaited_after_it_is_refused() -> None:
    queue = AsyncQueue("memory://")
    late = (await queue.session.open()).puts.add(NewMessage("t", b"1"))
    await queue.close()
    with pytest.raises(Unavailable, match="closed"):
        await late


async def test_a_lone_call_that_is_given_up_keeps_nobody_busy_who_waits_for_the_rest() -> None:
    async with AsyncQueue("memory://") as queue:
        begun, left = await slow(queue)
        puts = (await queue.session.open()).puts
        alone = asyncio.create_task(queue.send("t", 1))
        await begun.wait()
        puts.drop()
        async with asyncio.timeout(20):
            await puts.emptied()
        assert not alone.done()
        left.set()
        assert (await alone).created
