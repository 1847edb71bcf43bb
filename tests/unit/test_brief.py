"""What `make test` runs of all tests."""

from tests.brief import ENOUGH, LONG, chosen, kin_of, noted

MANY = [f"tests/redis/test_cancel_keys.py::test_it[{n}]" for n in range(100)]


def test_tests_of_one_name_engine_and_folder_are_kin() -> None:
    kin = kin_of("tests/redis/test_cancel_keys.py::TestIt::test_it[a-[b]-sync]")
    assert kin == kin_of("tests/redis/test_cancel.py::test_it") == "tests/redis/test_cancel…::test_it"
    assert kin != kin_of("tests/redis/test_move.py::test_it")
    assert kin != kin_of("tests/redis/test_cancel.py::test_that")
    assert kin != kin_of("tests/postgres/test_cancel.py::test_it")


def test_all_of_what_takes_little_run() -> None:
    assert chosen(MANY, {}) == set(MANY)


def test_of_what_takes_more_always_the_same_few_run() -> None:
    took = {kin_of(MANY[0]): ENOUGH / 4}
    run = chosen(MANY, took)
    assert len(run) == 4
    assert chosen(reversed(MANY), took) == run
    assert len(chosen([*MANY, *(f"{test}more" for test in MANY)], took)) == 4


def test_one_at_least_runs_unless_it_is_long() -> None:
    assert len(chosen(MANY, {kin_of(MANY[0]): LONG})) == 1
    assert chosen(MANY, {kin_of(MANY[0]): LONG + 0.1}) == set()


def test_the_record_has_what_does_not_run_whole() -> None:
    short = {"tests/a/test_b.py::test_c": LONG - 1, "tests/a/test_b.py::test_d[0]": 0.01, "tests/a/test_b.py::test_d[1]": 0.01}
    known = {"tests/a/test_b…::test_d": 1.0, "tests/z/test_z…::test_z": 1.0}
    assert noted(known, short) == {"tests/z/test_z…::test_z": 1.0}
    assert noted({}, dict.fromkeys(MANY, 0.1)) == {kin_of(MANY[0]): 0.1}
    assert noted({}, {"tests/a/test_b.py::test_long": 9.0}) == {"tests/a/test_b…::test_long": 9.0}
