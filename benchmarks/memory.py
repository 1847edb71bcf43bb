"""The memory engine through the public API, with bodies of about 100 bytes."""

import asyncio

from benchmarks.measure import Figure, clock, rates
from bide import AsyncQueue, Queue

BODY = {"order": 42, "customer": "c-1234567", "note": "x" * 50}
SENDERS, EACH = 1_000, 100
MANY = 100_000


def run() -> list[Figure]:
    return rates(
        {
            "send_many": lambda: asyncio.run(_send_many()),
            "send from 1,000 coroutines": lambda: asyncio.run(_coroutines()),
            "receive + ack in hundreds, async": lambda: asyncio.run(_drain()),
            "receive + ack in hundreds, sync": _drain_sync,
            "receive hundreds, ack one by one, sync": _ack_one_by_one,
            "send one by one, sync": _one_by_one,
        },
        {
            "send_many": ">= 300,000",
            "send from 1,000 coroutines": ">= 100,000",
            "receive + ack in hundreds, async": ">= 200,000",
            "receive + ack in hundreds, sync": ">= 200,000",
        },
    )


async def _send_many() -> int:
    queue = AsyncQueue("memory://")
    items = [BODY] * MANY
    clock.start()
    await queue.send_many("t", items)
    clock.stop()
    await queue.close()
    return MANY


async def _coroutines() -> int:
    queue = AsyncQueue("memory://")

    async def sender() -> None:
        for _ in range(EACH):
            await queue.send("t", BODY, delay=900)

    clock.start()
    await asyncio.gather(*(sender() for _ in range(SENDERS)))
    clock.stop()
    await queue.close()
    return SENDERS * EACH


async def _drain() -> int:
    queue = AsyncQueue("memory://")
    await queue.send_many("t", [BODY] * MANY)
    clock.start()
    while deliveries := await queue.receive("t", limit=100):
        await queue.ack_many(deliveries)
    clock.stop()
    await queue.close()
    return MANY


def _drain_sync() -> int:
    with Queue("memory://") as queue:
        queue.send_many("t", [BODY] * MANY)
        clock.start()
        while deliveries := queue.receive("t", limit=100):
            queue.ack_many(deliveries)
        clock.stop()
    return MANY


def _ack_one_by_one() -> int:
    with Queue("memory://") as queue:
        queue.send_many("t", [BODY] * MANY)
        clock.start()
        while deliveries := queue.receive("t", limit=100):
            for delivery in deliveries:
                delivery.ack()
        clock.stop()
    return MANY


def _one_by_one() -> int:
    with Queue("memory://") as queue:
        clock.start()
        for _ in range(MANY):
            queue.send("t", BODY, delay=900)
        clock.stop()
    return MANY
