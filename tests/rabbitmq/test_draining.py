"""Receivers that take a backlog until nothing is left."""

from bide import Queue

MANY = 3_000


def test_a_backlog_is_received_to_its_end_without_waiting(rabbitmq_url: str) -> None:
    with Queue(rabbitmq_url) as queue:
        queue.send_many("mail", list(range(MANY)))
        got = []
        while deliveries := queue.receive("mail", limit=100):
            got += [each.body for each in deliveries]
            queue.ack_many(deliveries)
        assert sorted(got) == list(range(MANY))
