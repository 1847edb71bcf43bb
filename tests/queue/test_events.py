"""Subscribers are told what has happened to messages, many at once, and can harm none."""

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bide import (
    AsyncQueue,
    BadOption,
    CallFailed,
    ConfirmTimeout,
    EngineCalled,
    EngineError,
    LeaseLost,
    ManualClock,
    MessagesEnded,
    MessagesSent,
    OutcomeUnknown,
    Outgoing,
    Queue,
    Sent,
)
from bide.engines import memory
from bide.engines.base import End, NewMessage, Settings
from bide.engines.guard.sync import Guard
from bide.queue import around, events, subscription
from bide.queue.events import Subscriptions
from tests.told import Told

MODULES = (events.__file__, around.__file__, subscription.__file__)


@pytest.fixture(params=["memory", "sqlite"])
async def queue(
    request: pytest.FixtureRequest, make_queue: Callable[..., Any], clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Any]:
    made = make_queue("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/bide.db", clock=clock)
    yield made
    await made.close()


@pytest.fixture
def told(queue: Any) -> Told:
    told = Told()
    queue.events.subscribe(told)
    return told


def lots(told: Told) -> list[tuple[str, str, str, int]]:
    names = {"MessagesSent": "sent", "MessagesBegun": "begun", "MessagesEnded": "ended"}
    return [(names[type(each).__name__], each.topic, getattr(each, "outcome", ""), each.count) for each in told.events]


async def test_an_event_carries_all_of_one_topic_and_outcome_that_one_call_was_for(queue: Any, told: Told) -> None:
    await queue.send("a", 0, key="k")
    await queue.send_many("a", [Outgoing(1, key="k"), 2, 3])
    await queue.send("b", 0)
    deliveries = await queue.receive("a", "b", limit=10)
    await queue.ack_many(deliveries)

    assert sorted(lots(told)) == [
        ("begun", "a", "", 3),
        ("begun", "b", "", 1),
        ("ended", "a", "done", 3),
        ("ended", "b", "done", 1),
        ("sent", "a", "created", 1),
        ("sent", "a", "created", 2),
        ("sent", "a", "kept", 1),
        ("sent", "b", "created", 1),
    ]


async def test_each_message_has_its_own_part(queue: Any, clock: ManualClock, told: Told) -> None:
    sent = await queue.send("t", 1, key="k", headers={"trace": "x"}, delay=10, max_attempts=1)
    clock.advance(12)
    [delivery] = await queue.receive("t")
    await delivery.retry(error=ValueError("bad"))

    parts = [each.messages[0] for each in told.events]
    assert [(each.id, each.key, each.headers, each.due) for each in parts] == [(sent.id, "k", {"trace": "x"}, sent.due)] * 3
    assert [each.attempt for each in parts] == [None, 1, 1]
    assert [each.lateness for each in parts] == [None, 2.0, 2.0]
    assert [each.error for each in parts] == [None, None, "ValueError: bad"]
    assert [each.seconds is not None for each in parts] == [False, False, True]
    _, begun, ended = told.events
    assert (begun.lateness, ended.lateness, ended.outcome) == ([2.0], [2.0], "dead")
    assert ended.seconds == [parts[2].seconds]


async def test_an_end_is_told_as_what_the_engine_says_it_became(queue: Any, clock: ManualClock, told: Told) -> None:
    ids = [(await queue.send("t", each)).id for each in ("ack", "retry", "release", "bury")]
    for delivery in await queue.receive("t", limit=4):
        verb = getattr(delivery, delivery.body)
        await (verb("no") if delivery.body == "bury" else verb())
    short = await queue.send("t", 1, expires_in="10s")
    late = await queue.send("u", 1)
    [expires] = [each for each in await queue.receive("t", limit=10, lease="1m") if each.id == short.id]
    [lost] = await queue.receive("u", lease="1s")
    clock.advance(20)
    [again] = await queue.receive("u")
    await expires.retry()
    with pytest.raises(LeaseLost):
        await lost.ack()
    await again.ack()

    assert [told.of(id)[:3] for id in ids] == [
        ["created", "begun", "done"],
        ["created", "begun", "retried"],
        ["created", "begun", "released"],
        ["created", "begun", "dead"],
    ]
    assert told.of(short.id) == ["created", "begun", "expired"]
    assert told.of(late.id) == ["created", "begun", "begun", "lost", "done"]


