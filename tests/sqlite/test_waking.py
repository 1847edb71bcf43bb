"""A process that sleeps is woken by what others write, within a look, and by nothing else."""

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import Call, Hook, Queue
from bide.engines.base import NewMessage, Settings
from bide.engines.sqlite import change, source, watch
from bide.engines.sqlite.database import Database
from bide.engines.sqlite.writer import Writer

pytestmark = pytest.mark.usefixtures("no_sweeps")
Start = Callable[..., Any]
Until = Callable[[Callable[[], bool]], None]
LONG_BEFORE_IT_ENDS = 20.0  # seconds; without a wake-up, a wait takes all of its time
PATIENCE = 20.0

SENDER = """
    import json, sys
    from bide import Queue
    for line in sys.stdin:
        queue = Queue(json.loads(line))
        queue.stats()
        print("ready")
        for line in iter(sys.stdin.readline, "\\n"):
            topic, body, options = json.loads(line)
            queue.send(topic, body, **options)
        queue.close()
        print("closed")
"""


class Lying(Hook):
    """Does something whenever its queue is about to lie down, and counts its claims."""

    def __init__(self) -> None:
        self.do: Callable[[], None] | None = None
        self.claims = 0

    def before(self, call: Call) -> None:
        self.claims += call.verb == "claim"
        if call.verb == "wait" and self.do is not None:
            do, self.do = self.do, None
            do()


@pytest.fixture(scope="module")
def sending_process(start_child: Start) -> Iterator[Any]:
    child = start_child(SENDER)
    yield child
    assert child.end() == []


@pytest.fixture
def sender(sending_process: Any, url: str) -> Iterator[Any]:
    """Another process, which has the file open and sends what it is told to."""
    sending_process.tell(json.dumps(url))
    assert sending_process.line() == "ready"
    yield sending_process
    sending_process.tell()
    assert sending_process.line() == "closed"


@pytest.fixture
def lying() -> Lying:
    return Lying()


@pytest.fixture
def receiver(make_queue: Callable[..., Any], lying: Lying) -> Any:
    return make_queue(hooks=[lying])


async def test_a_message_of_another_process_wakes_a_sleeper_each_time(sender: Any, receiver: Any, lying: Lying) -> None:
    for number in range(4):
        lying.do = lambda number=number: sender.tell(f'["t", {number}, {{}}]')
        began = time.monotonic()
        [delivery] = await receiver.receive("t", wait="60s")
        assert time.monotonic() - began < LONG_BEFORE_IT_ENDS
        assert delivery.body == number
        await delivery.ack()


async def test_an_earlier_message_of_another_process_wakes_a_sleeper(sender: Any, receiver: Any, lying: Lying) -> None:
    await receiver.send("t", "last", delay=3_600)
    for delay in (0.5, 0.2, 0):
        lying.do = lambda delay=delay: sender.tell(f'["t", "earlier", {{"delay": {delay}}}]')
        began = time.monotonic()
        [delivery] = await receiver.receive("t", wait="60s")
        assert time.monotonic() - began < LONG_BEFORE_IT_ENDS
        assert delivery.lateness >= 0
        await delivery.ack()


async def test_a_message_of_another_process_that_has_not_been_due_is_slept_towards(
    sender: Any, receiver: Any, lying: Lying
) -> None:
    for _ in range(2):
        await receiver.send("t", "taken by us")
        [delivery] = await receiver.receive("t")
        await delivery.ack()
        lying.do = lambda: sender.tell('["t", "theirs", {"delay": 0.3}]')
        began = time.monotonic()
        [delivery] = await receiver.receive("t", wait="60s")
        assert 0.25 < time.monotonic() - began < LONG_BEFORE_IT_ENDS
        await delivery.ack()


