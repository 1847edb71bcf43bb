"""How long a connection waits for the server, also in a process that was stopped meanwhile."""

from collections.abc import Generator
from typing import Any

import pytest

from bide.engines.postgres import statements


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(statements, "time", clock)
    return clock


def asking() -> Generator[Any, Any, str]:
    """As the driver's: it goes on as soon as the socket is ready."""
    while not (yield "R"):
        pass
    return "the answer"


def test_an_answer_that_came_while_the_process_was_stopped_is_read(clock: Clock) -> None:
    work = statements.limited(asking(), 5.0)
    assert next(work) == "R"
    clock.now = 60.0
    assert work.send(0) == "R"  # it woke up because its time was over, and has not looked
    with pytest.raises(StopIteration) as done:
        work.send(1)
    assert done.value.value == "the answer"


def test_no_answer_ends_the_wait_soon_after_the_limit(clock: Clock) -> None:
    work = statements.limited(asking(), 5.0)
    next(work)
    for clock.now in (1.0, 4.9, 5.1):
        assert work.send(0) == "R"
    clock.now = 5.2
    with pytest.raises(TimeoutError, match="no answer in 5 seconds"):
        work.send(0)
