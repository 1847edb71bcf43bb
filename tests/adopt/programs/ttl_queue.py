"""A delay by RabbitMQ's TTL: messages wait in a queue, and are dead-lettered to the queue of the consumers.

fill COUNT FIRST BEGIN LENGTH: so many messages, due evenly within LENGTH seconds from BEGIN seconds on, numbered from FIRST.
produce …: the same, one after the other. work: the consumer.
"""

import asyncio
import json
import sys
import time
from datetime import UTC, datetime
from typing import Any

import aiormq
from pamqp.commands import Basic

from tests.adopt.programs.recording import record

ARGUMENTS: Any = {"x-queue-type": sys.argv[2], "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"}


async def send(channel: Any, count: int, first: int, begin: int, length: int, *, singly: bool) -> None:
    base = time.time_ns() // 1_000_000 + begin * 1000
    under_way: list[Any] = []
    for number in range(count):
        now = time.time_ns() // 1_000_000
        due = base + length * 1000 * number // count
        stamp = datetime.fromtimestamp(now // 1000, UTC)
        properties = Basic.Properties(expiration=str(due - now), timestamp=stamp, delivery_mode=2)
        body = json.dumps({"n": first + number, "due": due}).encode()
        under_way.append(asyncio.ensure_future(channel.basic_publish(body, routing_key="wait", properties=properties)))
        if singly or len(under_way) == 500:
            await asyncio.gather(*under_way)
            under_way.clear()
        if singly:
            await asyncio.sleep(0.002)
    await asyncio.gather(*under_way)


async def work(channel: Any) -> None:
    async def on_message(message: Any) -> None:
        each = json.loads(message.body)
        record([(each["n"], each["due"])])
        await channel.basic_ack(message.delivery.delivery_tag, wait=False)

    await channel.basic_qos(prefetch_count=100)
    await channel.basic_consume("work", on_message)
    await asyncio.Event().wait()


async def main() -> None:
    async with aiormq.connect(sys.argv[1]) as connection:
        channel = await connection.channel()
        for name in ("wait", "work"):
            await channel.queue_declare(name, durable=True, arguments=ARGUMENTS if name == "wait" else {})
        if sys.argv[3] == "work":
            await work(channel)
        else:
            await send(channel, *map(int, sys.argv[4:]), singly=sys.argv[3] == "produce")


asyncio.run(main())
