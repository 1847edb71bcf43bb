"""How a table that is scanned delays messages and has them done twice."""

import time

import pytest

from examples.roads import table_scan
from tests.roads.conftest import Start


class Killed(BaseException):
    """Where a process is killed."""


def test_two_scanners_do_the_same_row(postgres_url: str, start: Start) -> None:
    with table_scan.connect(postgres_url) as database:
        table_scan.send(database, "twice", 0)
    consumers = [start("table_scan", postgres_url, "--stuck") for _ in range(2)]
    assert [each.handled() for each in consumers] == ["twice", "twice"]


def test_a_row_waits_for_the_next_scan(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[str] = []
    slept: list[float] = []
    with table_scan.connect(postgres_url) as database:

        def sleep(seconds: float) -> None:
            if slept:
                raise Killed
            slept.append(seconds)
            table_scan.send(database, "due now", 0)

        monkeypatch.setattr(time, "sleep", sleep)
        # When a row falls due just after a scan
        with pytest.raises(Killed):
            table_scan.work(database, handled.append)
    # Then it waits for the whole period
    assert (slept, handled) == ([60.0], ["due now"])
