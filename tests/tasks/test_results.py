"""What tasks with keep= return: read by whoever asks, told apart from all else that becomes of messages. In time travel."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from bide import (
    BadOption,
    BadTime,
    Bury,
    ManualClock,
    NoResult,
    Outgoing,
    ResultCancelled,
    ResultFailed,
    ResultNotKept,
    ResultPending,
    ResultUnknown,
    current,
)
from bide.engines.results import OPEN

Do = Callable[[Any], Any]


@pytest.fixture(params=["sync task", "async task"])
def add(queue: Any, request: pytest.FixtureRequest) -> Any:
    if request.param == "sync task":

        @queue.task("add", keep="1h")
        def add(a: int, b: int) -> int:
            return a + b

    else:

        @queue.task("add", keep="1h")
        async def add(a: int, b: int) -> int:
            return a + b

    return add


def result(queue: Any, do: Do, message: Any) -> Any:
    return do(queue.result(message, timeout=0))


def test_the_result_of_a_task_is_what_it_returned(queue: Any, do: Do, add: Any) -> None:
    sent = do(add.send(1, b=2))
    do(queue.testing.advance(0))
    assert result(queue, do, sent) == 3
    assert result(queue, do, sent.id) == 3
    assert do(queue.get(sent)) is None


def test_a_result_is_kept_for_as_long_as_the_task_says(queue: Any, do: Do, add: Any) -> None:
    sent = do(add.after("10s").send(1, 2))
    do(queue.testing.advance("59m"))
    assert result(queue, do, sent) == 3
    do(queue.testing.advance("69s"))
    assert result(queue, do, sent) == 3
    do(queue.testing.advance("1s"))
    with pytest.raises(ResultUnknown):
        result(queue, do, sent)


def test_a_result_that_is_not_there_yet_is_pending(queue: Any, do: Do, add: Any) -> None:
    sent = do(add.after("1h").send(1, 2))
    with pytest.raises(ResultPending, match="scheduled") as told:
        result(queue, do, sent)
    assert isinstance(told.value, TimeoutError)
    assert isinstance(told.value, NoResult)
    do(queue.testing.advance("1h"))
    assert result(queue, do, sent) == 3


@pytest.mark.parametrize("send", ["queue.send", "send_many", "queue.send_many"])
def test_a_message_that_was_cancelled_is_told_from_one_that_never_was(queue: Any, do: Do, add: Any, send: str) -> None:
    if send == "queue.send":
        sent = do(queue.send("add", {"a": 1, "b": 2}, delay="1h"))
    elif send == "send_many":
        sent = do(add.after("1h").send_many([{"a": 1, "b": 2}] * 3))[1]
    else:
        sent = do(queue.send_many("add", [Outgoing({"a": 1, "b": 2}, delay="1h")] * 2))[0]
    assert do(queue.cancel(sent))
    with pytest.raises(ResultCancelled):
        result(queue, do, sent)
    do(queue.testing.advance("25h"))
    with pytest.raises(ResultCancelled):
        result(queue, do, sent)
    with pytest.raises(ResultUnknown):
        result(queue, do, "no such id")
    do(queue.testing.advance("1h"))
    with pytest.raises(ResultUnknown):
        result(queue, do, sent)


@pytest.mark.parametrize("end", ["expires", "purge"])
def test_what_has_expired_or_was_purged_reads_as_cancelled(queue: Any, do: Do, add: Any, end: str) -> None:
    sent = do(queue.send("add", {"a": 1}, delay="1h", expires_in="1ms"))
    if end == "purge":
        do(queue.purge("add", state="scheduled"))
    else:
        queue.session.setup.clock.advance(7_200)
    with pytest.raises(ResultCancelled):
        result(queue, do, sent)


def test_the_result_of_a_dead_letter_is_its_error(queue: Any, do: Do) -> None:
    @queue.task("fail", keep="1h", max_attempts=2)
    def fail() -> None:
        raise ValueError("no paper")

    sent = do(fail.send())
    do(queue.testing.advance(0, raise_errors=False))
    with pytest.raises(ResultPending):
        result(queue, do, sent)
    do(queue.testing.advance("1m", raise_errors=False))
    with pytest.raises(ResultFailed, match="no paper") as told:
        result(queue, do, sent)
    assert told.value.error == "ValueError: no paper"


def test_a_dead_letter_that_is_requeued_may_have_a_result_after_all(queue: Any, do: Do) -> None:
    answers: list[Any] = [Bury("not now"), 7]

    @queue.task("sometimes", keep="1h")
    def sometimes() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    sent = do(sometimes.send())
    do(queue.testing.advance(0))
    with pytest.raises(ResultFailed, match="not now"):
        result(queue, do, sent)
    do(queue.requeue("sometimes"))
    do(queue.testing.advance(0))
    assert result(queue, do, sent) == 7


def test_a_task_that_returns_nothing_is_done_with_none(queue: Any, do: Do) -> None:
    @queue.task("quiet", keep="1h")
    def quiet() -> None: ...

    sent = do(quiet.send())
    do(queue.testing.advance(0))
    assert result(queue, do, sent) is None


class NoForm:
    def __repr__(self) -> str:
        return "secret"


@pytest.mark.parametrize("value", ["x" * 300, NoForm()], ids=["too large", "no form"])
def test_what_can_not_be_kept_is_told_and_the_message_is_done(
    make_queue: Callable[..., Any], do: Do, clock: ManualClock, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_queue(clock=clock, max_body=200)

    @queue.task("large", keep="1h")
    def large() -> Any:
        return value

    sent = do(large.send())
    with caplog.at_level(logging.ERROR):
        [handled] = do(queue.testing.advance(0))
    assert handled.outcome == "done"
    with pytest.raises(ResultNotKept):
        result(queue, do, sent)
    [said] = [each.getMessage() for each in caplog.records]
    assert sent.id in said
    assert "secret" not in said
    assert "xxx" not in said


def test_nothing_is_kept_of_tasks_without_keep(queue: Any, do: Do) -> None:
    @queue.task("plain")
    def plain() -> int:
        return 7

    sent = do(plain.send())
    with pytest.raises(BadOption, match="has no keep="):
        result(queue, do, sent)
    do(queue.testing.advance(0))
    with pytest.raises(ResultUnknown):
        result(queue, do, sent)


def test_a_handler_that_acks_by_itself_has_a_result(queue: Any, do: Do) -> None:
    @queue.task("acks", keep="1h")
    async def acks() -> int:
        await current().ack()
        return 7

    @queue.task("retries", keep="1h")
    async def retries() -> int:
        await current().retry("1h")
        return 7

    done, later = do(acks.send()), do(retries.send())
    do(queue.testing.advance(0))
    assert result(queue, do, done) == 7
    with pytest.raises(ResultPending):
        result(queue, do, later)


def test_middleware_that_fails_leaves_no_result(queue: Any, do: Do, add: Any) -> None:
    fail = [True]

    async def committing(delivery: Any, handle: Callable[[], Any]) -> None:
        await handle()
        if fail.pop():
            raise OSError("the commit failed")

    queue.testing.middleware = [committing]
    sent = do(add.send(1, 2))
    do(queue.testing.advance(0, raise_errors=False))
    with pytest.raises(ResultPending):
        result(queue, do, sent)
    fail.append(False)
    do(queue.testing.advance("1m"))
    assert result(queue, do, sent) == 3


def test_a_message_that_was_kept_for_its_key_has_one_result(queue: Any, do: Do, add: Any) -> None:
    first = do(add.options(key="sum").send(1, 2))
    second = do(add.options(key="sum").send(3, 4))
    do(queue.testing.advance(0))
    assert (result(queue, do, first), result(queue, do, second)) == (3, 3)


def test_the_twin_reads_it_too(queue: Any, do: Do) -> None:
    @queue.task("add", keep="1h")
    def add(a: int, b: int) -> int:
        return a + b

    twin = queue.sync if hasattr(queue, "sync") else queue.aio
    sent = do(add.on(twin).send(1, 2))
    do(queue.testing.advance(0))
    assert result(twin, do, sent) == 3


def test_keep_and_result_are_checked(queue: Any, do: Do) -> None:
    with pytest.raises(BadTime, match="keep is 0"):
        queue.task("t", keep=0)(lambda: None)
    with pytest.raises(BadOption, match="Say which message"):
        result(queue, do, None)
    with pytest.raises(BadTime):
        do(queue.result("a", timeout=-1))


def test_what_was_sent_is_remembered_once(queue: Any, do: Do, add: Any) -> None:
    sent = do(add.send(1, 2))
    engine = do(queue.session.engine())
    assert do(engine.results.read([sent.id])) == [OPEN]


def test_a_duplicate_of_a_message_whose_result_is_over_is_not_called_cancelled(queue: Any, do: Do, add: Any) -> None:
    once = add.options(key="k", unique_for="1d")
    first = do(once.send(1, 2))
    do(queue.testing.advance(0))
    again = do(once.send(1, 2))
    assert (again.outcome, again.id, result(queue, do, again)) == ("duplicate", first.id, 3)
    do(queue.testing.advance("2h"))
    again = do(once.send(1, 2))
    assert (again.outcome, again.id) == ("duplicate", first.id)
    with pytest.raises(ResultUnknown):
        result(queue, do, again)
