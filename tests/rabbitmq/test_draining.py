"""Receivers that take a backlog until nothing is left."""

import pytest

from bide import Queue
from bide.engines.rabbitmq.aio import inbox

MANY = 3_000


def test_a_backlog_is_received_to_its_end_without_waiting(rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds in ("PROMPT", "RECENT"):  # for a disk that is slow
        monkeypatch.setattr(inbox, seconds, 20.0)
    with Queue(rabbitmq_url) as queue:
        queue.send_many("mail", list(range(MANY)))
        got = []
        while deliveries := queue.receive("mail", limit=100):
            got += [each.body for each in deliveries]
            queue.ack_many(deliveries)
        assert sorted(got) == list(range(MANY))
