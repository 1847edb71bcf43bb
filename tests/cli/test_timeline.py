"""`bide timeline`: how many messages fall due when."""

import itertools
import json
import re

import pytest

from bide import Queue
from tests.cli.running import AtTerminal, Bide

LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*) +([\d,]+)(?:  (█*[▏▎▍▌▋▊▉]?))?")


@pytest.fixture
def planned(queue: Queue) -> Queue:
    """Due in the parts 0, 1, 1 and 3 of an hour, later, and now."""
    for minutes in (1, 20, 25, 50, 500):
        queue.send("t", minutes, delay=f"{minutes}m")
    queue.send("t", "overdue")
    queue.send("u", 1, delay="40m")
    return queue


def bars(out: str) -> list[tuple[int, int]]:
    """The count of each line, and the length of its bar."""
    found = [LINE.fullmatch(line) for line in out.splitlines()]
    assert all(found), out
    return [(int(each[2].replace(",", "")), len(each[3] or "")) for each in found if each]


def test_a_bar_is_as_long_as_its_count(bide: Bide, planned: Queue) -> None:
    ended = bide("timeline", "t", "--buckets", "4")
    shown = bars(ended.out)
    assert [count for count, _ in shown] == [1, 2, 0, 1]
    assert abs(shown[1][1] - 2 * shown[0][1]) <= 1
    assert shown[2][1] == 0
    assert max(len(line) for line in ended.out.splitlines()) == 80
    assert ended.err == "Due in this time: 4 of 6 pending messages. 1 is due now.\n"
    assert [count for count, _ in bars(bide("timeline", "--buckets", "4").out)] == [1, 2, 1, 1]


def test_the_time_is_named_from_now_or_as_timestamps(bide: Bide, planned: Queue) -> None:
    assert [count for count, _ in bars(bide("timeline", "t", "--start", "8h5m", "--end", "8h35m", "--buckets", "3").out)] == [
        0,
        1,
        0,
    ]
    far = bide("timeline", "--start", "2030-01-15T08:00:00Z", "--end", "2030-01-16T08:00:00Z", "--buckets", "24")
    assert len(bars(far.out)) == 24
    assert sum(count for count, _ in bars(bide("timeline", "t", "--start", "30m").out)) == 1


def test_bars_as_json_have_their_times(bide: Bide, planned: Queue) -> None:
    told = [json.loads(line) for line in bide("timeline", "t", "--buckets", "4", "--json").out.splitlines()]
    assert [each["messages"] for each in told] == [1, 2, 0, 1]
    assert list(told[0]) == ["topic", "start", "start_ms", "end", "end_ms", "messages"]
    assert all(first["end_ms"] == second["start_ms"] for first, second in itertools.pairwise(told))
    assert told[-1]["end_ms"] - told[0]["start_ms"] == 3_600_000


@pytest.mark.parametrize("columns", [60, 120])
def test_bars_are_as_wide_as_the_terminal(at_terminal: AtTerminal, planned: Queue, columns: int) -> None:
    shown = at_terminal("timeline", "t", "--buckets", "4", columns=columns).end().err.splitlines()[:4]
    assert max(map(len, shown)) == columns


def test_a_terminal_without_blocks_gets_other_bars(at_terminal: AtTerminal, planned: Queue) -> None:
    shown = at_terminal("timeline", "t", "--buckets", "4", PYTHONIOENCODING="ascii").end().err
    assert "###" in shown
    assert "\\u" not in shown


@pytest.mark.parametrize(
    "wrong", [["--start", "2h", "--end", "1h"], ["--end", "0"], ["--start", "soon"], ["--end", "2030-01-15T08:00:00"]], ids=str
)
def test_a_time_that_makes_no_sense_is_refused(bide: Bide, planned: Queue, wrong: list[str]) -> None:
    assert bide("timeline", *wrong).code == 2
