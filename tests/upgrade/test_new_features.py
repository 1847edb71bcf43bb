"""What docs/production.md says of features that the release before does not know, while its processes are still there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bide import Locked, Queue, ResultCancelled
from tests.upgrade.release import PLACES, Release
from tests.worker.processes import until

DAY = 86_400_000

pytestmark = pytest.mark.parametrize("place", PLACES, indirect=True)  # the later ones know all of this


@contextmanager
def worker_of(release: Release, url: str, path: Path) -> Iterator[Queue]:
    """While it works on the topic `order`."""
    with release.busy("work", url=url, path=str(path / "log")), Queue(url) as queue:
        yield queue


def done_in(path: Path) -> list[str]:
    return (path / "log").read_text(encoding="utf-8").splitlines()


def test_its_workers_run_messages_without_their_locks_and_leave_the_locks_as_they_are(
    before: Release, url: str, tmp_path: Path
) -> None:
    with worker_of(before, url, tmp_path) as queue:

        @queue.task("order", lock="order:{n}", rate="1/h")
        def handle(n: int) -> None: ...

        with queue.lock("order:1") as lock:
            for _ in range(2):
                handle.send(n=1)
            until(lambda: not queue.stats("order").pending and not queue.stats("order").leased)
            lock.check()
            with pytest.raises(Locked), queue.lock("order:1"):
                raise AssertionError
    assert done_in(tmp_path) == ["done 1"] * 2


def test_its_workers_keep_no_results_and_call_nobody_who_waits_for_them(before: Release, url: str, tmp_path: Path) -> None:
    with worker_of(before, url, tmp_path) as queue:

        @queue.task("order", keep="1h")
        def handle(n: int) -> int:
            return n

        queue.pause("order")
        sent = handle.send(n=1)
        follows = queue.send("follows", depends_on=[sent])
        queue.resume("order")
        until(lambda: queue.get(sent) is None)
        with pytest.raises(ResultCancelled, match="or a worker whose task has no keep= has handled it"):
            sent.result(timeout="10s")
        info = queue.get(follows)
        assert info is not None
        assert (info.state, info.due) == ("scheduled", follows.due)
    assert done_in(tmp_path) == ["done 1"]


def test_its_workers_bury_what_was_merged_and_nothing_of_it_is_lost(before: Release, url: str, tmp_path: Path) -> None:
    with worker_of(before, url, tmp_path) as queue:
        queue.pause("order")
        for n in range(3):
            queue.send("order", {"n": n}, key="k", if_exists="merge")
        queue.resume("order")
        until(lambda: queue.stats("order").dead)
    with Queue(url) as queue:
        queue.requeue("order")
        [message] = queue.receive("order", wait=10)
        assert message.body == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert done_in(tmp_path) == []


def test_it_forgets_nothing_that_is_to_be_sent_once_in_a_period_but_sends_it_again(before: Release, url: str) -> None:
    with Queue(url) as queue:
        first = queue.send("mail", key="user:42", unique_for="1d")
        queue.cancel(first)
        assert before.do("send_one", url=url, topic="mail", key="user:42") == "created"
        before.do("use", url=url)  # what it does besides
        again = queue.send("mail", key="user:42", unique_for="1d")
        assert (again.outcome, again.id) == ("duplicate", first.id)


def test_its_sends_may_put_a_message_off_for_longer_than_max_wait(before: Release, url: str) -> None:
    with Queue(url) as queue:
        first = queue.send("mail", delay="10s", key="k", if_exists="later", max_wait="1m")
        assert before.do("send_one", url=url, topic="mail", delay="1d", key="k", if_exists="later") == "postponed"
        info = queue.get(first.id)
        assert info is not None
        assert info.due > first.due + DAY - 60_000
