"""How soon a caller is told that nobody can answer: at once where that is sure, and else within timeout=."""

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from bide import Queue, Unavailable
from tests.servers.fixtures import NewPostgres, NewStandby

AT_ONCE = 3.0  # seconds; a call that waits for a server takes 15


@pytest.fixture
def began() -> float:
    return time.monotonic()


@pytest.mark.parametrize("hosts", ["127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2"])
async def test_a_first_connection_that_is_refused_is_told_at_once(
    hosts: str, make_queue: Callable[..., Any], began: float
) -> None:
    with pytest.raises(Unavailable, match=r"Is the server running, and is the URL right\?"):
        await make_queue(f"postgres://postgres@{hosts}/shop").send("t", 1)
    assert time.monotonic() < began + AT_ONCE


def test_a_first_connection_to_a_server_that_is_silent_ends_with_timeout(began: float) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as silent:
        queue = Queue(f"postgres://postgres@127.0.0.1:{silent.getsockname()[1]}/shop?timeout=1")
        with pytest.raises(Unavailable):
            queue.send("t", 1)
        assert time.monotonic() < began + AT_ONCE


def test_a_server_that_was_there_is_waited_for(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    with Queue(server.url) as queue:
        queue.send("t", 1)
        server.stop()
        sending = threading.Thread(target=queue.send, args=["t", 2])
        sending.start()
        server.start()
        sending.join()
        assert queue.stats("t").ready == 2


def test_a_standby_is_told_at_once_where_no_other_server_may_be_the_primary(
    new_postgres: NewPostgres, new_standby: NewStandby
) -> None:
    primary = new_postgres()
    with Queue(primary.url) as queue:
        queue.send("t", 1)
    standby = new_standby(primary)
    standby.wait_until_caught_up()
    with Queue(standby.url) as queue:
        assert queue.stats("t").ready == 1
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(Unavailable, match="takes no writes: it is a standby"):
                queue.send("t", 2)
            assert time.monotonic() < began + AT_ONCE
        standby.promote()
        queue.send("t", 2)
        assert queue.stats("t").ready == 2
