"""What becomes of a message when its handler has ended: the rules, without a queue."""

import asyncio
import logging
import pickle
from datetime import timedelta
from typing import Any

import pytest

from bide import BadTime, Bury, Locked, Retry, Snooze, exponential, steps
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.outcome import DONE, RELEASED, Outcome, outcome, spent


def task(backoff: Any = steps("1s", "5s")) -> Definition:  # noqa: B008
    def handle() -> None: ...

    return Definition(handle, topic="t", aliases=[], max_attempts=3, backoff=backoff, timeout=None)


def became(error: BaseException | None, *, attempt: int = 1, tried_ms: int = 0, of: Definition | None = None) -> Outcome:
    return outcome(error, of or task(), attempt, tried_ms)


def test_no_error_is_done() -> None:
    assert became(None) == DONE == Outcome("done", 0, None)
    assert Outcome("release", 0, None) == RELEASED


@pytest.mark.parametrize(("attempt", "wait"), [(1, 1_000), (2, 5_000), (3, 5_000)])
def test_any_error_is_a_retry_after_the_tasks_backoff(attempt: int, wait: int) -> None:
    assert became(ValueError("no tape"), attempt=attempt) == Outcome("retry", wait, "ValueError: no tape")


def test_the_default_backoff_doubles() -> None:
    patient = task(exponential("2s", jitter=0))
    assert [became(KeyError(1), attempt=each, of=patient).delay for each in (1, 2, 3)] == [2_000, 4_000, 8_000]


def test_retry_without_a_delay_takes_the_tasks_backoff() -> None:
    assert became(Retry(), attempt=2) == Outcome("retry", 5_000, "asked for another attempt")


@pytest.mark.parametrize(("delay", "wait"), [("30s", 30_000), (0, 0), (1.5, 1_500), ("1ms", 1)])
def test_retry_with_a_delay_takes_that(delay: Any, wait: int) -> None:
    assert became(Retry(delay)) == Outcome("retry", wait, f"asked for another attempt in {delay}")


@pytest.mark.parametrize("kind", [Retry, Snooze])
@pytest.mark.parametrize("ms", [-1, 1.5, float("nan"), 10**30, "30s", True, None])
def test_a_wait_that_was_set_to_what_no_engine_takes_becomes_the_tasks_backoff(kind: Any, ms: Any, caplog: Any) -> None:
    error = kind("30s")
    error.delay_ms = ms
    assert became(error, attempt=2)[:2] == ("retry", 5_000)
    assert ("asked for a delay_ms of " in caplog.text) == (kind is Snooze or ms is not None)


@pytest.mark.parametrize("seconds", [-1, 0.5, float("nan"), 10**30, "5", True])
def test_a_retry_after_of_locked_that_was_set_to_what_no_engine_takes_becomes_a_second(seconds: Any) -> None:
    error = Locked("the lock x is held")
    error.retry_after = seconds
    assert became(error) == Outcome("release", 1_000)


def test_retry_from_an_error_keeps_that_errors_text() -> None:
    def handle() -> None:
        try:
            raise OSError("the printer is on fire")
        except OSError as error:
            raise Retry("10m") from error

    with pytest.raises(Retry) as raised:
        handle()
    assert became(raised.value) == Outcome("retry", 600_000, "OSError: the printer is on fire")


def test_an_error_text_is_kept_short_and_can_be_stored() -> None:
    for error in (ValueError("\ud800" * 5_000), Bury("\ud800" * 5_000), Retry().with_traceback(None)):
        text = became(error).error
        assert text is not None
        assert len(text.encode()) <= 500


class Untold:
    """A text that is looked up when it is needed, and is not there."""

    def __str__(self) -> str:
        raise asyncio.CancelledError


def test_a_text_that_fails_changes_no_decision() -> None:
    assert became(Bury(Untold())) == Outcome("dead", 0, "Bury")  # type: ignore[arg-type]
    assert became(ValueError(Untold())) == Outcome("retry", 1_000, "ValueError")
    retry = Retry("10m")
    retry.__cause__ = ValueError(Untold())
    assert became(retry) == Outcome("retry", 600_000, "ValueError")


def test_snooze_gives_the_message_back_and_says_nothing_of_an_error() -> None:
    assert became(Snooze("30s")) == Outcome("release", 30_000, None)
    assert became(Snooze("30s"), tried_ms=10**9) == Outcome("release", 30_000, None)


def test_snooze_goes_on_up_to_max_wait_and_not_beyond() -> None:
    snooze = Snooze("30s", max_wait="1h")
    assert became(snooze, tried_ms=3_570_000) == Outcome("release", 30_000)
    over = became(snooze, tried_ms=3_570_001)
    assert (over.verdict, over.error) == ("dead", "put off for 3570 s, and max_wait is 3600 s")


def test_bury_is_the_end_with_a_reason() -> None:
    assert became(Bury("no such order")) == Outcome("dead", 0, "no such order")


def test_subclasses_mean_what_their_base_means() -> None:
    class NoSuchOrder(Bury):
        def __init__(self) -> None:
            super().__init__("no such order")

    assert became(NoSuchOrder()) == Outcome("dead", 0, "no such order")


