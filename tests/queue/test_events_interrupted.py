"""A subscriber is told of what follows, in whatever thread, when a call of it was interrupted or left behind by a fork."""

import inspect
import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from bide import MessagesSent, Queue
from bide.queue.subscription import Subscription


class Counting:
    def __init__(self) -> None:
        self.count = 0

    def sent(self, event: MessagesSent) -> None:
        self.count += event.count


class Waiting(Counting):
    """Within whose call another thread stays."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.go_on = threading.Event(), threading.Event()

    def sent(self, event: MessagesSent) -> None:
        super().sent(event)
        self.inside.set()
        self.go_on.wait()


@pytest.fixture
def queue() -> Iterator[Queue]:
    with Queue("memory://") as queue:
        yield queue


def in_a_thread(queue: Queue) -> threading.Thread:
    thread = threading.Thread(target=queue.send, args=("t", 1))
    thread.start()
    return thread


def before_the_call() -> list[int]:
    """The lines of `_call` up to the one that calls the subscriber."""
    lines, first = inspect.getsourcelines(Subscription._call)
    [call] = [at for at, line in enumerate(lines, first) if line.strip() == "return what(*given)"]
    return list(range(first, call + 1))


@pytest.mark.parametrize("at", range(len(before_the_call())))
def test_ctrl_c_before_a_subscriber_is_called_leaves_it_to_be_told_of_what_follows(queue: Queue, at: int) -> None:
    line, counting = before_the_call()[at], Counting()
    queue.events.subscribe(counting)

    def interrupt(frame: FrameType, what: str, _: object) -> Any:
        if frame.f_code is Subscription._call.__code__ and what == "line" and frame.f_lineno == line:
            raise KeyboardInterrupt
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        queue.send("t", 1)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    told = counting.count
    queue.send("t", 1)

    assert counting.count == told + 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_is_told_what_its_threads_do_whoever_was_within_a_subscriber_meanwhile(queue: Queue) -> None:
    """A new thread of a fork may have the number of one that was not taken along."""
    waiting = Waiting()
    queue.events.subscribe(waiting)
    thread = in_a_thread(queue)
    waiting.inside.wait()
    child = os.fork()
    if not child:
        told = -1
        try:
            waiting.count = 0
            waiting.go_on = threading.Event()
            waiting.go_on.set()
            for _ in range(5):
                in_a_thread(queue).join()
            told = waiting.count
        finally:
            os._exit(told & 0xFF)
    _, status = os.waitpid(child, 0)
    waiting.go_on.set()
    thread.join()

    assert os.waitstatus_to_exitcode(status) == 5
