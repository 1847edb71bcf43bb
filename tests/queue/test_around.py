"""Subscribers around sends and handlers: what they are told, what they may do, and that they harm nobody."""

import asyncio
import contextvars
import gc
import logging
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bide
from bide import (
    AsyncQueue,
    Bury,
    Exists,
    Failed,
    ManualClock,
    MessagesHandling,
    MessagesSending,
    MessagesSent,
    Outgoing,
    Queue,
    Retry,
    Snooze,
    current,
)

here: contextvars.ContextVar[str] = contextvars.ContextVar("here", default="")


class Around:
    """Keeps what it is told, before and after."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @contextmanager
    def sending(self, event: MessagesSending) -> Iterator[None]:
        self.seen.append((event.topic, event.count, [each.wait for each in event.messages]))
        for each in event.messages:
            each.headers["trace"] = "t"
        with self._until("sent"):
            yield

    @contextmanager
    def handling(self, event: MessagesHandling) -> Iterator[None]:
        [first, *_] = event.messages
        self.seen.append((event.topic, event.task.rpartition(".")[2], event.count, first.headers, first.attempt, event.outcome))
        token = here.set("inside")
        try:
            with self._until("handled"):
                yield
        finally:
            here.reset(token)
            self.seen.append(event.outcome)

    @contextmanager
    def _until(self, what: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.seen.append((what, type(error).__name__))
            raise
        self.seen.append(what)


async def test_a_send_is_told_with_what_the_engine_raised(queue: Any, clock: ManualClock) -> None:
    around = Around()
    with queue.events.subscribe(around):
        await queue.send("a", 1, key="k", delay="15m")
        with pytest.raises(Exists):
            await queue.send("a", 1, key="k", if_exists="error", at=clock_in(clock, 30))
        await queue.send_many("b", [Outgoing(1, delay=2), 2])
        getattr(queue, "inner", queue).later("c", 1)
        await queue.flush()
        await queue.send_many("d", [])

    assert around.seen == [
        ("a", 1, [900.0]),
        "sent",
        ("a", 1, [30.0]),
        ("sent", "Exists"),
        ("b", 2, [2.0, 0.0]),
        "sent",
        ("c", 1, [0.0]),
        "sent",
    ]
    clock.advance(3600)
    assert {each.topic: dict(each.headers) for each in await queue.receive("a", "b", "c", limit=9)} == {
        "a": {"trace": "t"},
        "b": {"trace": "t"},
        "c": {"trace": "t"},
    }


def clock_in(clock: ManualClock, seconds: int) -> Any:
    import datetime

    return datetime.datetime.fromtimestamp(clock.now_ns() / 1e9 + seconds, datetime.UTC)


async def test_it_is_told_the_answers_of_the_engine(queue: Any) -> None:
    events: list[MessagesSending] = []

    class Keeps:
        def sending(self, event: MessagesSending) -> None:
            assert event.sent is None
            events.append(event)

    queue.events.subscribe(Keeps())
    one = await queue.send("t", 1, key="k")
    same = await queue.send("t", 1, key="k")
    many = await queue.send_many("t", [1, 2])
    getattr(queue, "inner", queue).later("t", 1)
    with pytest.raises(Exists):
        await queue.send("t", 1, key="k", if_exists="error")
    await queue.flush()

    assert [each.sent for each in events] == [[one], [same], many, None, None]
    assert same.outcome == "kept"


async def test_the_senders_own_headers_stay_as_they_are(queue: Any) -> None:
    class Overwrites:
        def sending(self, event: MessagesSending) -> None:
            for each in event.messages:
                each.headers["mine"] = each.headers["yours"] = "by the subscriber"

    queue.events.subscribe(Overwrites())
    await queue.send("t", 1, headers={"mine": "by the sender"})
    [delivery] = await queue.receive("t")

    assert delivery.headers == {"mine": "by the sender", "yours": "by the subscriber"}


async def test_who_hands_on_the_headers_of_a_message_hands_on_none_of_bides_own(queue: Any) -> None:
    class HandsOn:
        def sending(self, event: MessagesSending) -> None:
            for each in event.messages:
                each.headers.update({"bide-depends-on": "x", "bide-attempts": "5", "bide-trace": "link", "tenant": "acme"})

    queue.events.subscribe(HandsOn())
    await queue.send("t", 1)
    [delivery] = await queue.receive("t")

    assert delivery.headers == {"bide-trace": "link", "tenant": "acme"}


async def test_what_all_subscribers_add_together_has_a_limit(queue: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Adds:
        def __init__(self, name: str) -> None:
            self.name = name

        def sending(self, event: MessagesSending) -> None:
            for each in event.messages:
                each.headers[self.name] = "x" * 5_000

    queue.events.subscribe(Adds("a"))
    queue.events.subscribe(Adds("b"))
    await queue.send("t", 1)
    [delivery] = await queue.receive("t")

    assert delivery.headers.keys() == {"a"}
    assert "and the limit is 8,192" in caplog.text


@pytest.mark.parametrize("bad", [{"": "x"}, {"x": 1}, {"x": "y" * 9000}], ids=["no name", "no text", "too long"])
async def test_headers_that_no_message_may_have_are_left_out(queue: Any, bad: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Bad:
        def sending(self, event: MessagesSending) -> None:
            for each in event.messages:
                each.headers.update(bad)

    queue.events.subscribe(Bad())
    queue.events.subscribe(Around())
    with caplog.at_level(logging.ERROR, "bide.events"):
        await queue.send("t", 1)
        await queue.send("t", 2)
    found = await queue.receive("t", limit=2)

    assert [dict(each.headers) for each in found] == [{"trace": "t"}] * 2
    assert [each.getMessage()[:35] for each in caplog.records] == ["The subscriber Bad failed in sendin"]


async def test_a_task_is_told_of_sends_and_handlers(queue: Any, coloured: Any) -> None:
    around, seen = Around(), list[str]()
    inner = getattr(queue, "inner", queue)
    queue.events.subscribe(around)

    @inner.task("t")
    @coloured
    def handle(number: int) -> None:
        seen.append(here.get())

    sent = handle.send(1)
    if asyncio.iscoroutine(sent):
        await sent
    await travelled(inner)

    assert seen == ["inside"]
    assert around.seen == [("t", 1, [0.0]), "sent", ("t", "handle", 1, {"trace": "t"}, 1, None), "handled", "done"]


async def travelled(inner: Any) -> None:
    """In a thread, as an async handler of a sync queue can't be called inside an event loop."""
    if isinstance(inner, AsyncQueue):
        await inner.testing.advance(0, raise_errors=False)
    else:
        await asyncio.to_thread(inner.testing.advance, 0, raise_errors=False)