@pytest.mark.parametrize(
    ("raised", "verdict"), [(Bury("closed"), "dead"), (Retry("7s"), "retry"), (Snooze("7s"), "release")], ids=repr
)
def test_what_is_raised_in_a_group_means_what_it_means_alone(raised: Exception, verdict: str) -> None:
    inner = BaseExceptionGroup("inner", [raised])
    assert became(BaseExceptionGroup("outer", [inner])) == became(raised)
    assert became(raised).verdict == verdict


def test_of_a_group_bury_decides_then_retry_and_snooze_only_alone() -> None:
    fault, bury, retry, snooze = ValueError("no tape"), Bury("closed"), Retry("7s"), Snooze("9s")
    assert became(ExceptionGroup("g", [fault, snooze, retry, bury])) == became(bury)
    assert became(ExceptionGroup("g", [fault, snooze, retry])) == became(retry)
    assert became(ExceptionGroup("g", [snooze, Snooze("1s")])) == became(snooze)
    assert became(ExceptionGroup("g", [snooze, fault])).verdict == "retry"
    assert "ExceptionGroup: g" in (became(ExceptionGroup("g", [fault, snooze])).error or "")


@pytest.mark.parametrize(
    ("kind", "ended"),
    [
        (Bury, Outcome("dead", 0, "buried by its handler")),
        (Retry, Outcome("retry", 1_000, "asked for another attempt")),
        (Snooze, Outcome("release", 30_000)),
    ],
)
def test_a_class_that_is_raised_bare_means_what_its_instance_means(kind: type[Exception], ended: Outcome) -> None:
    with pytest.raises(kind) as raised:
        raise kind
    assert became(raised.value) == ended


@pytest.mark.parametrize("bad", ["soon", -1, "-1s", float("nan"), True, [], "200000w"], ids=repr)
def test_bad_delays_are_refused(bad: Any) -> None:
    with pytest.raises(BadTime, match="delay"):
        Retry(bad)
    with pytest.raises(BadTime, match="delay"):
        Snooze(bad)
    with pytest.raises(BadTime, match="max_wait"):
        Snooze("1s", max_wait=bad)


def test_snooze_can_not_go_without_a_delay() -> None:
    with pytest.raises(BadTime):
        Snooze(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "wait"), [(30, 30_000), (1.2, 1_200), (0, 0), ("1m", 60_000), (timedelta(hours=1), 3_600_000)]
)
def test_what_a_backoff_gives_is_a_duration_numbers_are_seconds(given: Any, wait: int) -> None:
    assert became(ValueError(), of=task(lambda attempt: given)).delay == wait
    assert became(Retry(), of=task(lambda attempt: given)).delay == wait


def test_waits_are_spread_unless_they_are_to_be_foreseen() -> None:
    spread = task(exponential("1s", chance=lambda: 1.0))
    assert outcome(ValueError(), spread, 2, 0).delay == 2_400
    assert outcome(ValueError(), spread, 2, 0, by_chance=False).delay == 2_000
    assert outcome(Retry(), spread, 3, 0, by_chance=False).delay == 4_000
    assert outcome(ValueError(), task(lambda attempt: "soon"), 1, 0, by_chance=False).delay == 1_000


@pytest.mark.parametrize(
    "bad",
    [
        lambda attempt: 1 // 0,
        lambda attempt: None,
        lambda: 5,
        lambda attempt: "soon",
        lambda attempt: -5,
        lambda attempt: 10**20,
    ],
)
def test_a_backoff_that_fails_does_not_keep_a_message_from_its_next_attempt(bad: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        ended = became(ValueError("no tape"), of=task(bad))
    assert (ended.verdict, ended.error) == ("retry", "ValueError: no tape")
    assert 800 <= ended.delay <= 1_200
    assert "The backoff of" in caplog.text


def test_what_handlers_raise_can_come_from_another_process() -> None:
    snooze = pickle.loads(pickle.dumps(Snooze("30s", max_wait="1h")))
    assert (snooze.delay_ms, snooze.max_wait_ms, str(snooze)) == (30_000, 3_600_000, "not yet: again in 30s")
    assert became(pickle.loads(pickle.dumps(Retry("2s")))).delay == 2_000
    assert became(pickle.loads(pickle.dumps(Retry()))).delay == 1_000
    assert became(pickle.loads(pickle.dumps(Bury("gone")))).error == "gone"


def test_a_lock_that_the_handler_meets_is_no_attempt_unless_the_task_says_so() -> None:
    met = Locked("The lock order:42 is taken", "order:42", 3.2)
    assert became(met, attempt=3) == Outcome("release", 4_000)
    assert became(Locked("nobody holds it, and others wait")) == Outcome("release", 1_000)

    def saying(**options: Any) -> Definition:
        return Definition(lambda: None, topic="t", aliases=[], max_attempts=3, backoff=steps("2s"), timeout=None, **options)

    assert became(met, of=saying(retry_for=Locked)) == Outcome("retry", 2_000, "Locked: The lock order:42 is taken")
    assert became(met, of=saying(no_retry_for=(Locked, ValueError))).verdict == "dead"
    assert became(met, of=saying(retry_for=ValueError)).verdict == "release"


def test_of_a_message_that_has_had_more_attempts_than_its_task_allows_now_nothing_untrue_is_told() -> None:
    """It may have failed twice while its task still had three, and no worker of it has died."""
    over = spent(3, 1)
    assert over is not None
    assert over.error is not None
    assert over.error.startswith("It has had 2 of 1 attempt")
    assert "failed while its task had more" in over.error
    assert spent(1, 1) is None