async def test_a_process_that_writes_all_the_time_is_woken_by_others_too(
    sender: Any, receiver: Any, lying: Lying, url: str
) -> None:
    stop = threading.Event()

    def writes() -> None:
        while not stop.is_set():
            queue.send("other", 1)

    with closing(Queue(url)) as queue:
        busy = threading.Thread(target=writes)
        busy.start()
        try:
            for number in range(4):
                lying.do = lambda number=number: sender.tell(f'["t", {number}, {{}}]')
                began = time.monotonic()
                [delivery] = await receiver.receive("t", wait="60s")
                assert time.monotonic() - began < LONG_BEFORE_IT_ENDS
                await delivery.ack()
        finally:
            stop.set()
            busy.join()


async def test_one_of_many_topics_and_namespaces_is_woken(sender: Any, make_queue: Callable[..., Any], lying: Lying) -> None:
    other = make_queue(namespace="other")
    sleeping = asyncio.ensure_future(other.receive("b", wait="0.5s"))
    receiver = make_queue(hooks=[lying])
    lying.do = lambda: sender.tell('["b", 1, {}]')
    began = time.monotonic()
    [delivery] = await receiver.receive("a", "b", "c", wait="60s")
    assert time.monotonic() - began < LONG_BEFORE_IT_ENDS
    assert (delivery.topic, await sleeping) == ("b", [])


async def test_a_process_that_resumes_a_topic_wakes_a_sleeper(start: Start, url: str, receiver: Any, lying: Lying) -> None:
    child = start(
        """
        import sys
        from bide import Queue
        with Queue(sys.argv[1]) as queue:
            queue.pause("t")
            print("paused", flush=True)
            sys.stdin.readline()
            queue.resume("t")
        """,
        url,
    )
    child.line()
    await receiver.send("t", 1)
    lying.do = child.tell
    began = time.monotonic()
    [delivery] = await receiver.receive("t", wait="60s")
    assert time.monotonic() - began < LONG_BEFORE_IT_ENDS
    await delivery.ack()


async def test_what_is_not_for_a_sleeper_does_not_wake_it(
    receiver: Any, lying: Lying, url: str, path: Path, until: Until
) -> None:
    woken: list[str] = []
    with closing(Queue(url)) as queue, closing(sqlite3.connect(path, check_same_thread=False)) as other:
        queue.send("t", "last", delay=3_600)
        assert await receiver.receive("t", wait="1ms") == []
        database = queue.session.engine()._engine._executor.database  # type: ignore[attr-defined]

        def others() -> None:
            until(lambda: bool(database._until))
            for topic, delay in [("other", 0), ("t", 7_200), ("t", 60), ("other", 0), ("t", 0)]:
                with other:  # to SQLite, this is somebody else
                    queue.send(topic, f"{topic} {delay}", delay=delay, connection=other)
                database._look()
                woken.extend(f"{topic} {delay}" for sleeper in list(database._until) if sleeper.woken_by is not None)

        lying.do = threading.Thread(target=others).start
        [delivery] = await receiver.receive("t", wait="60s")
        await delivery.ack()
        assert delivery.body == "t 0"
        assert set(woken) <= {"t 0"}


async def test_a_message_that_came_between_the_claim_and_lying_down_is_not_slept_on(
    receiver: Any, lying: Lying, url: str, path: Path
) -> None:
    with closing(Queue(url)) as queue, closing(sqlite3.connect(path, check_same_thread=False)) as other:
        queue.stats()
        looked = queue.session.engine()._engine._executor.database._look  # type: ignore[attr-defined]

        def late() -> None:
            with other:  # to SQLite, this is somebody else
                queue.send("t", "late", connection=other)
            looked()  # as the watch does for whoever else is asleep

        for _ in range(3):
            lying.do = late
            began = time.monotonic()
            [delivery] = await receiver.receive("t", wait="60s")
            assert time.monotonic() - began < LONG_BEFORE_IT_ENDS
            await delivery.ack()


def test_a_sleeping_process_looks_at_most_25_times_a_second() -> None:
    assert 1 / 25 <= watch.INTERVAL <= 0.05