async def test_what_listen_gives_back_has_ended_too(queue: Any, told: Told) -> None:
    await queue.send_many("t", range(3))
    listening = queue.listen("t")
    async for delivery in listening:
        await delivery.ack()
        break
    await listening.aclose()
    await queue.close()

    ended = Counter({"done": 0, "released": 0})
    for each in told.events:
        if isinstance(each, MessagesEnded):
            ended[each.outcome] += each.count
    assert ended == {"done": 1, "released": 2}
    assert all(story[-1][1] in ended for story in told.stories)


async def test_what_cannot_be_read_is_told_as_dead(make_queue: Callable[..., Any]) -> None:
    class Strange:
        name = "strange"

        def encode(self, body: object) -> bytes:
            return b"x"

        def decode(self, data: bytes) -> object:
            raise ValueError("not mine")

    queue, told = make_queue(codec=Strange()), Told()
    queue.events.subscribe(told)
    sent = await queue.send("t", 1)
    assert await queue.receive("t") == []
    await queue.close()

    assert told.of(sent.id) == ["created", "begun", "dead"]


async def test_time_travel_and_another_place_of_the_queue_are_told(make_queue: Callable[..., Any]) -> None:
    queue, told = make_queue("sqlite:////nowhere/bide.db"), Told()
    queue.events.subscribe(told)
    seen: list[int] = []
    inner = getattr(queue, "inner", queue)

    @inner.every("1h", topic="tick")
    def tick() -> None:
        seen.append(1)

    with queue.testing.inner.in_memory() if hasattr(queue, "inner") else queue.testing.in_memory():
        await queue.testing.advance("2h")
    await queue.close()

    assert len(seen) == 2
    assert {each.topic for each in told.events} == {"tick"}  # and nothing of what schedules store for themselves
    assert sum(each.count for each in told.events if isinstance(each, MessagesEnded)) == 2


async def test_later_sends_are_told(queue: Any, told: Told) -> None:
    inner = getattr(queue, "inner", queue)
    for each in range(10):
        inner.later("t", each)
    await queue.flush()

    assert sum(each.count for each in told.events) == 10


async def test_sync_and_async_share_their_subscribers(make_queue: Callable[..., Any], tmp_path: Path) -> None:
    queue, told = AsyncQueue(f"sqlite:///{tmp_path}/bide.db"), Told()
    queue.sync.events.subscribe(told)
    await queue.send("t", 1)
    await asyncio.to_thread(queue.sync.send, "t", 2)
    await asyncio.to_thread(queue.sync.close)
    await queue.close()

    assert lots(told) == [("sent", "t", "created", 1)] * 2


async def test_who_subscribes_later_is_told_of_what_comes_later(queue: Any) -> None:
    told = Told()
    await queue.send_many("t", range(2))
    [first] = await queue.receive("t")
    with queue.events.subscribe(told):
        await first.ack()
        [second] = await queue.receive("t")
    await second.ack()

    assert lots(told) == [("ended", "t", "done", 1), ("begun", "t", "", 1)]
    [ended, _] = told.events
    assert (ended.lateness, ended.seconds) == ([], [])
    [part] = ended.messages
    assert (part.id, part.attempt, part.due, part.lateness) == (first.id, None, None, None)


@pytest.mark.parametrize("end", [lambda made: made.close(), lambda made: made()], ids=["close", "call"])
async def test_a_subscription_ends_also_within_a_call_and_for_the_rest_of_a_lot(queue: Any, end: Callable[[Any], None]) -> None:
    calls: list[str] = []

    class Once:
        def sent(self, event: MessagesSent) -> None:
            calls.append(event.outcome)
            end(made)
            end(made)

    made = queue.events.subscribe(Once())
    other = Told()
    queue.events.subscribe(other)
    await queue.send("t", 0, key="k")
    assert calls == ["created"]
    made = queue.events.subscribe(Once())
    await queue.send_many("t", [1, Outgoing(2, key="k"), 3])  # two events, of one call
    await queue.send("t", 4)

    assert calls == ["created", "created"]
    assert sum(each.count for each in other.events) == 5


