"""RabbitMQ: messages wait in one queue, each with a TTL of its own, and its dead letters go to the consumers' queue."""

from collections.abc import Callable

import pika
from pika.adapters.blocking_connection import BlockingChannel

EXPIRED_GO_TO = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}


def connect(url: str) -> BlockingChannel:
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.confirm_delivery()
    channel.queue_declare("orders", durable=True)
    channel.queue_declare("waiting", durable=True, arguments=EXPIRED_GO_TO)
    return channel


def send(channel: BlockingChannel, body: str, delay: float) -> None:
    ttl = str(round(1000 * delay))  # counts at the head of the queue only
    channel.basic_publish("", "waiting", body.encode(), pika.BasicProperties(delivery_mode=2, expiration=ttl))


def work(channel: BlockingChannel, handle: Callable[[str], None]) -> None:
    channel.basic_qos(prefetch_count=100)
    for method, _, body in channel.consume("orders"):
        handle(body.decode())
        channel.basic_ack(method.delivery_tag)
