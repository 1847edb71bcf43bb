"""Log lines whose handlers or filters fail."""

from typing import Any

import pytest

from bide.logs import Log
from bide.queue.deliveries import traceback_text
from tests.worker.faults import deaf


@pytest.mark.parametrize("by_filter", [False, True], ids=["handler", "filter"])
def test_a_failing_handler_is_told_of_once_however_many_modules_log_under_its_name(capsys: Any, by_filter: bool) -> None:
    name = f"bide.test.{by_filter}"
    with deaf(name, by_filter=by_filter):
        for log in (Log(name), Log(name), Log(name + ".other")):
            log.error("one")
            log.error("two")
    told = capsys.readouterr().err
    assert told.count(f"A logging handler or filter of {name} has failed. More of this is not told") == 1
    assert told.count(f"A logging handler or filter of {name}.other has failed. More of this is not told") == 1


@pytest.mark.parametrize(
    "error",
    [ValueError("x" * 5_000_000), ExceptionGroup("many", [ValueError(number) for number in range(100_000)])],
    ids=["a text of megabytes", "a group of a hundred thousand"],
)
def test_an_error_that_would_fill_the_log_is_cut(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise error
    except Exception as raised:
        Log("bide.worker").error("failed", exc_info=raised)
        shown = traceback_text(raised) or ""
    assert len(caplog.text) < 30_000
    assert type(error).__name__ in caplog.text
    assert type(error).__name__ in shown
    assert len(shown) < 5_000
