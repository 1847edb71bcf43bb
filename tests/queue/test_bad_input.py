"""Whatever is handed in: one of our errors, a sentence that helps, and nothing changed."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bide import (
    AsyncQueue,
    BadBody,
    BadMessage,
    BadOption,
    BadTime,
    BadTopic,
    BadUrl,
    BideError,
    ConfigError,
    ManualClock,
    Outgoing,
    Queue,
    TooLarge,
    UnknownEngine,
)

TOPICS = [
    "", "a" * 129, "a" * 1_000_000, "a:b", "{a}", "}{", "{a}{b}", "*", "?", "[a]", "a\\b", "a b", "a\n", "a\x00", "../a",
    "\u202eabc", "\ud800", "é", b"bytes", None, 7, ["t"],
]  # fmt: skip
DELAYS = [
    -1, -1e-9, float("nan"), float("inf"), float("-inf"), 2**53 - 1, 2**53 + 1, 10**400, -(10**400),
    1e308, timedelta.max, timedelta.min,
    "", "15", "-15m", "1y", "1h1", "m", "1" * 40 + "s", "٣m", "1e3s", "x" * 1_000_000, True, b"1s", [1],
]  # fmt: skip
INSTANTS = [datetime(2027, 1, 1), datetime(9999, 12, 31, tzinfo=UTC), "2027-01-01", 1_800_000_000, datetime.max]


def nested(depth: int) -> list[Any]:
    body: list[Any] = []
    for _ in range(depth):
        body = [body]
    return body


class Hostile:
    def __reduce__(self) -> Any:
        return eval, ("1/0",)


BODIES: list[tuple[Any, type[BideError]]] = [
    (nested(100_000), BadBody),
    ({"a": float("nan")}, BadBody),
    ([1, {"b": [float("inf")]}, None], BadBody),
    (float("-inf"), BadBody),
    ("\ud800", BadBody),
    ({(1, 2): 3}, BadBody),
    (Hostile(), BadBody),
    (object(), BadBody),
    (1j, BadBody),
    ("x" * 262_143, TooLarge),
    (b"\x00" * 10_000_000, TooLarge),
]
OPTIONS: list[tuple[dict[str, Any], type[BideError]]] = [
    ({"key": ""}, BadOption),
    ({"key": "k" * 257}, BadOption),
    ({"key": "a\nb"}, BadOption),
    ({"key": "\ud800"}, BadOption),
    ({"key": 42}, BadOption),
    ({"if_exists": "later!"}, BadOption),
    ({"if_exists": None}, BadOption),
    ({"if_exists": []}, BadOption),
    ({"max_wait": "1m"}, BadOption),
    ({"max_wait": "1m", "key": "k"}, BadOption),
    ({"max_wait": "1m", "key": "k", "if_exists": "replace"}, BadOption),
    ({"max_wait": "1m", "if_exists": "later"}, BadOption),
    ({"max_wait": 0, "key": "k", "if_exists": "later"}, BadTime),
    ({"max_wait": "soon", "key": "k", "if_exists": "later"}, BadTime),
    ({"max_wait": "1m", "delay": "2m", "key": "k", "if_exists": "later"}, BadTime),
    ({"if_exists": "merge"}, BadOption),
    ({"if_exists": "merge", "key": "k", "unique_for": "1m"}, BadOption),
    ({"if_exists": "merge", "key": "k", "max_wait": "1m"}, BadOption),
    ({"unique_for": "1m"}, BadOption),
    ({"unique_for": "1m", "key": "k", "if_exists": "replace"}, BadOption),
    ({"unique_for": "1m", "key": "k", "if_exists": "later"}, BadOption),
    ({"unique_for": 0, "key": "k"}, BadTime),
    ({"unique_for": "often", "key": "k"}, BadTime),
    ({"priority": "urgent"}, BadOption),
    ({"priority": 1}, BadOption),
    ({"priority": []}, BadOption),
    ({"max_attempts": 0}, BadOption),
    ({"max_attempts": 1_001}, BadOption),
    ({"max_attempts": True}, BadOption),
    ({"max_attempts": 2.0}, BadOption),
    ({"headers": {"a": 1}}, BadOption),
    ({"headers": {"": "x"}}, BadOption),
    ({"headers": {"a": "\ud800"}}, BadOption),
    ({"headers": {"a": "x" * 9_000}}, BadOption),
    ({"headers": [("a", "b")]}, BadOption),
    ({"expires_in": 0}, BadTime),
    ({"expires_in": -1}, BadTime),
    ({"operation": ""}, BadOption),
    ({"operation": "o" * 129}, BadOption),
    ({"operation": 5}, BadOption),
    ({"delay": 1, "at": datetime(2027, 1, 1, tzinfo=UTC)}, BadTime),
]


async def refuses(queue: Any, kind: type[BideError], call: Callable[[], Any]) -> None:
    """The call raises this error with a sentence, and the queue holds what it held before."""
    before = [each.id for each in await queue.messages("held")]
    stats = await queue.stats()
    with pytest.raises(kind) as refused:
        await call()
    assert 20 < len(str(refused.value)) < 700
    assert str(refused.value).isascii() or "…" in str(refused.value)
    assert "." in str(refused.value)
    assert await queue.stats() == stats
    assert [each.id for each in await queue.messages("held")] == before


@pytest.fixture
async def held(queue: Any) -> Any:
    await queue.send("held", {"order": 1}, delay="1h", key="k")
    return queue


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: ascii(topic)[:20])
async def test_a_bad_topic_is_refused_by_every_verb(held: Any, topic: Any) -> None:
    for call in (
        lambda: held.send(topic, 1),
        lambda: held.send_many(topic, [1]),
        lambda: held.receive(topic),
        lambda: held.receive("held", topic),
        lambda: held.messages(topic),
        lambda: held.requeue(topic),
        lambda: held.purge(topic, state="ready"),
        lambda: held.pause(topic),
        lambda: held.resume(topic),
    ):
        await refuses(held, BadTopic, call)
    if topic is not None:
        await refuses(held, BadTopic, lambda: held.cancel(topic=topic, key="k"))
        await refuses(held, BadTopic, lambda: held.stats(topic))
        await refuses(held, BadTopic, lambda: held.timeline(topic))


async def test_topics_of_any_length_that_is_allowed_are_taken(queue: Any) -> None:
    for topic in ("a", "a" * 128, "A.b_c-9", ".", ".."):
        await queue.send(topic, 1)
        assert len(await queue.receive(topic)) == 1


@pytest.mark.parametrize("delay", DELAYS, ids=lambda delay: ascii(delay)[:20])
async def test_a_bad_delay_is_refused_by_every_verb(held: Any, delay: Any) -> None:
    await held.send("held", 2, delay="1s")
    await refuses(held, BadTime, lambda: held.send("held", 1, delay=delay))
    await refuses(held, BadTime, lambda: held.send_many("held", [1, Outgoing(2, delay=delay)]))
    await refuses(held, BadTime, lambda: held.send("held", 1, expires_in=delay))
    await refuses(held, BadTime, lambda: held.reschedule(topic="held", key="k", delay=delay))
    await refuses(held, BadTime, lambda: held.receive("held", wait=delay))
    await refuses(held, BadTime, lambda: held.receive("held", lease=delay))
    await refuses(held, BadTime, lambda: held.requeue("held", delay=delay))


@pytest.mark.parametrize("at", INSTANTS, ids=str)
async def test_a_bad_instant_is_refused(held: Any, at: Any) -> None:
    await refuses(held, BadTime, lambda: held.send("held", 1, at=at))
    await refuses(held, BadTime, lambda: held.reschedule(topic="held", key="k", at=at))


EARLIEST, LATEST = (each.replace(tzinfo=UTC) for each in (datetime.min, datetime.max))
START, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "end"),
    [(START, LATEST), (LATEST, LATEST), (EARLIEST, LATEST), (EARLIEST, EARLIEST), (EARLIEST, datetime(1969, 1, 1, tzinfo=UTC))],
    ids=str,
)
async def test_a_timeline_where_no_message_can_be_due_is_refused(held: Any, start: datetime, end: datetime) -> None:
    await refuses(held, BadTime, lambda: held.timeline("held", start=start, end=end, buckets=3))


@pytest.mark.parametrize("start", [EARLIEST, datetime(1969, 1, 1, tzinfo=UTC)], ids=str)
async def test_a_timeline_from_before_1970_begins_there(held: Any, start: datetime) -> None:
    spans = await held.timeline("held", start=start, end=END, buckets=3)
    assert (spans[0].start.year, sum(each.messages for each in spans)) == (1970, 1)


async def test_a_naive_instant_is_refused_with_the_fix(held: Any) -> None:
    with pytest.raises(BadTime, match="timezone"):
        await held.send("held", 1, at=datetime(2027, 1, 1))


@pytest.mark.parametrize(("body", "kind"), BODIES, ids=lambda value: ascii(type(value)))
async def test_a_body_that_cannot_be_stored_is_refused(held: Any, body: Any, kind: type[BideError]) -> None:
    await refuses(held, kind, lambda: held.send("held", body))
    await refuses(held, kind, lambda: held.send_many("held", [1, body]))


async def test_the_largest_body_goes_through(queue: Any) -> None:
    await queue.send("t", "x" * 262_142)
    [delivery] = await queue.receive("t")
    assert len(delivery.body) == 262_142


@pytest.mark.parametrize(("options", "kind"), OPTIONS, ids=str)
async def test_a_bad_option_is_refused(held: Any, options: dict[str, Any], kind: type[BideError]) -> None:
    await refuses(held, kind, lambda: held.send("held", 1, **options))
    if "operation" not in options:
        await refuses(held, kind, lambda: held.send_many("held", [1, Outgoing(2, **options)]))


async def test_an_item_that_is_refused_is_named(held: Any) -> None:
    with pytest.raises(BadTime, match="Item 1: delay"):
        await held.send_many("held", [1, Outgoing(2, delay=-1)])


async def test_other_arguments_are_checked_too(held: Any) -> None:
    calls: list[Callable[[], Any]] = [
        held.receive,
        lambda: held.receive("held", limit=0),
        lambda: held.receive("held", limit=1_001),
        lambda: held.receive("held", lease=0),
        lambda: held.receive("held", lease="2d"),
        lambda: held.messages("held", state="gone"),
        lambda: held.messages("held", state=[]),
        lambda: held.messages("held", limit=-1),
        lambda: held.messages("held", after="nonsense"),
        lambda: held.messages("held", after=7),
        lambda: held.purge("held", state="leased"),
        lambda: held.purge("held", state="all"),
        lambda: held.requeue("held", ["ok", ""]),
        lambda: held.requeue("held", "an id"),  # not a list of its letters
        lambda: held.requeue("held", ["x" * 10_000]),
        lambda: held.timeline(buckets=0),
        lambda: held.timeline(start=datetime(2027, 1, 1, tzinfo=UTC), end=datetime(2026, 1, 1, tzinfo=UTC)),
        held.cancel,
        lambda: held.cancel(""),
        lambda: held.cancel("x" * 10_000),
        lambda: held.cancel(42),
        lambda: held.cancel("id", topic="held", key="k"),
        lambda: held.cancel(topic="held"),
        lambda: held.get(key="k"),
        lambda: held.reschedule(topic="held", key="k"),
        lambda: held.send_many("held", "text"),
        lambda: held.send_many("held", {"a": 1}),
        lambda: held.send_many("held", None),
        lambda: held.send_many("held", 5),
    ]
    for call in calls:
        await refuses(held, BadMessage, call)


async def test_listen_refuses_at_once(queue: Any) -> None:
    queue = getattr(queue, "inner", queue)
    bad: list[tuple[list[str], dict[str, Any]]] = [([], {}), (["t"], {"limit": 0}), (["t"], {"lease": -1})]
    for topics, options in bad:
        with pytest.raises(BadMessage):
            queue.listen(*topics, **options)


async def test_bad_arguments_of_a_delivery_change_nothing(queue: Any) -> None:
    await queue.send("t", 1)
    [delivery] = await queue.receive("t")
    for call in (delivery.retry(-1), delivery.release(float("nan")), delivery.extend(0), delivery.extend("1y")):
        with pytest.raises(BadTime):
            await call
    assert (await queue.stats("t")).leased == 1
    await delivery.ack()


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"url": "nonsense"}, BadUrl),
        ({"url": ""}, BadUrl),
        ({"url": 7}, BadUrl),
        ({"url": "memory://a/b"}, BadUrl),
        ({"url": "memory://\n"}, BadUrl),
        ({"url": "memory://" + "x" * 129}, BadUrl),
        ({"url": "carrier-pigeon://coop"}, UnknownEngine),
        ({"url": "memory://", "namespace": "{a}"}, BadOption),
        ({"url": "memory://", "namespace": None}, BadOption),
        ({"url": "memory://", "dead_max": 0}, BadOption),
        ({"url": "memory://", "dead_for": -1}, BadTime),
        ({"url": "memory://", "max_body": -1}, BadOption),
        ({"url": "memory://", "client": object()}, ConfigError),
        ({"client": object()}, BadOption),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_a_bad_queue_is_refused(arguments: dict[str, Any], kind: type[BideError]) -> None:
    for colour in (AsyncQueue, Queue):
        with pytest.raises(kind, match=r"\."):
            colour(**arguments)


def test_a_password_is_in_no_error() -> None:
    for url in ("carrier-pigeon://user:hunter2@coop", "hunter2", "memory://hunter2@x", "memory://:hunter2@[::1"):
        with pytest.raises(BideError) as refused:
            Queue(url)
        shown = "".join([str(refused.value), repr(refused.value), str(refused.value.__cause__), str(refused.value.__context__)])
        assert "hunter2" not in shown


def test_a_url_of_sqlalchemy_is_refused_with_the_one_to_write() -> None:
    for scheme in ("postgresql+psycopg", "postgresql+asyncpg"):
        with pytest.raises(
            UnknownEngine, match=rf"^There is no engine for {re.escape(scheme)}://\..* write postgresql:// here"
        ):
            Queue(f"{scheme}://user:hunter2@host/shop")


def test_a_scheme_of_others_is_refused_with_the_one_to_write() -> None:
    with pytest.raises(UnknownEngine, match=r"^There is no engine for pyamqp://\. Write amqp:// for the same server\.$"):
        Queue("pyamqp://user:hunter2@host//")


def test_two_clocks_for_one_name_are_refused() -> None:
    Queue("memory://two-clocks", clock=ManualClock())
    with pytest.raises(ConfigError, match="another clock"):
        Queue("memory://two-clocks", clock=ManualClock())
