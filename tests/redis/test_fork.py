"""A forked child has connections, claims and operations of its own."""

import os
import threading

import pytest

from bide import Queue
from bide.engines.redis.sync.engine import Redis

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def in_child(work: object) -> int:
    """Run it in a forked child; gives the child's exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = work()  # type: ignore[operator]
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_claims_and_sends_beside_its_parent(redis_url: str) -> None:
    with Queue(redis_url) as queue:
        queue.send_many("t", list(range(10)))
        mine = queue.receive("t", limit=2)

        def work() -> int:
            its = queue.receive("t", limit=2)
            queue.send("u", "child")
            for each in its:
                each.ack()
            return 0 if len(its) == 2 and not {each.id for each in its} & {each.id for each in mine} else 2

        assert in_child(work) == 0
        queue.send("u", "parent")
        for each in mine:
            each.ack()
        assert (queue.stats("t").ready, queue.stats("t").leased) == (6, 0)
        assert sorted(each.body for each in queue.receive("u", limit=9)) == ["child", "parent"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_was_forked_while_a_thread_opened_the_queue_opens_it_in_any_thread(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, open_it = Queue(redis_url), Redis.open
    opening, go_on = threading.Event(), threading.Event()

    def open_slowly(engine: Redis) -> None:
        opening.set()
        go_on.wait()
        open_it(engine)

    def work() -> int:
        monkeypatch.undo()
        sent: list[object] = []
        thread = threading.Thread(target=lambda: sent.append(queue.send("t", "child")))
        thread.start()
        thread.join()
        return 0 if sent else 2

    monkeypatch.setattr(Redis, "open", open_slowly)
    first = threading.Thread(target=queue.send, args=("t", "parent"))
    first.start()
    opening.wait()
    assert in_child(work) == 0
    go_on.set()
    first.join()
    assert sorted(each.body for each in queue.receive("t", limit=9)) == ["child", "parent"]
    queue.close()
