"""`queue.stats(due_within=…)`: how much falls due soon, and how much later."""

from datetime import timedelta
from typing import Any

import pytest

from bide import BadOption, BadTime, ManualClock, Queue


@pytest.fixture
def queue() -> Any:
    with Queue("memory://", clock=ManualClock()) as made:
        yield made


def test_each_time_has_what_falls_due_within_it(queue: Queue) -> None:
    for delay in ("10s", "1m", "2m", "20m", "5h", "2d"):
        queue.send("mail", 1, delay=delay)
    queue.send_many("mail", [1, 2])  # these are due
    queue.send("news", 1, delay="4m")
    within: list[Any] = ["1h", timedelta(minutes=1), 300, "1h"]  # in any order
    stats = queue.stats(due_within=within)
    assert list(stats.due_within) == [5, 2, 4, 5]
    assert {topic: list(each.due_within) for topic, each in stats.topics.items()} == {
        "mail": [4, 2, 3, 4],
        "news": [1, 0, 1, 1],
    }
    assert (stats.ready, stats.scheduled) == (2, 7)
    assert list(queue.stats("mail", due_within=["1d"]).due_within) == [5]
    assert list(queue.stats("none", due_within=["1d", "2d"]).due_within) == [0, 0]
    assert list(queue.stats().due_within) == []


def test_nothing_comes(queue: Queue) -> None:
    assert list(queue.stats(due_within=["1d"]).due_within) == [0]
    queue.send("mail", 1)
    assert list(queue.stats(due_within=["1d"]).due_within) == [0]


@pytest.mark.parametrize("wrong", ["5m", 300, 2.5, timedelta(minutes=5)])
def test_one_time_is_no_list(queue: Queue, wrong: Any) -> None:
    with pytest.raises(BadOption, match="Give a list"):
        queue.stats(due_within=wrong)


def test_a_time_of_nothing_is_refused(queue: Queue) -> None:
    with pytest.raises(BadTime, match="due_within has a time of 0"):
        queue.stats(due_within=["5m", 0])
    with pytest.raises(BadTime):
        queue.stats(due_within=["soon"])