OUTCOMES: list[tuple[BaseException, str]] = [
    (Retry("5m"), "retried"),
    (ValueError("bad"), "retried"),
    (Snooze("5m"), "released"),
    (Bury("no"), "dead"),
]


@pytest.mark.parametrize(("error", "outcome"), OUTCOMES, ids=lambda each: type(each).__name__)
async def test_it_is_told_what_becomes_of_a_message_and_a_backoff_is_called_once(
    queue: Any, coloured: Any, error: BaseException, outcome: str
) -> None:
    around, asked = Around(), list[int]()
    inner = getattr(queue, "inner", queue)

    def backoff(attempt: int) -> float:
        asked.append(attempt)
        return 60.0

    @inner.task("t", backoff=backoff)
    @coloured
    def handle(number: int) -> None:
        raise error

    await queue.send("t", {"number": 1})
    queue.events.subscribe(around)
    await travelled(inner)

    assert around.seen == [("t", "handle", 1, {}, 1, None), ("handled", type(error).__name__), outcome]
    assert asked == ([1] if type(error) is ValueError else [])


async def test_the_last_attempt_is_told_as_dead_and_what_does_not_fit_yet_as_released(queue: Any, coloured: Any) -> None:
    around, inner = Around(), getattr(queue, "inner", queue)

    @inner.task("t", max_attempts=1)
    @coloured
    def handle(number: int) -> None:
        raise ValueError

    await queue.send("t", {"number": 1})
    await queue.send("t", {"other": 1})
    queue.events.subscribe(around)
    await travelled(inner)

    assert [each for each in around.seen if type(each) is not tuple] == ["dead", "released"]


async def test_a_handler_that_ends_its_delivery_decides_nothing(queue: Any) -> None:
    around, inner = Around(), getattr(queue, "inner", queue)

    if isinstance(inner, Queue):

        @inner.task("t")
        def handle(number: int) -> None:
            current().ack()
    else:

        @inner.task("t")
        async def handle(number: int) -> None:
            await current().ack()

    await queue.send("t", {"number": 1})
    queue.events.subscribe(around)
    await travelled(inner)

    assert around.seen[-2:] == ["handled", None]


async def test_a_batch_is_told_as_one(queue: Any, coloured: Any) -> None:
    events: list[MessagesHandling] = []
    inner = getattr(queue, "inner", queue)

    class Keeps:
        def handling(self, event: MessagesHandling) -> None:
            events.append(event)

    @inner.task("t", batch=10)
    @coloured
    def handle(numbers: list[int]) -> list[Failed]:
        return [Failed(2, Bury("no")), Failed(3)]

    await queue.send_many("t", [1, 2, 3])
    queue.events.subscribe(Keeps())
    await travelled(inner)

    [event] = events
    assert (event.count, len(event.messages), event.outcome) == (3, 3, None)
    assert event.outcomes == ["done", "dead", "retried"]


