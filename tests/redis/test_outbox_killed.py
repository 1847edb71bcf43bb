"""Relays of an outbox that are killed again and again: what was committed is sent, each message once."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from bide import AsyncQueue, Queue, Worker

LONG = os.environ.get("BIDE_LONG")
KILLS = 50 if LONG else 4
RELAY = "import sys; from bide import Queue; print('here', flush=True); Queue(sys.argv[1], outbox=sys.argv[2]).relay()"


@pytest.mark.timeout(600 if LONG else 120)
def test_relays_that_are_killed_send_each_committed_message_once(redis_url: str, tmp_path: Path) -> None:
    store, chance = f"sqlite:///{tmp_path}/app.db", random.Random(1)
    with Queue(store) as there:
        there.stats()
    committed: list[int] = []
    with Queue(redis_url, outbox=store) as queue, closing(sqlite3.connect(tmp_path / "app.db", timeout=30)) as own:
        for kill in range(KILLS):
            relay = subprocess.Popen([sys.executable, "-c", RELAY, redis_url, store], stdout=subprocess.PIPE)
            assert relay.stdout is not None
            relay.stdout.readline()
            before = queue.stats("t").pending
            for number in range(kill * 100, kill * 100 + 100):
                queue.send("t", number, connection=own)
                if chance.random() < 0.5:
                    own.commit()
                    committed.append(number)
                else:
                    own.rollback()
                if number % 100 >= 50 and queue.stats("t").pending > before:  # in the middle of its work
                    break
            relay.send_signal(signal.SIGKILL)
            relay.wait()
            relay.stdout.close()
        _finish(queue)
        received = Counter(each.body for _ in range(len(committed)) for each in queue.receive("t", limit=1_000))
    assert received == Counter(committed)


async def test_a_result_is_asked_for_by_the_id_that_the_sender_was_told(redis_url: str, tmp_path: Path) -> None:
    async with AsyncQueue(redis_url, outbox=f"sqlite:///{tmp_path}/app.db") as queue:

        @queue.task("add", keep="1h")
        async def add(a: int, b: int) -> int:
            return a + b

        assert await queue.relay(wait=False) == 0  # makes the file
        with closing(sqlite3.connect(tmp_path / "app.db")) as own:
            sent = await add.options(connection=own).send(1, 2)
            own.commit()
        async with Worker(queue):
            assert await sent.result(timeout="30s") == 3


def _finish(queue: Queue) -> None:
    """Hand on the rest, with what killed relays had taken, as if their leases had ended."""
    outbox = queue.session.open().outbox
    assert outbox is not None
    queue.relay(wait=False)
    while outbox.store.stats().leased or outbox.store.stats().pending:
        outbox.store.tend(now=(outbox.store.claim([], 1, 1).now) + 60_000)
        queue.relay(wait=False)
