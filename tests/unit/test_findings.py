"""The checks of a doctor run one after the other, and none that fails hides the others."""

from collections.abc import Iterator

import pytest

from bide.engines.base import Finding
from bide.engines.findings import run
from bide.errors import Unavailable


def well(asked: str) -> Iterator[Finding]:
    yield Finding("well", asked)


def half(asked: str) -> Iterator[Finding]:
    yield Finding("half", asked)
    raise LookupError("s3cret")


def silent(_: str) -> Iterator[Finding]:
    raise Unavailable("the server did not answer")


def gone(error: Exception) -> None:
    raise error


def test_a_check_that_fails_keeps_its_findings_and_the_others_run() -> None:
    first, failed, last = run({"one": half, "two": well}, "x")
    assert (first, last) == (Finding("half", "x"), Finding("well", "x"))
    assert (failed.name, failed.level, failed.value) == ("one", "warn", "not known: the check failed with LookupError")
    assert "s3cret" not in str(failed)


def test_a_reason_that_the_engine_knows_is_told_at_its_level() -> None:
    assert list(run({"one": half}, "x", lambda _: "not allowed", "bad"))[1] == Finding("one", "not known: not allowed", "bad")


def test_an_error_of_bide_is_its_own_reason() -> None:
    assert list(run({"one": silent}, "x")) == [Finding("one", "not known: the server did not answer")]


def test_when_nothing_more_can_be_asked_what_was_found_stays() -> None:
    found: list[Finding] = []
    with pytest.raises(LookupError):
        found += run({"one": half, "two": well}, "x", gone)
    assert found == [Finding("half", "x")]