def test_a_process_looks_only_while_somebody_sleeps(url: str, until: Until) -> None:
    looks: list[str] = []
    with closing(Queue(url)) as queue:
        queue.receive("t", wait="100ms")
        database = queue.session.engine()._engine._executor.database  # type: ignore[attr-defined]
        connection = database.writer._connection
        connection.set_trace_callback(lambda said: looks.append(said) if "data_version" in said else None)
        assert not database._watch._wanted.is_set()
        sleeping = threading.Thread(target=queue.receive, args=["t"], kwargs={"wait": "1m"})
        sleeping.start()
        until(lambda: len(looks) > 2)
        queue.send("t", 1)
        sleeping.join()
        until(lambda: not database._watch._wanted.is_set())


def test_a_watch_that_is_closed_while_a_sleep_ends_comes_to_its_end() -> None:
    looking, go_on = threading.Event(), threading.Event()

    def look() -> None:
        looking.set()
        go_on.wait(PATIENCE)

    closed = watch.Watch(look)
    closed.begin()
    assert looking.wait(PATIENCE)
    closing_it = threading.Thread(target=closed.close, daemon=True)
    closing_it.start()
    assert closed._closed.wait(PATIENCE)
    assert closed._wanted.wait(PATIENCE)
    closed.end()  # as the last sleeper does
    go_on.set()
    closing_it.join(PATIENCE)
    assert not closing_it.is_alive()


async def test_a_watch_survives_a_look_that_failed(
    sender: Any, receiver: Any, lying: Lying, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_wrote, failed = Writer.others_wrote, threading.Event()

    def fails(writer: Writer) -> bool:
        if not failed.is_set():
            failed.set()
            raise sqlite3.OperationalError("disk I/O error")
        return others_wrote(writer)

    monkeypatch.setattr(Writer, "others_wrote", fails)

    def once_it_failed() -> None:
        threading.Thread(target=lambda: (failed.wait(), sender.tell('["t", 1, {}]'))).start()

    lying.do = once_it_failed
    began = time.monotonic()
    [delivery] = await receiver.receive("t", wait="60s")
    assert time.monotonic() - began < LONG_BEFORE_IT_ENDS
    await delivery.ack()


def test_a_send_that_began_before_the_first_sleep_and_ended_after_the_first_look_is_not_slept_on(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had nobody to wake when it began."""
    sending, looked = threading.Event(), threading.Event()
    put, look = change.put, Database._look

    def slow(*args: Any) -> Any:
        answer = put(*args)
        sending.set()
        assert looked.wait(PATIENCE)
        return answer

    def seen(database: Database) -> None:
        look(database)
        looked.set()

    monkeypatch.setattr(change, "put", slow)
    monkeypatch.setattr(Database, "_look", seen)
    with closing(source(Settings(url=url)).sync()) as engine:
        engine.open()
        engine.pause("u", False)
        sender = threading.Thread(target=engine.put, args=([NewMessage("t", b"", delay=60_000)],))
        sender.start()
        assert sending.wait(PATIENCE)
        began = time.monotonic()
        engine.wait(["t"], PATIENCE)
        assert time.monotonic() - began < PATIENCE
        sender.join()


class Woken:
    """A sleeper's signal, which remembers that it was set."""

    done = False

    def set(self) -> None:
        self.done = True


@pytest.mark.parametrize("when", ["before the look", "in its midst"])
def test_a_look_wakes_nobody_for_what_somebody_was_woken_for(url: str, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes as the first sleeper of a topic lies down, and late on a busy machine."""
    look, sleepers = Database._look, [Woken() for _ in range(3)]
    monkeypatch.setattr(Database, "_look", lambda self: None)
    with closing(source(Settings(url=url)).sync()) as engine:
        engine.open()
        database, namespace = engine._executor.database, engine._namespace  # type: ignore[union-attr]
        asleep = [database.sleep(each, namespace, ["t"], 60.0) for each in sleepers]
        if when == "before the look":
            engine.put([NewMessage("t", b"")])
        else:
            read = database.read
            monkeypatch.setattr(database, "read", lambda ask: (engine.put([NewMessage("t", b"")]), read(ask))[1])
        look(database)
        assert [each.done for each in sleepers] == [True, False, False]
        monkeypatch.undo()
        for each in filter(None, asleep):
            database.stop_sleeping(each, cancelled=False)
