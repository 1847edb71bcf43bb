"""Which process runs which tests."""

import pytest

from tests import share
from tests.share import longest_first, share_of

TESTS = [
    "tests/queue/test_a.py::test_it",
    "tests/queue/test_b.py::test_it[0]",
    "tests/rabbitmq/test_c.py::test_it",
    "tests/contract/test_rabbitmq.py::TestIt::test_it[a::b]",
    "tests/queue/test_b.py::test_it[1]",
]


def test_a_file_is_run_as_a_whole_and_rabbitmq_by_one_process() -> None:
    assert share_of(TESTS[1]) == share_of(TESTS[4]) != share_of(TESTS[0])
    assert share_of(TESTS[2]) == share_of(TESTS[3]) != share_of(TESTS[1])


def test_the_longest_shares_are_first_and_the_tests_of_each_stay_in_order() -> None:
    seconds = {"tests/queue/test_a.py": 3.0, "tests/rabbitmq/test_c.py": 2.0, "tests/contract/test_rabbitmq.py": 2.0}
    assert longest_first(TESTS, seconds) == [2, 3, 0, 1, 4]
    assert longest_first(TESTS, {}) == [0, 1, 4, 2, 3]


def test_files_that_last_as_long_are_not_mixed() -> None:
    mixed = [TESTS[0], TESTS[1], TESTS[0] + "s", TESTS[4]]
    assert longest_first(mixed, {"tests/queue/test_a.py": 1.0, "tests/queue/test_b.py": 1.0}) == [0, 2, 1, 3]


def test_a_file_whose_tests_take_very_long_is_shared_test_by_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "LONG", ("tests/queue/test_b.py",))
    assert share_of(TESTS[1]) != share_of(TESTS[4])
    assert longest_first(TESTS, {"tests/queue/test_b.py": 1.0, "tests/queue/test_a.py": 2.0}) == [0, 1, 4, 2, 3]
