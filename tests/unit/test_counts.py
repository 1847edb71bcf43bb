"""The judge of `make bench-check`: it finds what has become dearer."""

import pytest

from benchmarks.counts.__main__ import CALLS, CLIENT, SERVER, judged, show

BASELINE = {CALLS: {"put one": 10.0, "claim": 20.0}, SERVER: {"put one": 1_000.0}}
EVERYTHING = {CALLS, SERVER}


def test_what_costs_the_same_passes() -> None:
    assert show({CALLS: {"put one": 10.2, "claim": 5.0}, SERVER: {"put one": 1_029.0}}, BASELINE, EVERYTHING) == 0


def test_what_costs_more_than_three_percent_more_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert show({CALLS: {"put one": 10.4, "claim": 20.0}, SERVER: {"put one": 1_031.0}}, BASELINE, EVERYTHING) == 2
    assert capsys.readouterr().out.count("WORSE") == 2


def test_a_path_that_is_no_longer_measured_is_told() -> None:
    assert show({CALLS: {"put one": 10.0}, SERVER: {"put one": 1_000.0}}, BASELINE, EVERYTHING) == 1


def test_a_new_path_has_no_baseline_yet() -> None:
    now = {CALLS: {"put one": 10.0, "claim": 20.0, "cancel": 7.0}, SERVER: {"put one": 1_000.0}}
    assert show(now, BASELINE, EVERYTHING) == 0


def test_instructions_of_other_programs_are_not_judged() -> None:
    then = {"machine": "x86_64", "Redis": "7.0.15", "Python": "3.11.2", "redis-py": "7.1.0"}
    assert judged(then, then) == {CALLS, SERVER, CLIENT}
    assert judged({**then, "Redis": "8.0.2"}, then) == {CALLS, CLIENT}
    assert judged({**then, "Python": "3.13.1"}, then) == {CALLS, SERVER}
    assert show({CALLS: BASELINE[CALLS], SERVER: {"put one": 5_000.0}}, BASELINE, {CALLS}) == 0
