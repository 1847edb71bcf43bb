"""A server goes back to before a cancel: the checker knows that this cancel is undone, and takes no other one for that."""

from pathlib import Path

import pytest

from bide import Queue
from bide.prove import History, Recorded, Report, check
from bide.types import CancelResult
from tests.negative.faulty import Fault, FaultySource, LiesAboutCancel
from tests.redis.keyspace import bring_back, picture
from tests.servers.redis import RedisServer


def queue_of(url: str, fault: Fault) -> Queue:
    queue = Queue(url)
    queue.session.setup.source = FaultySource(queue.session.setup.source, fault)
    return queue


def cancel(queue: Recorded, message: str) -> None:
    assert queue.cancel(message) == CancelResult.CANCELLED


def go_back(server: RedisServer, path: Path, url: str, fault: Fault, *, undone: bool) -> Report:
    """With a cancel that is `undone` by the rollback, or one that comes after it."""
    with History(path, "one") as history, queue_of(url, fault) as plain, server.client() as client:
        queue = Recorded(plain, history)
        message = queue.send("t", 1).id
        queue.send("t", 2)
        with history.fault("rollback") as rollback:
            old = picture(client)
            if undone:
                cancel(queue, message)
            bring_back(client, old)
            rollback.landed("all keys are as they were")
        if not undone:
            cancel(queue, message)
        for delivery in queue.receive("t", limit=5):
            delivery.ack()
        queue.look()
    return check([path])


@pytest.mark.parametrize("undone", [True, False])
def test_the_checker_is_content_with_a_server_that_goes_back(
    redis_url: str, redis_server: RedisServer, tmp_path: Path, undone: bool
) -> None:
    report = go_back(redis_server, tmp_path / "one.jsonl", redis_url, Fault(), undone=undone)
    assert report.valid is True, str(report)
    assert report.counts["undone"] == undone


def test_the_checker_finds_an_engine_that_lies_about_a_cancel_after_a_rollback(
    redis_url: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    report = go_back(redis_server, tmp_path / "one.jsonl", redis_url, LiesAboutCancel(), undone=False)
    assert set(report.violations) == {"final"}
