"""A forked child has connections, claims and operations of its own."""

import os

import pytest

from bide import Queue

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
