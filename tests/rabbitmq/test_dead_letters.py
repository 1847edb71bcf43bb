"""Dead letters are in a queue that gives each message to one reader at a time: none is left out, and none shown twice."""

import asyncio

import aiormq
from aiormq.abc import AbstractChannel
from pamqp.commands import Basic

from bide.engines.base import End, NewMessage
from bide.engines.rabbitmq.aio import dead_letters
from bide.engines.rabbitmq.aio.engine import AsyncRabbit
from tests.rabbitmq.conftest import New
from tests.rabbitmq.test_attempts import LEASE, claimed
from tests.worker.conftest import once

MANY = 60
STRANGE = [b"", b"plain", b'{"id": "\xff"}', b"[" * 20_000, b'{"id":1}']


async def buried(engine: AsyncRabbit, count: int = MANY) -> None:
    """In one call, and not in the order of their ids."""
    await engine.put([NewMessage("mail", str(n).encode()) for n in range(count)])
    found = await claimed(engine, count)
    ends = [End(each.topic, each.id, each.token, "dead") for each in sorted(found, key=lambda each: each.id, reverse=True)]
    assert set(await engine.settle(ends)) == {"dead"}


async def pages(engine: AsyncRabbit, size: int) -> list[bytes]:
    found, after = list[bytes](), None
    while True:
        page = await engine.scan("mail", "dead", size, after)
        found += [each.body for each in page.messages]
        if (after := page.after) is None:
            return found


async def test_pages_show_each_dead_letter_once_also_of_those_that_died_at_the_same_time(new: New) -> None:
    engine = await new()
    await buried(engine)
    assert sorted(map(int, await pages(engine, 7))) == list(range(MANY))


async def test_two_who_look_at_once_see_all_and_a_requeue_beside_them_leaves_none(new: New) -> None:
    one, two, three = [await new(apart=True) for _ in range(3)]
    await buried(one)
    first, second = await asyncio.gather(pages(one, 100), pages(two, 100))
    assert (len(first), len(second)) == (MANY, MANY)
    _, swept = await asyncio.gather(pages(one, 100), three.requeue("mail"))
    assert (swept.count, swept.more) == (MANY, False)
    assert await pages(two, 100) == []


async def _channel(url: str) -> AbstractChannel:
    return await (await aiormq.connect(url)).channel()


async def test_what_others_send_becomes_a_dead_letter_whatever_it_is(new: New, rabbitmq_url: str) -> None:
    engine = await new()
    await engine.put([NewMessage("mail", b"ours")])
    channel = await _channel(rabbitmq_url)
    for each in STRANGE:
        await channel.basic_publish(
            b"theirs", routing_key="bide:topic:mail", properties=Basic.Properties(headers={"bide": bytearray(each)})
        )
    [ours] = await claimed(engine, 1)
    assert ours.body == b"ours"

    async def all_there() -> bool:
        return await pages(engine, 100) == [b"theirs"] * len(STRANGE)

    async with asyncio.timeout(20):
        while not await all_there():
            assert (await engine.claim(["mail"], 5, LEASE)).messages == []
            await engine.wait(["mail"], 0.1)
    await channel.connection.close()


async def test_what_others_send_to_the_lost_messages_is_buried_once(new: New, rabbitmq_url: str) -> None:
    engine = await new()
    channel = await _channel(rabbitmq_url)
    await channel.basic_publish(b"theirs", routing_key="bide:lost")
    assert await engine._lost.bring_back(0, at_once=True) == 0
    page = await engine.scan(dead_letters.TOPIC, "dead", 10)
    assert [each.body for each in page.messages] == [b"theirs"]
    assert await engine._lost.bring_back(0, at_once=True) == 0
    assert len((await engine.scan(dead_letters.TOPIC, "dead", 10)).messages) == 1
    await channel.connection.close()


async def test_a_requeue_leaves_what_others_have_put_among_the_dead_letters(new: New, rabbitmq_url: str) -> None:
    engine = await new()
    await buried(engine, 3)
    channel = await _channel(rabbitmq_url)
    await channel.basic_publish(b"theirs", routing_key="bide:dead:mail")
    assert (await engine.requeue("mail")).count == 3
    assert len(await claimed(engine, 3)) == 3
    assert (await channel.queue_declare("bide:dead:mail", passive=True)).message_count == 1
    await channel.connection.close()
    await once(lambda: channel.is_closed)