async def test_receive_calls_no_handler(queue: Any) -> None:
    around = Around()
    await queue.send("t", 1)
    queue.events.subscribe(around)
    [delivery] = await queue.receive("t")
    await delivery.ack()

    assert around.seen == []


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), asyncio.CancelledError()], ids=repr)
@pytest.mark.parametrize("where", ["call", "enter", "exit"])
async def test_a_subscriber_that_raises_is_logged_once_and_harms_nobody(
    queue: Any, coloured: Any, caplog: pytest.LogCaptureFixture, error: BaseException, where: str
) -> None:
    calls, around, inner = list[str](), Around(), getattr(queue, "inner", queue)

    class Broken:
        def sending(self, event: object) -> "Broken":
            return self._raise("call")

        handling = sending

        def __enter__(self) -> None:
            self._raise("enter")

        def __exit__(self, *_: object) -> bool:
            self._raise("exit")
            return True

        def _raise(self, at: str) -> "Broken":
            if at == where:
                calls.append(at)
                raise error
            return self

    queue.events.subscribe(Broken())
    queue.events.subscribe(around)

    @inner.task("t")
    @coloured
    def handle(number: int) -> None: ...

    with caplog.at_level(logging.ERROR, "bide.events"):
        await queue.send("t", {"number": 1})
        await travelled(inner)

    assert calls == [where] * 2
    assert around.seen[-2:] == ["handled", "done"]
    [record] = caplog.records
    assert record.getMessage() == "The subscriber Broken failed in sending. It is still called; more of this is not told."


async def test_a_context_manager_swallows_nothing(queue: Any, coloured: Any) -> None:
    inner = getattr(queue, "inner", queue)

    class Swallows:
        def handling(self, event: MessagesHandling) -> Any:
            return self

        def sending(self, event: MessagesSending) -> Any:
            return self

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> bool:
            return True

    ended: list[str] = []

    class Ends:
        def ended(self, event: Any) -> None:
            ended.append(event.outcome)

    queue.events.subscribe(Swallows())
    queue.events.subscribe(Ends())

    @inner.task("t")
    @coloured
    def handle(number: int) -> None:
        raise ValueError

    await queue.send("t", {"number": 1}, key="k")
    with pytest.raises(Exists):
        await queue.send("t", {"number": 1}, key="k", if_exists="error")
    await travelled(inner)

    assert ended == ["retried"]


def test_ctrl_c_in_a_subscriber_is_passed_on_and_the_others_are_left() -> None:
    around = Around()

    class Interrupted:
        def sending(self, event: MessagesSending) -> None:
            raise KeyboardInterrupt

    with Queue("memory://") as queue:
        queue.events.subscribe(around)
        with queue.events.subscribe(Interrupted()), pytest.raises(KeyboardInterrupt):
            queue.send("t", 1)

    assert around.seen == [("t", 1, [0.0]), ("sent", "KeyboardInterrupt")]


class Sends:
    def __init__(self) -> None:
        self.topics: list[str] = []
        self.sends: list[str] = []

    def sent(self, event: MessagesSent) -> None:
        self.topics.append(event.topic)

    def sending(self, event: MessagesSending) -> None:
        self.sends.append(event.topic)


def test_subscribe_is_for_the_queues_that_exist_and_those_that_come() -> None:
    sends = Sends()
    with Queue("memory://") as before:
        with bide.subscribe(sends), Queue("memory://") as after:
            before.send("before", 1)
            after.send("after", 1)
            assert sends.topics == sends.sends == ["before", "after"]
        before.send("t", 1)
        with Queue("memory://") as later:
            later.send("t", 1)
            assert not later.session.setup.subscriptions.heard
        assert not before.session.setup.subscriptions.sends

    assert sends.topics == sends.sends == ["before", "after"]


def test_a_subscription_of_all_queues_keeps_none_of_them() -> None:
    with bide.subscribe(Sends()):
        queue = Queue("memory://")
        queue.send("t", 1)
        reference = weakref.ref(queue.session.setup.subscriptions)
        queue.close()
        del queue
        gc.collect()
        assert reference() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_forked_child_has_the_subscription_too(tmp_path: Path) -> None:
    sends = Sends()
    with bide.subscribe(sends), Queue(f"sqlite:///{tmp_path}/bide.db") as queue:
        queue.send("parent", 1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                queue.send("child", 1)
                Queue("memory://").send("new", 1)
                code = 0 if sends.topics == ["parent", "child", "new"] else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sends.topics == ["parent"]


def test_around_alone_makes_no_event_after_the_fact() -> None:
    class Only:
        def sending(self, event: MessagesSending) -> None: ...

    with Queue("memory://") as queue, queue.events.subscribe(Only()):
        subscriptions: Any = queue.session.setup.subscriptions
        assert subscriptions.sends
        assert not subscriptions.heard


async def test_a_later_attempt_knows_how_long_ago_the_first_began(queue: Any, clock: ManualClock) -> None:
    tried: list[Any] = []

    class Tried:
        def begun(self, event: Any) -> None:
            tried.extend((each.attempt, each.tried) for each in event.messages)

    queue.events.subscribe(Tried())
    await queue.send("t", 1)
    for seconds in (5, 60, 0):
        [delivery] = await queue.receive("t")
        await delivery.retry(delay=seconds)
        clock.advance(seconds)

    assert tried == [(1, 0.0), (2, 5.0), (3, 65.0)]
