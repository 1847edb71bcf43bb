"""Time travel shows the test what went wrong: errors, timeouts, and the middleware around handlers."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from bide import AsyncQueue, BadOption, Bury, ManualClock, Queue, Retry, Snooze, current, steps

Do = Callable[[Any], Any]


def test_an_error_of_a_handler_is_raised_at_the_end(queue: Any, do: Do, clock: ManualClock, coloured: Any) -> None:
    fault, ran = AssertionError("not tea"), []

    def handle() -> None:
        raise fault

    do(queue.task("t", max_attempts=1)(coloured(handle)).send())
    do(queue.task("later")(coloured(lambda: ran.append(1))).after("1h").send())
    until = clock.now_ms + 7_200_000
    with pytest.raises(AssertionError) as raised:
        do(queue.testing.advance("2h"))
    assert raised.value is fault
    assert "of t, which is dead" in raised.value.__notes__[0]
    assert (ran, clock.now_ms) == ([1], until)


def test_the_same_error_in_each_attempt_is_raised_once_and_others_as_a_group(queue: Any, do: Do, coloured: Any) -> None:
    def same() -> None:
        raise ValueError("no tape")

    def other() -> None:
        raise OSError(f"attempt {current().attempt}")

    do(queue.task("same", backoff=steps("1s"))(coloured(same)).send())
    with pytest.raises(ValueError, match="no tape"):
        do(queue.testing.advance("1m"))
    do(queue.task("other", max_attempts=2, backoff=steps("1s"))(coloured(other)).send())
    with pytest.raises(ExceptionGroup) as raised:
        do(queue.testing.advance("1m"))
    assert [str(each) for each in raised.value.exceptions] == ["attempt 1", "attempt 2"]


def test_errors_that_are_expected_are_told_only(queue: Any, do: Do, coloured: Any) -> None:
    def handle() -> None:
        raise ValueError("no tape")

    do(queue.task("t", max_attempts=1)(coloured(handle)).send())
    [handled] = do(queue.testing.advance(0, raise_errors=False))
    assert (handled.outcome, str(handled.error)) == ("dead", "no tape")


@pytest.mark.parametrize("raised", [Bury("closed"), Retry("1d"), Snooze("1d"), ExceptionGroup("g", [Bury("closed")])], ids=repr)
def test_what_a_handler_asks_for_is_no_error(queue: Any, do: Do, coloured: Any, raised: Exception) -> None:
    def handle() -> None:
        raise raised

    do(queue.task("t")(coloured(handle)).send())
    [handled] = do(queue.testing.advance(0))
    assert handled.error is raised


def test_what_would_end_the_test_run_is_raised_as_an_error(queue: Any, do: Do, coloured: Any) -> None:
    def handle() -> None:
        raise SystemExit(3)

    do(queue.task("t", max_attempts=1)(coloured(handle)).send())
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        do(queue.testing.advance(0))


class Strange(BaseException):
    pass


def deep(levels: int) -> BaseException:
    error: BaseException = Bury("at the bottom")
    for _ in range(levels):
        error = BaseExceptionGroup("g", [error])
    return error


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [(Strange("x"), "retry"), (BaseExceptionGroup("g", [Strange()]), "retry"), (deep(3_000), "dead")],
    ids=["its own", "a group", "a deep group"],
)
def test_whatever_a_handler_raises_is_a_failed_attempt(
    queue: Any, do: Do, coloured: Any, raised: BaseException, outcome: str
) -> None:
    def handle() -> None:
        raise raised

    do(queue.task("t", backoff=steps("1h"))(coloured(handle)).send())
    do(queue.task("u")(coloured(lambda: None)).send())
    handled = do(queue.testing.advance(0, raise_errors=False))
    assert [each.outcome for each in handled] == [outcome, "done"]


def test_an_error_that_is_no_exception_is_raised_as_it_is(queue: Any, do: Do, coloured: Any) -> None:
    """Such as those of pytest.fail and pytest.skip."""
    fault = Strange("x")

    def handle() -> None:
        raise fault

    do(queue.task("t", max_attempts=1)(coloured(handle)).send())
    with pytest.raises(Strange) as raised:
        do(queue.testing.advance(0))
    assert raised.value is fault


def test_a_handler_that_cancels_itself_has_failed(queue: Any, do: Do) -> None:
    async def handle() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    do(queue.task("t", max_attempts=2, backoff=steps("1s"))(handle).send())
    handled = do(queue.testing.advance("1m", raise_errors=False))
    assert [each.outcome for each in handled] == ["retry", "dead"]
    assert all(isinstance(each.error, asyncio.CancelledError) for each in handled)


def test_a_handler_that_a_generator_exit_reaches_through_an_await_has_failed(queue: Any, do: Do) -> None:
    async def child() -> None:
        raise GeneratorExit

    async def handle() -> None:
        await asyncio.create_task(child())

    do(queue.task("t", max_attempts=2, backoff=steps("1s"))(handle).send())
    handled = do(queue.testing.advance("1m", raise_errors=False))
    assert [each.outcome for each in handled] == ["retry", "dead"]
    assert all(isinstance(each.error, GeneratorExit) for each in handled)


async def test_advance_itself_can_be_cancelled(clock: ManualClock) -> None:
    queue, begun, cancelled = AsyncQueue("memory://", clock=clock), asyncio.Event(), []

    @queue.task("t")
    async def handle() -> None:
        begun.set()
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    await handle.send()
    travelling = asyncio.ensure_future(queue.testing.advance("1h"))
    await begun.wait()
    travelling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await travelling
    assert cancelled == [True]
    await queue.close()


def test_a_message_that_does_not_fit_is_an_error(queue: Any, do: Do, coloured: Any) -> None:
    def handle(order: int) -> None: ...

    queue.task("t", max_attempts=1)(coloured(handle))
    do(queue.send("t", {"ordre": 42}))
    with pytest.raises(ValueError, match="ordre"):
        do(queue.testing.advance(0))


# forks


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_what_a_handler_forks_off_ends_where_the_handler_ends(queue: Any, do: Do, coloured: Any) -> None:
    test, codes = os.getpid(), []

    def handle() -> None:
        if child := os.fork():
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        else:
            raise SystemExit(7)

    try:
        do(queue.task("t")(coloured(handle)).send())
        [handled] = do(queue.testing.advance(0))
    finally:
        if os.getpid() != test:
            os._exit(99)  # it went on in the test
    assert (handled.outcome, codes) == ("done", [7])


# timeouts


def test_an_async_handler_that_takes_too_long_is_cancelled(queue: Any, do: Do) -> None:
    seen: list[str] = []

    async def handle() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(f"expired {current().expired}")
            raise

    do(queue.task("t", timeout="20ms", max_attempts=2, backoff=steps("1s"))(handle).send())
    handled = do(queue.testing.advance("1m", raise_errors=False))
    assert [each.outcome for each in handled] == ["retry", "dead"]
    assert {str(each.error) for each in handled} == {"took longer than its timeout of 0.02 s"}
    assert seen == ["expired True"] * 2


def test_a_sync_handler_sees_that_its_time_is_up(queue: Any, do: Do) -> None:
    def handle() -> None:
        delivery, pause = current(), threading.Event()
        while not delivery.expired:
            pause.wait(0.001)

    do(queue.task("t", timeout="20ms", max_attempts=1)(handle).send())
    with pytest.raises(TimeoutError, match=r"its timeout of 0\.02 s"):
        do(queue.testing.advance(0))


def test_a_handler_that_moves_the_clock_past_its_timeout_was_too_late(
    queue: Any, do: Do, clock: ManualClock, coloured: Any
) -> None:
    task = queue.task("t", timeout="30s", max_attempts=1)(coloured(clock.advance))
    do(task.send(29))
    assert [each.outcome for each in do(queue.testing.advance(0))] == ["done"]
    do(task.send(31))
    with pytest.raises(TimeoutError):
        do(queue.testing.advance(0))


# middleware


def test_middleware_is_called_around_handlers(queue: Any, do: Do, coloured: Any) -> None:
    order: list[Any] = []

    def named(name: str) -> Any:
        async def middleware(delivery: Any, handle: Any) -> None:
            order.append((name, delivery.topic, current().key))
            await handle()
            order.append(name)

        return middleware

    queue.testing.middleware = [named("first"), named("second")]
    do(queue.task("t")(coloured(lambda: order.append(current().id))).options(key="k").send())
    [handled] = do(queue.testing.advance(0))
    assert order == [("first", "t", "k"), ("second", "t", "k"), handled.id, "second", "first"]
    twin = queue.sync if hasattr(queue, "sync") else queue.aio
    assert twin.testing.middleware == queue.testing.middleware


def test_middleware_sees_what_the_handler_raised_and_may_swallow_it(queue: Any, do: Do, coloured: Any) -> None:
    seen: list[Exception] = []

    async def forgiving(delivery: Any, handle: Any) -> None:
        try:
            await handle()
        except ValueError as error:
            seen.append(error)

    def handle() -> None:
        raise ValueError("no tape")

    queue.testing.middleware = [forgiving]
    do(queue.task("t")(coloured(handle)).send())
    assert [each.outcome for each in do(queue.testing.advance(0))] == ["done"]
    assert str(*seen) == "no tape"


def test_middleware_that_gives_up_on_a_sync_handler_waits_for_its_end(queue: Any, do: Do) -> None:
    said: list[str] = []

    async def impatient(delivery: Any, handle: Any) -> None:
        async with asyncio.timeout(0.02), asyncio.timeout(0.01):
            await handle()

    def handle() -> None:
        said.append("begun")
        while not current().expired:
            time.sleep(0.001)
        said.append("ended")

    queue.testing.middleware = [impatient]
    task = queue.task("t", max_attempts=1)(handle)
    do(task.send())
    do(task.send())
    handled = do(queue.testing.advance(0, raise_errors=False))
    assert [each.outcome for each in handled] == ["dead", "dead"]
    assert said == ["begun", "ended"] * 2


def test_middleware_of_a_place_ends_with_it(tmp_path: Any) -> None:
    async def around(delivery: Any, handle: Any) -> None:
        await handle()

    queue = Queue(f"sqlite:///{tmp_path}/shop.db")
    with queue.testing.in_memory():
        queue.testing.middleware = [around]
    assert list(queue.testing.middleware) == []


def test_middleware_that_can_not_be_called_is_refused(queue: Any) -> None:
    with pytest.raises(BadOption, match="middleware holds a int"):
        queue.testing.middleware = [42]


# many messages


@pytest.mark.parametrize("many", [1, 5_000])
def test_what_has_no_task_is_told_once_however_much_waits(
    queue: Any, do: Do, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    for colour in ("aio", "sync"):
        monkeypatch.setattr(f"bide.queue.{colour}.travel.MANY", many)
    sync: Queue = queue if isinstance(queue, Queue) else queue.sync

    def chime(left: int) -> None:
        sync.send("event", left)
        if left:
            again.after("1m").send(left - 1)

    again = queue.task("chime")(chime).on(sync)
    again.send(20)
    ids = [do(queue.send("plain", each, delay=f"{each}m")).id for each in range(1, 20)]
    handled = do(queue.testing.advance("1h"))
    assert [each.id for each in handled if each.topic == "plain"] == ids
    assert len({each.id for each in handled if each.topic == "event"}) == 21
    assert len(handled) == 19 + 2 * 21


def test_thousands_of_messages_without_a_task_are_told_in_due_order(bide_queue: Queue) -> None:
    from bide import Outgoing

    delays = [*(each % 700 for each in range(1_400)), *[800] * 1_100, 900]
    sent = bide_queue.send_many("t", [Outgoing(each, delay=delay) for each, delay in enumerate(delays)])
    ordered = [each.id for each in sorted(sent, key=lambda each: (each.due, each.id)) if each.due > sent[0].due]
    assert [each.id for each in bide_queue.testing.advance("1h")] == ordered
    assert bide_queue.stats("t").ready == len(delays)


def test_what_expires_on_the_way_was_ready_first(queue: Any, do: Do) -> None:
    do(queue.send("t", delay="10m", expires_in="1m"))
    assert [each.outcome for each in do(queue.testing.advance("1h"))] == ["ready"]
    assert do(queue.stats("t")).pending == 0
