"""An outbox before a Redis server that is full for some of its messages only."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bide import Queue, QueueFull
from tests.servers.fixtures import NewRedis


def test_a_message_that_fills_the_server_while_it_is_read_keeps_no_others_back(new_redis: NewRedis, tmp_path: Path) -> None:
    server = new_redis(maxmemory_policy="noeviction")
    with server.client() as client:
        empty = client.info("memory")["used_memory"]
        client.config_set("maxmemory", empty + 2**23)
    store = f"sqlite:///{tmp_path}/app.db"
    with Queue(server.url, outbox=store, max_body=2**26) as queue, closing(sqlite3.connect(tmp_path / "app.db")) as own:
        with Queue(store) as there:
            there.stats()
        queue.send("t", "x" * 2**25, connection=own)
        queue.send_many("t", range(20), connection=own)
        own.commit()
        outbox = queue.session.open().outbox
        assert outbox is not None
        claim = outbox.store.claim
        now = 0
        outbox.store.claim = lambda *args: claim(*args, now=now or None)  # type: ignore[method-assign]
        with pytest.raises(QueueFull):
            queue.relay(wait=False)
        with server.client() as client:
            kept = client.info("memory")["used_memory"]  # of what it was sent it may have a copy still
            client.config_set("maxmemory", kept + 2**22)
        now = claim(["none"], 1, 1).now + 5_000  # the large one is not tried again yet
        outbox.store.tend(now=now)
        assert queue.relay(wait=False) == 20
        assert queue.stats("t").ready == 20
