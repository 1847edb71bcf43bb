"""A member of a (str, Enum) or an (int, Enum) counts as its text or number, in every option and on every verb."""

from collections.abc import Callable
from enum import Enum, IntEnum, StrEnum
from typing import Any

import pytest

from bide import CancelResult, Outgoing
from bide.engines.guard.aio import AsyncGuard
from bide.engines.guard.sync import Guard


class Old(str, Enum):  # noqa: UP042  (its str() is another text than itself)
    TOPIC = "orders"
    KEY = "order:42"
    HIGH = "high"
    LATER = "later"
    OPERATION = "import-7"
    HEADER = "lang"
    READY = "ready"
    SCHEDULED = "scheduled"


class New(StrEnum):
    TOPIC = "orders"
    KEY = "order:42"
    HIGH = "high"
    LATER = "later"
    OPERATION = "import-7"
    HEADER = "lang"
    READY = "ready"
    SCHEDULED = "scheduled"


class Number(IntEnum):
    TWO = 2


both_kinds = pytest.mark.parametrize("names", [Old, New])


def is_plain(value: object) -> bool:
    return type(value) in (str, int)


@both_kinds
async def test_a_message_sent_with_them_is_stored_as_plain_text_and_numbers(queue: Any, names: Any) -> None:
    options = {
        "key": names.KEY,
        "if_exists": names.LATER,
        "priority": names.HIGH,
        "max_attempts": Number.TWO,
        "headers": {names.HEADER: names.KEY},
        "delay": "1h",
    }
    for sent in (
        await queue.send(names.TOPIC, 1, operation=names.OPERATION, **options),
        *await queue.send_many(names.TOPIC, [Outgoing(1, **options), Outgoing(2, **options)], operation=names.OPERATION),
    ):
        info = await queue.get(topic="orders", key="order:42")
        assert (sent.id, sent.topic) == (info.id, "orders")
        assert (info.topic, info.key, info.priority, info.max_attempts) == ("orders", "order:42", "high", 2)
        told = (sent.topic, info.topic, info.key, info.priority, info.max_attempts, *info.headers, *info.headers.values())
        assert all(map(is_plain, told)), told


@both_kinds
async def test_an_operation_is_the_same_as_plain_text(queue: Any, names: Any) -> None:
    for send, what in ((queue.send, 1), (queue.send_many, [1, Outgoing(2)])):
        first = await send("orders", what, operation="import-7")
        assert await send(names.TOPIC, what, operation=names.OPERATION) == first


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "cancel": lambda queue, n: queue.cancel(topic=n.TOPIC, key=n.KEY),
    "reschedule": lambda queue, n: queue.reschedule(topic=n.TOPIC, key=n.KEY, delay="2h"),
    "receive": lambda queue, n: queue.receive(n.TOPIC, limit=Number.TWO),
    "messages": lambda queue, n: queue.messages(n.TOPIC, state=n.SCHEDULED, limit=Number.TWO),
    "stats": lambda queue, n: queue.stats(n.TOPIC),
    "timeline": lambda queue, n: queue.timeline(n.TOPIC, buckets=Number.TWO),
    "purge": lambda queue, n: queue.purge(n.TOPIC, state=n.READY),
    "requeue": lambda queue, n: queue.requeue(n.TOPIC, [n.KEY]),
    "pause": lambda queue, n: queue.pause(n.TOPIC),
}


@both_kinds
@pytest.mark.parametrize("verb", CALLS)
async def test_every_verb_takes_them(queue: Any, names: Any, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    for engine in (AsyncGuard, Guard):
        for name in ("cancel", "reschedule", "claim", "scan", "stats", "purge", "requeue", "pause"):
            monkeypatch.setattr(engine, name, recording(getattr(engine, name), asked))
    await CALLS[verb](queue, names)
    texts = [each for each in parts(asked) if isinstance(each, str | int)]
    assert "orders" in texts
    assert all(type(each) in (str, int, bool) for each in texts), texts


def recording(verb: Callable[..., Any], asked: list[Any]) -> Callable[..., Any]:
    def recorded(engine: Any, *args: Any, **options: Any) -> Any:
        asked.append((args, options))
        return verb(engine, *args, **options)

    return recorded


def parts(value: Any) -> list[Any]:
    """All that a call was given, down to texts and numbers."""
    if isinstance(value, dict):
        return [part for each in value.values() for part in parts(each)]
    if isinstance(value, list | tuple):
        return [part for each in value for part in parts(each)]
    fields = getattr(type(value), "__struct_fields__", None)
    return [value] if fields is None else [part for field in fields for part in parts(getattr(value, field))]


@both_kinds
async def test_a_task_finds_its_messages(queue: Any, names: Any) -> None:
    inner = getattr(queue, "inner", queue)

    @inner.task(names.TOPIC, max_attempts=Number.TWO)
    def pack(order: int) -> None: ...

    sent = await queue.send(names.TOPIC, {"order": 1}, delay="1h")
    assert (await queue.get(sent)).max_attempts == 2
    assert await queue.cancel(sent) is CancelResult.CANCELLED
