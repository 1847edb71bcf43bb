"""A fork: parent and child go on with the file, each by itself, and nothing is lost or done twice."""

import asyncio
import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, Call, Hook, Queue
from bide.engines.sqlite.job import Job

LONG_BEFORE_IT_ENDS = 20.0  # seconds; without a wake-up, a wait takes all of its time

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
threads_are_known = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def sound(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("pragma integrity_check").fetchall() == [("ok",)]


class Pipe:
    """A word from one process to another."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def say(self) -> None:
        os.write(self._write, b".")

    def hear(self) -> None:
        assert os.read(self._read, 1) == b"."

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@pytest.fixture
def pipe() -> Iterator[Callable[[], Pipe]]:
    made: list[Pipe] = []

    def make() -> Pipe:
        made.append(Pipe())
        return made[-1]

    yield make
    for each in made:
        each.close()


def plain_fork(work: Callable[[], object]) -> Callable[[], int]:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(60)
            work()
            code = 0
        finally:
            os._exit(code)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def multiprocessing_fork(work: Callable[[], object]) -> Callable[[], int]:
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()

    def ended() -> int:
        child.join()
        code = child.exitcode
        child.close()
        return -1 if code is None else code

    return ended


def fork_of_a_thread(work: Callable[[], object]) -> Callable[[], int]:
    ends: list[Callable[[], int]] = []
    thread = threading.Thread(target=lambda: ends.append(plain_fork(work)))
    thread.start()
    thread.join()
    return ends[0]


FORKS = [plain_fork, multiprocessing_fork, fork_of_a_thread]
forked = pytest.mark.parametrize("fork", FORKS, ids=lambda each: each.__name__)


def drained(url: str) -> list[Any]:
    with closing(Queue(url)) as queue:
        deliveries = queue.receive("t", limit=1_000)
        assert all(queue.ack_many(deliveries))
        return sorted(each.body for each in deliveries)


@needs_fork
@threads_are_known
@forked
@pytest.mark.parametrize("first", ["child", "parent"])
def test_both_go_on_after_a_fork_and_nothing_is_lost_when_either_ends_first(
    first: str, fork: Any, url: str, path: Path, pipe: Callable[[], Pipe]
) -> None:
    queue = Queue(url)
    queue.send("t", "before")
    queue.stats()
    sent, closed = pipe(), pipe()

    def child() -> None:
        queue.send("t", "child 1")
        sent.say()
        if first == "parent":
            closed.hear()
        for number in range(2, 5):
            queue.send("t", f"child {number}")
        assert queue.stats("t").ready >= 5
        queue.close()

    ended = fork(child)
    sent.hear()
    queue.send("t", "parent 1")
    if first == "child":
        assert ended() == 0
    queue.send("t", "parent 2")
    queue.close()
    closed.say()
    if first == "parent":
        assert ended() == 0
    assert sound(path)
    assert drained(url) == ["before", *(f"child {n}" for n in range(1, 5)), "parent 1", "parent 2"]


@needs_fork
@threads_are_known
def test_a_fork_in_the_middle_of_many_sends_neither_hangs_nor_loses_nor_repeats(url: str, path: Path) -> None:
    queue = Queue(url)
    queue.send("t", "before")
    stop = threading.Event()
    accepted: list[str] = []

    def busy(name: str) -> None:
        number = 0
        while not stop.is_set():
            accepted.append(queue.send("t", f"{name}-{number}").id)
            number += 1
            queue.stats("t")

    def child() -> None:
        assert queue.send("t", f"child of {os.getpid()}").created
        [held] = queue.receive("t")
        held.release()

    threads = [threading.Thread(target=busy, args=[name]) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            assert plain_fork(child)() == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    queue.close()
    assert sound(path)
    with closing(Queue(url)) as after:
        got: list[Any] = []
        while deliveries := after.receive("t", limit=1_000):
            got += deliveries
        assert Counter(each.id for each in got) >= Counter(accepted)
        assert len(got) == len(accepted) + 1 + 8
        after.ack_many(got)


@needs_fork
@threads_are_known
def test_what_the_parent_took_may_be_ended_by_the_child_once(url: str, path: Path) -> None:
    with closing(Queue(url)) as queue:
        queue.send("t", 1)
        [held] = queue.receive("t")
        assert plain_fork(held.ack)() == 0
        assert queue.topics() == []


@needs_fork
@threads_are_known
def test_what_waits_in_the_parent_is_not_done_by_the_child_too(url: str) -> None:
    with closing(Queue(url)) as queue:
        queue.send("t", 1)
        [held] = queue.receive("t")
        writer = queue.session.engine()._engine._executor.database.writer  # type: ignore[attr-defined]
        waiting = Job(lambda tx: tx.sql.execute("insert into topic (space, name) values ('once', 'once')"), durable=True)
        writer._waiting.append(waiting)  # a thread is about to ask for the lock
        assert plain_fork(held.ack)() == 0
        assert queue.topics() == []
        writer.do(Job(lambda tx: None, durable=False))
        assert waiting.answer.exception() is None


@needs_fork
@threads_are_known
@pytest.mark.usefixtures("no_sweeps")
def test_a_child_that_was_given_a_sleeping_queue_can_sleep_too(url: str, pipe: Callable[[], Pipe]) -> None:
    with closing(Queue(url)) as queue:
        assert queue.receive("t", wait="50ms") == []  # the watch is there
        lying = pipe()

        def child() -> None:
            class Tells(Hook):
                def before(self, call: Call) -> None:
                    if call.verb == "wait":
                        lying.say()

            with Queue(url, hooks=[Tells()]) as mine:
                began = time.monotonic()
                [delivery] = mine.receive("t", wait="60s")
                assert time.monotonic() - began < LONG_BEFORE_IT_ENDS
                delivery.ack()
                assert queue.receive("t", wait="10ms") == []

        ended = plain_fork(child)
        lying.hear()
        queue.send("t", "from the parent")
        assert ended() == 0
        assert queue.topics() == []


@needs_fork
@threads_are_known
async def test_a_child_of_an_event_loop_uses_the_file_with_a_loop_of_its_own(url: str, path: Path) -> None:
    queue = AsyncQueue(url)
    await queue.send("t", "before")
    sending = [asyncio.ensure_future(queue.send("t", f"parent {number}")) for number in range(50)]
    await asyncio.sleep(0)

    def child() -> None:
        queue.sync.send("t", "sync child")
        queue.sync.close()
        asyncio._set_running_loop(None)

        async def main() -> None:
            async with AsyncQueue(url) as mine:
                await mine.send("t", "async child")

        asyncio.run(main())

    ended = plain_fork(child)
    await asyncio.gather(*sending)
    assert await asyncio.to_thread(ended) == 0
    await queue.close()
    assert sound(path)
    assert drained(url) == sorted(["before", "sync child", "async child", *(f"parent {number}" for number in range(50))])
