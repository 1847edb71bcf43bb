"""RabbitMQ: a queue for each delay, with one TTL for all of its messages, whose dead letters go to the consumers' queue."""

from collections.abc import Callable
from functools import cache

import pika
from pika.adapters.blocking_connection import BlockingChannel

EXPIRED_GO_TO = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}


def connect(url: str) -> BlockingChannel:
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.confirm_delivery()
    channel.queue_declare("orders", durable=True)
    return channel


@cache
def waiting(channel: BlockingChannel, ttl: int) -> str:
    channel.queue_declare(f"waiting.{ttl}", durable=True, arguments={"x-message-ttl": ttl, **EXPIRED_GO_TO})
    return f"waiting.{ttl}"


def send(channel: BlockingChannel, body: str, delay: float) -> None:
    queue = waiting(channel, round(1000 * delay))  # one more queue on the broker for each delay that you think of
    channel.basic_publish("", queue, body.encode(), pika.BasicProperties(delivery_mode=2))


def work(channel: BlockingChannel, handle: Callable[[str], None]) -> None:
    channel.basic_qos(prefetch_count=100)
    for method, _, body in channel.consume("orders"):
        handle(body.decode())
        channel.basic_ack(method.delivery_tag)
