"""Each message has its own TTL, in one queue. RabbitMQ drops expired messages at the head only: the short one waits."""

import asyncio
import os
from typing import Any

import aiormq
from pamqp.commands import Basic


async def main() -> None:
    connection = await aiormq.connect(os.environ.get("RABBITMQ_URL", "amqp://guest:guest@localhost/"))
    channel = await connection.channel()
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    work = (await channel.queue_declare(exclusive=True)).queue or ""
    await channel.basic_consume(work, lambda message: arrived.put(message.body), no_ack=True)
    dead_letters: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": work}
    delay = (await channel.queue_declare(exclusive=True, arguments=dead_letters)).queue or ""
    for milliseconds in (3_000, 100):
        properties = Basic.Properties(expiration=str(milliseconds))
        await channel.basic_publish(f"{milliseconds} ms".encode(), routing_key=delay, properties=properties)
    print("arrived:", (await arrived.get()).decode(), "and then", (await arrived.get()).decode())
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
