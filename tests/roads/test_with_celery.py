"""What a Celery worker does with messages that are not due: it takes them, and keeps them in its memory."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest
from redis import Redis

from benchmarks.peers.install import NotInstalled
from benchmarks.roads.environments import python_of
from tests.roads.conftest import Start
from tests.roads.consumers import Consumer
from tests.servers.programs import lacking

pytestmark = pytest.mark.slow  # they take an environment of their own
ETA = 20.0  # seconds: time for another worker to start


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return python_of("celery_eta")
    except NotInstalled as reason:
        lacking(f"Celery can't be installed: {reason}")


def test_a_message_that_waits_is_nobody_s_when_its_worker_is_killed(redis_url: str, python: Path, start: Start) -> None:
    with Redis.from_url(redis_url) as server:
        sender = start("celery_eta", redis_url, "--send", python=python)
        killed = start("celery_eta", redis_url, python=python)
        # Given a message that is due in 3 seconds, and a worker has it
        sender.send("parked", 3)
        _until(lambda: server.hlen("unacked") == 1)
        killed.kill()
        # When another worker is there, and the message is overdue
        other = start("celery_eta", redis_url, python=python)
        sender.send("later", 4)
        assert other.handled() == "later"
        # Then it is neither queued nor with that worker: it is left for an hour
        _until(lambda: server.hlen("unacked") == 1)  # the other one has been acknowledged
        other.kill()
        assert server.llen("celery") == 0
        assert server.hlen("unacked") == 1


def test_a_message_that_waits_longer_than_the_visibility_timeout_is_done_twice(
    redis_url: str, python: Path, start: Start
) -> None:
    settings = {"VISIBILITY_TIMEOUT": "2"}
    with Redis.from_url(redis_url) as server:
        # Given a worker that keeps a message for longer than the timeout
        workers = [start("celery_eta", redis_url, python=python, settings=settings)]
        sender = start("celery_eta", redis_url, "--send", python=python, settings=settings)
        sender.send("mail", ETA)
        _until(lambda: server.hlen("unacked") == 1)
        _until(lambda: server.zcount("unacked_index", 0, time.time() - 3) == 1)
        # When another worker starts, which looks for messages that are out for too long
        workers.append(start("celery_eta", redis_url, python=python, settings=settings))
        # Then both copies are handled
        handled: Queue[str] = Queue()
        for worker in workers:
            Thread(target=_collect, args=(worker, handled), daemon=True).start()
        assert [handled.get(), handled.get()] == ["mail", "mail"]


def _collect(worker: Consumer, handled: "Queue[str]") -> None:
    with suppress(AssertionError):  # it has been killed
        while True:
            handled.put(worker.handled())


def _until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.01)
