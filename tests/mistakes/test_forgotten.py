"""A test of an application that forgets to move its queue into memory: the pytest plugin names it, or refuses it."""

import pytest

pytest_plugins = ["pytester"]

APPLICATION = """
import os
from bide import Queue

queue = Queue(f"sqlite:///{os.getcwd()}/shop.db")
"""

TESTS = """
import pytest
from shop import queue

def test_forgets():
    queue.send("mail", 1)

def test_remembers():
    with queue.testing.in_memory():
        queue.send("mail", 1)
        assert len(queue.receive("mail")) == 1

def test_has_a_file_of_its_own(tmp_path):
    with queue.testing.elsewhere(f"sqlite:///{tmp_path}/test.db"), queue:
        queue.send("mail", 1)

@pytest.mark.bide_real
def test_means_it():
    queue.send("mail", 1)

def test_uses_the_fixture(bide_queue):
    bide_queue.send("mail", 1)
"""


@pytest.fixture
def shop(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(shop=APPLICATION, test_shop=TESTS)
    return pytester


def run(shop: pytest.Pytester, guard: str | None) -> pytest.RunResult:
    shop.makeini("[pytest]\n" + (f"bide_guard = {guard}\n" if guard else "") + "pythonpath = .\n")
    return shop.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:randomly")


def test_it_is_named_at_the_end_of_the_run(shop: pytest.Pytester) -> None:
    ended = run(shop, None)
    ended.assert_outcomes(passed=5)
    ended.stdout.fnmatch_lines(["bide: test_shop.py::test_forgets has used sqlite://*shop.db for real.*in_memory*bide_guard*"])
    assert len([line for line in ended.stdout.lines if line.startswith("bide:")]) == 1


def test_a_guard_refuses_it_and_nothing_is_sent(shop: pytest.Pytester) -> None:
    ended = run(shop, "true")
    ended.assert_outcomes(passed=4, failed=1)
    ended.stdout.fnmatch_lines(["*ConfigError: This test uses sqlite://*shop.db for real.*in_memory*bide_real*"])
    ended.stdout.no_fnmatch_line("bide:*")


def test_it_may_be_left_unsaid(shop: pytest.Pytester) -> None:
    ended = run(shop, "false")
    ended.assert_outcomes(passed=5)
    ended.stdout.no_fnmatch_line("bide:*")


def test_a_guard_that_is_mistyped_is_told(shop: pytest.Pytester) -> None:
    ended = run(shop, "yes")
    ended.stderr.fnmatch_lines(["*bide_guard is yes. Give true, warn or false.*"])


def test_a_queue_that_somebody_else_has_opened_is_refused_as_well(shop: pytest.Pytester) -> None:
    shop.makepyfile(
        test_shop="""
import pytest
from shop import queue

queue.open()

@pytest.mark.bide_real
def test_means_it():
    queue.send("mail", 1)

def test_forgets():
    queue.send("mail", 2)

def test_forgets_as_well():
    queue.receive("mail")

@pytest.mark.bide_real
def test_sees_what_there_is():
    assert [each.body for each in queue.messages("mail")] == [1]
"""
    )
    ended = run(shop, "true")
    ended.assert_outcomes(passed=2, failed=2)


def test_tests_in_several_processes_are_named(shop: pytest.Pytester) -> None:
    shop.makeini("[pytest]\npythonpath = .\n")
    ended = shop.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:randomly", "--numprocesses", "2")
    ended.assert_outcomes(passed=5)
    ended.stdout.fnmatch_lines(["bide: test_shop.py::test_forgets has used sqlite://*shop.db for real.*"])
