"""Which failures are worth another attempt, and who is told of a message that has had its last one."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bide import AsyncQueue, BadOption, Bury, Failed, ManualClock, Queue, Retry, Snooze, Worker
from tests.worker.conftest import once


def outcomes(queue: Queue, send: Callable[[], object], times: int = 4) -> list[str]:
    send()
    found: list[str] = []
    for _ in range(times):
        found += [each.outcome for each in queue.testing.advance("1h", raise_errors=False)]
    return found


@pytest.fixture
def queue() -> Iterator[Queue]:
    with Queue("memory://", clock=ManualClock()) as made:
        yield made


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({}, KeyError(), ["retry", "retry", "dead"]),
        ({"retry_for": OSError}, ConnectionError(), ["retry", "retry", "dead"]),
        ({"retry_for": (OSError, KeyError)}, ValueError("no"), ["dead"]),
        ({"no_retry_for": ValueError}, UnicodeError(), ["dead"]),
        ({"no_retry_for": [ValueError]}, OSError(), ["retry", "retry", "dead"]),
        ({"retry_for": OSError, "no_retry_for": FileNotFoundError}, FileNotFoundError(), ["dead"]),
        ({"retry_for": OSError}, Retry("1m"), ["retry", "retry", "dead"]),
        ({"retry_for": OSError, "max_attempts": 1}, Bury("no"), ["dead"]),
        ({"retry_for": OSError}, ExceptionGroup("two", [ValueError(), OSError()]), ["retry", "retry", "dead"]),
        ({"no_retry_for": ValueError}, ExceptionGroup("two", [OSError(), ExceptionGroup("in", [ValueError()])]), ["dead"]),
    ],
)
def test_an_error_decides_whether_there_is_another_attempt(
    queue: Queue, options: dict[str, Any], error: BaseException, expected: list[str]
) -> None:
    @queue.task("t", **options)
    def fails() -> None:
        raise error

    assert outcomes(queue, fails.send) == expected


def test_a_snooze_is_no_failure(queue: Queue) -> None:
    tries = iter([Snooze("1m"), None])

    @queue.task("t", retry_for=())
    def waits() -> None:
        if (error := next(tries)) is not None:
            raise error

    assert outcomes(queue, waits.send) == ["snoozed", "done"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"retry_for": "OSError"}, "retry_for holds 'OSError'"),
        ({"on_dead": lambda delivery: None}, r"def on_dead\(delivery, reason\)"),
    ],
)
def test_an_error_says_what_was_given_or_what_to_write(queue: Queue, options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadOption, match=says):

        @queue.task("t", **options)
        def fails() -> None: ...


@pytest.mark.parametrize("options", [{"retry_for": "OSError"}, {"no_retry_for": [1]}, {"retry_for": int}, {"on_dead": 1}])
def test_what_is_no_error_is_refused(queue: Queue, options: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match="Give"):

        @queue.task("t", **options)
        def fails() -> None: ...


@pytest.mark.parametrize("is_async", [True, False])
def test_a_task_is_told_before_its_message_is_dead(queue: Queue, is_async: bool) -> None:
    told: list[tuple[str, int, str]] = []

    def plain(delivery: Any, reason: str) -> None:
        told.append((delivery.id, delivery.attempt, reason))

    async def awaited(delivery: Any, reason: str) -> None:
        await asyncio.sleep(0)
        plain(delivery, reason)

    @queue.task("t", on_dead=awaited if is_async else plain)
    def fails(n: int) -> None:
        raise ValueError(n)

    sent = fails.send(n=7)
    for _ in range(3):
        queue.testing.advance("1h", raise_errors=False)
    assert told == [(sent.id, 3, "ValueError: 7")]


def test_time_travel_tells_the_task_of_every_way_to_die() -> None:
    queue, told = Queue("memory://", clock=ManualClock()), Told()

    @queue.task("locked", lock="x", on_conflict="error", on_dead=told)
    def locked() -> None: ...

    @queue.task("unread", on_dead=told)
    def unread(n: int) -> None: ...

    with queue.lock("x"):
        locked.send()
        queue.send("unread", {"n": "seven"})
        assert [each.outcome for each in queue.testing.advance(0, raise_errors=False)] == ["dead", "dead"]
    assert told.reasons[0] == "Locked: the lock x is held"
    assert "Expected `int`, got `str`" in told.reasons[1]
    queue.close()


class Told:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def __call__(self, delivery: Any, reason: str) -> None:
        self.reasons.append(reason)


async def test_a_worker_tells_the_task_of_every_way_to_die() -> None:
    queue, told = AsyncQueue("memory://"), Told()

    @queue.task("fails", max_attempts=1, on_dead=told)
    async def fails() -> None:
        raise ValueError("no")

    @queue.task("buries", on_dead=told)
    def buries() -> None:
        raise Bury("for good")

    @queue.task("locked", lock="x", on_conflict="error", on_dead=told)
    async def locked() -> None: ...

    async with queue.lock("x"), Worker(queue):
        for each in (fails, buries, locked):
            await each.send()
        await once(lambda: len(told.reasons) == 3)
        await once(lambda: _dead(queue))
    assert sorted(told.reasons) == ["Locked: the lock x is held", "ValueError: no", "for good"]
    await queue.close()


async def _dead(queue: AsyncQueue) -> bool:
    return (await queue.stats()).dead == 3


async def test_an_on_dead_that_fails_keeps_no_message_alive(caplog: pytest.LogCaptureFixture) -> None:
    queue = AsyncQueue("memory://")

    async def on_dead(delivery: Any, reason: str) -> None:
        raise ZeroDivisionError

    @queue.task("fails", max_attempts=1, on_dead=on_dead)
    async def fails() -> None:
        raise ValueError("no")

    async with Worker(queue):
        sent = await fails.send()
        await once(lambda: _is_dead(queue, sent.id))
    assert "The on_dead of" in caplog.text
    await queue.close()


async def _is_dead(queue: AsyncQueue, id: str) -> bool:
    info = await queue.get(id)
    return info is not None and info.state == "dead"


async def test_a_worker_that_stops_leaves_it_to_another_to_tell() -> None:
    queue, begun = AsyncQueue("memory://"), asyncio.Event()

    async def on_dead(delivery: Any, reason: str) -> None:
        begun.set()
        await asyncio.sleep(1_000)

    @queue.task("fails", max_attempts=1, on_dead=on_dead)
    async def fails() -> None:
        raise ValueError("no")

    sent = await fails.send()
    async with Worker(queue, grace=0):
        await begun.wait()
    info = await queue.get(sent)
    assert info is not None
    assert (info.state, info.attempt) == ("ready", 0)
    await queue.close()


async def fails_with(on_dead: Any, **options: Any) -> AsyncQueue:
    """A queue whose messages fail, one by one and in a batch."""
    queue = AsyncQueue("memory://")

    @queue.task("fails", on_dead=on_dead, **options)
    async def fails() -> None:
        raise Bury("for good")

    @queue.task("batch", batch=2, on_dead=on_dead, **options)
    async def batch(items: list[int]) -> list[Failed]:
        return [Failed(items[-1], Bury("for good"))]

    await fails.send()
    await batch.send(1)
    return queue


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit])
async def test_an_on_dead_that_ends_itself_keeps_no_message_alive(error: type[BaseException]) -> None:
    async def on_dead(delivery: Any, reason: str) -> None:
        calls.append(delivery.id)
        raise error

    calls: list[str] = []
    async with await fails_with(on_dead) as queue, Worker(queue, grace=0):
        await once(lambda: _are_dead(queue, 2))
    assert len(calls) == 2


async def test_the_timeout_of_a_task_is_not_for_its_on_dead() -> None:
    over: list[str] = []

    async def on_dead(delivery: Any, reason: str) -> None:
        late = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, late.set)
        await late.wait()
        over.append(delivery.id)

    async with await fails_with(on_dead, timeout="50ms") as queue, Worker(queue, grace=0):
        await once(lambda: _are_dead(queue, 2))
    assert len(over) == 2


async def _are_dead(queue: AsyncQueue, count: int) -> bool:
    return (await queue.stats()).dead == count
