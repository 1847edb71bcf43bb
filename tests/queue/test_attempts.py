"""What is kept of attempts that failed: when, where and why; in bounded room, and with nothing of a message that is done."""

import os
import random
import zlib

import msgspec
import pytest

from bide import ManualClock, Queue, Retry
from bide.engines.stored import LONGEST
from bide.ids import process_name
from bide.queue.deliveries import LENGTH, attempts_of, record_of, traceback_text

HERE = process_name(os.getpid())


def raised(error: BaseException, depth: int = 0) -> BaseException:
    """With the traceback of so many calls."""
    try:
        deeper(error, depth)
    except BaseException as met:
        error = met
    return error


def deeper(error: BaseException, depth: int) -> None:
    if depth:
        deeper(error, depth - 1)
    else:
        raise error


def test_each_attempt_that_failed_is_told_with_the_dead_letter() -> None:
    clock = ManualClock()
    with Queue("memory://", clock=clock) as queue:

        @queue.task("t", max_attempts=2)
        def handle() -> None:
            raise ValueError("no such order")

        sent = handle.send()
        began = clock.now_ms
        assert queue.get(sent).attempts == ()  # type: ignore[union-attr]
        queue.testing.advance("1h", raise_errors=False)
        info = queue.get(sent)
        assert info is not None
        first, second = info.attempts
        assert (first.number, first.began, first.worker, first.error) == (1, began, HERE, "ValueError: no such order")
        assert (second.number, second.error) == (2, first.error)
        assert second.began == info.due > first.began
        assert second.began_at == info.due_at
        lines = (first.traceback or "").splitlines()
        assert lines[0] == "Traceback (most recent call last):"
        assert 'raise ValueError("no such order")' in lines[2]
        assert lines[-1] == "ValueError: no such order"
        # A list has them not, as a page of long ones would be long
        assert queue.messages("t", state="dead")[0].attempts == ()
        # A requeued message keeps them, and has its new ones behind them
        queue.requeue("t")
        queue.testing.advance("1h", raise_errors=False)
        again = queue.get(sent)
        assert again is not None
        assert [each.number for each in again.attempts] == [1, 2, 1, 2]


def test_what_a_receiver_says_is_kept_as_it_said_it() -> None:
    with Queue("memory://", clock=ManualClock()) as queue:
        sent = queue.send("t")
        [delivery] = queue.receive("t")
        delivery.retry(0)
        [delivery] = queue.receive("t")
        delivery.retry(0, error="the shop did not answer")
        [delivery] = queue.receive("t")
        delivery.bury("no use")
        info = queue.get(sent)
        assert info is not None
        told = [(each.number, each.worker, each.error, each.traceback) for each in info.attempts]
        assert told == [(1, HERE, None, None), (2, HERE, "the shop did not answer", None), (3, HERE, "no use", None)]


def test_an_attempt_whose_lease_ended_is_told_without_a_worker() -> None:
    clock = ManualClock()
    with Queue("memory://", clock=clock) as queue:
        sent = queue.send("t")
        began = clock.now_ms
        queue.receive("t", lease="10s")
        clock.advance(60)
        [delivery] = queue.receive("t", wait=1)
        delivery.retry(0, error="late")
        info = queue.get(sent)
        assert info is not None
        lost, late = info.attempts
        assert (lost.number, lost.began, lost.worker, lost.traceback) == (1, began, None, None)
        assert lost.error == "Its lease ended: its worker died, froze or took too long."
        assert (late.number, late.error) == (2, "late")


def test_a_body_that_can_not_be_read_has_a_record_too() -> None:
    from bide.engines.base import NewMessage

    with Queue("memory://") as queue:
        [sent] = queue.session.open().engine.put([NewMessage("t", b"{")])
        assert queue.receive("t") == []
        info = queue.get(sent.id)
        assert info is not None
        assert info.last_error
        assert [(each.number, each.error) for each in info.attempts] == [(1, info.last_error)]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x" * 100_000),
        ValueError("\n".join(map(str, range(10_000)))),
        ValueError("∅\ud800\0" * 1_000),
        ExceptionGroup("many", [ValueError(str(n) * 100) for n in range(100)]),
        Retry("1m"),
        KeyboardInterrupt(),
    ],
)
def test_a_record_is_no_longer_than_an_engine_takes(error: BaseException) -> None:
    error.add_note("".join(random.Random(1).choices("abcdefghij0123456789", k=100_000)))
    told = traceback_text(raised(error, depth=200)) or ""
    assert 0 < len(told.encode()) <= LENGTH + 10
    record = record_of(1_000, 2**43, "€" * 500, error)
    assert len(record) <= LONGEST
    [attempt] = attempts_of([record])
    assert (attempt.number, attempt.began, attempt.error, attempt.traceback) == (1_000, 2**43, "€" * 500, told)


def test_the_innermost_frames_of_a_traceback_are_kept() -> None:
    told = traceback_text(raised(ValueError("deep"), depth=300)) or ""
    assert told.splitlines()[-2].strip() == "raise error"
    assert "in raised" not in told


def test_the_causes_of_an_error_are_told() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as cause:
            raise ValueError("outer") from cause
    except ValueError as error:
        told = traceback_text(error) or ""
    assert "KeyError: 'inner'" in told
    assert told.endswith("ValueError: outer")


def test_an_error_that_can_not_be_told_keeps_nothing_from_being_recorded() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    [attempt] = attempts_of([record_of(1, 5, "Broken", raised(Broken()))])
    assert (attempt.number, attempt.error) == (1, "Broken")


def test_a_record_that_can_not_be_read_is_left_out() -> None:
    bomb = zlib.compress(msgspec.json.encode({"attempt": 1, "began": 1, "error": "x" * 10**7}))
    newer = msgspec.json.encode({"attempt": 3, "began": 1, "worker": "w", "of a later release": True})
    found = attempts_of([b"", b"{", b"garbage", bomb, newer])
    assert [each.number for each in found] == [3]