async def test_who_is_closed_by_another_subscriber_is_not_told_of_that_event_any_more(queue: Any) -> None:
    class Closes:
        def sent(self, event: MessagesSent) -> None:
            other.close()

    queue.events.subscribe(Closes())
    told = Told()
    other = queue.events.subscribe(told)
    await queue.send("t", 1)

    assert told.events == []


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), asyncio.CancelledError()], ids=repr)
async def test_a_subscriber_that_raises_is_logged_once_and_harms_nobody(
    queue: Any, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    calls: list[object] = []

    class Broken:
        def _raise(self, event: object) -> None:
            calls.append(event)
            raise error

        sent = begun = ended = _raise

    queue.events.subscribe(Broken())
    told = Told()
    queue.events.subscribe(told)
    with caplog.at_level(logging.ERROR, "bide.events"):
        await queue.send("t", 1)
        [delivery] = await queue.receive("t")
        await delivery.ack()

    assert len(calls) == 3
    assert lots(told) == [("sent", "t", "created", 1), ("begun", "t", "", 1), ("ended", "t", "done", 1)]
    [record] = caplog.records
    assert record.getMessage() == "The subscriber Broken failed in sent. It is still called; more of this is not told."
    assert record.exc_info
    assert await queue.receive("t") == []


def test_ctrl_c_in_a_subscriber_is_passed_on() -> None:
    class Interrupted:
        def sent(self, event: MessagesSent) -> None:
            raise KeyboardInterrupt

    with Queue("memory://") as queue:
        with queue.events.subscribe(Interrupted()), pytest.raises(KeyboardInterrupt):
            queue.send("t", 1)
        queue.send("t", 2)
        assert len(queue.receive("t", limit=9)) == 2


@pytest.mark.parametrize("place", ["memory", "sqlite"])
def test_a_subscriber_may_send_and_is_not_told_of_that(place: str, tmp_path: Path) -> None:
    queue, told = Queue("memory://" if place == "memory" else f"sqlite:///{tmp_path}/bide.db"), Told()
    calls: list[str] = []

    class Audit:
        def sent(self, event: MessagesSent) -> None:
            calls.append(event.topic)
            queue.send("audit", event.count)

    queue.events.subscribe(Audit())
    queue.events.subscribe(told)
    queue.send_many("t", range(3))
    queue.send("t", 4)
    assert sorted(each.body for each in queue.receive("audit", limit=9)) == [1, 3]
    queue.close()

    assert calls == ["t", "t"]
    assert sorted(each for each in lots(told) if each[0] == "sent") == [
        ("sent", "audit", "created", 1),
        ("sent", "audit", "created", 1),
        ("sent", "t", "created", 1),
        ("sent", "t", "created", 3),
    ]


async def use(queue: Any, count: int) -> None:
    """Messages from a send to their ends, in the two ways."""
    await queue.send_many("t", range(count))
    for _ in range(3):
        await queue.send("t", 1)
    for delivery in await queue.receive("t", limit=count):
        await delivery.ack()
    await queue.ack_many(await queue.receive("t", limit=3))


async def test_while_nobody_listens_nothing_is_called_and_nothing_made_for_a_message(queue: Any) -> None:
    calls: Counter[str] = Counter()
    ends: list[End] = []

    def count(frame: FrameType, what: str, _: object) -> None:
        if what == "call" and frame.f_code.co_filename in MODULES:
            calls[frame.f_code.co_qualname] += 1
        elif what == "call" and frame.f_code.co_name == "settle" and "ends" in frame.f_locals:
            ends.extend(frame.f_locals["ends"])

    async def counted(messages: int) -> Counter[str]:
        calls.clear()
        ends.clear()
        sys.setprofile(count)
        try:
            await use(queue, messages)
        finally:
            sys.setprofile(None)
        return Counter(calls)

    assert await counted(997) == {}
    assert ends
    assert all(each.noted is None for each in ends)
    told = Told()
    with queue.events.subscribe(told):
        few, many = await counted(1), await counted(10)
        assert sum(few.values())
        assert many["MessagesSent.__init__"] == few["MessagesSent.__init__"]
    assert await counted(997) == {}
    assert all(each.noted is None for each in ends)


def guarded(**verbs: Any) -> tuple[Guard, Subscriptions]:
    engine: Any = memory.source(Settings(url="memory://")).sync()
    for name, verb in verbs.items():
        setattr(engine, name, verb)
    made = Subscriptions()
    return made.switch.added(Guard(engine, "memory://")), made


def test_a_guard_calls_its_engine_itself_unless_somebody_listens() -> None:
    guard, made = guarded()
    first, second = made.add(Told()), made.add(Told())
    assert guard._verbs is not guard._engine
    first.close()
    assert guard._verbs is not guard._engine
    second.close()
    assert guard._verbs is guard._engine
    assert guard.gates._verbs is guard._engine.gates
    assert guard.results._verbs is guard._engine.results
    with made.add(Told()):
        assert made.switch.added(Guard(guard._engine, "memory://"))._verbs is not guard._engine


def raising(error: Exception) -> Callable[..., Any]:
    def verb(*_: object, **__: object) -> Any:
        raise error

    return verb


def test_a_call_that_fails_is_told() -> None:
    error = EngineError("no")
    guard, made = guarded(put=raising(error), stats=raising(error))
    told = Told()
    made.add(told)
    for call in (lambda: guard.put([NewMessage("t", b"1"), NewMessage("u", b"1")]), guard.stats):
        with pytest.raises(EngineError):
            call()

    found = [(each.verb, list(each.topics), each.count, each.error) for each in told.failures]
    assert found == [("put", ["t", "u"], 2, error), ("stats", [], 0, error)]
    assert all(type(each) is CallFailed and each.seconds >= 0 for each in told.failures)
    assert told.events == []
    assert [(each.verb, list(each.topics), each.count, each.error) for each in told.calls] == found


def test_every_call_is_told() -> None:
    told = Told()
    with Queue("memory://") as queue, queue.events.subscribe(told):
        queue.send("mail", 1)
        [delivery] = queue.receive("mail")
        delivery.ack()
        queue.stats("mail")
    calls = [(each.verb, list(each.topics), each.count, each.error) for each in told.calls if each.verb != "tend"]
    wanted = [("put", ["mail"], 1), ("claim", ["mail"], 0), ("settle", ["mail"], 1), ("stats", ["mail"], 0)]
    assert calls == [(*each, None) for each in wanted]
    assert all(type(each) is EngineCalled and each.seconds >= 0 for each in told.calls)


@pytest.mark.parametrize("sure", [True, False], ids=["confirmed", "unconfirmed"])
def test_what_is_known_of_a_call_that_fails_in_part_is_told(sure: bool) -> None:
    sent = Sent("id", "t", 1, "created")
    answers: list[Any] = [sent, None]
    unknown = OutcomeUnknown if sure else ConfirmTimeout
    ends: list[Any] = ["done", None]
    guard, made = guarded(put=raising(unknown("?", answers=answers)), settle=raising(unknown("?", answers=ends)))
    told = Told()
    made.add(told)
    with pytest.raises(OutcomeUnknown):
        guard.put([NewMessage("t", b"1"), NewMessage("t", b"2")])
    with pytest.raises(OutcomeUnknown):
        guard.settle([End("t", "1", "1", "done"), End("t", "2", "1", "retry")])

    # what is only not confirmed was not accepted; but it has ended, and nobody tells that end again
    ended = [("ended", "t", "done", 1)] + ([] if sure else [("ended", "t", "retried", 1)])
    assert lots(told) == [("sent", "t", "created", 1), *ended]


async def test_a_place_that_cannot_be_opened_is_told(make_queue: Callable[..., Any]) -> None:
    queue, told = make_queue("sqlite:////nowhere/bide.db"), Told()
    queue.events.subscribe(told)
    with pytest.raises(EngineError):
        await queue.send("t", 1)

    assert [(each.verb, type(each.error).__name__) for each in told.failures] == [("open", "Unavailable")]


@pytest.mark.parametrize("wrong", [print, object(), type("Typo", (), {"send": print})()], ids=["function", "object", "typo"])
async def test_a_subscriber_without_any_of_the_methods_is_refused(queue: Any, wrong: object) -> None:
    with pytest.raises(BadOption, match=r"has none of the methods sent\(\), begun\(\), .* and handling\(\)"):
        queue.events.subscribe(wrong)


async def test_an_async_subscriber_is_refused(queue: Any) -> None:
    class Waits:
        async def sent(self, event: MessagesSent) -> None: ...

    with pytest.raises(BadOption, match=r"sent\(\) of the subscriber is async"):
        queue.events.subscribe(Waits())
    assert not getattr(queue, "inner", queue).session.setup.subscriptions.heard
