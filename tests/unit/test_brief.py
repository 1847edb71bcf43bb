"""What `make test` runs of all tests, and what is noted of them."""

from tests.brief import ENOUGH, LONG, chosen
from tests.times import BUDGETS, Record, kin_of_test, kin_of_variant, noted, over

MANY = [f"tests/redis/test_cancel_keys.py::test_it[{n}]" for n in range(100)]
KIN = kin_of_test(MANY[0])


def kin_of_all(*tests: str) -> dict[str, str]:
    return {test: kin_of_test(test) for test in tests}


def test_tests_of_one_name_engine_and_folder_are_kin() -> None:
    kin = kin_of_test("tests/redis/test_cancel_keys.py::TestIt::test_it[a-[b]-sync]")
    assert kin == kin_of_test("tests/redis/test_cancel.py::test_it") == "tests/redis/test_cancel…::test_it"
    assert kin != kin_of_test("tests/redis/test_move.py::test_it")
    assert kin != kin_of_test("tests/redis/test_cancel.py::test_that")
    assert kin != kin_of_test("tests/postgres/test_cancel.py::test_it")


def test_variants_of_an_engine_are_kin_wherever_they_are() -> None:
    one, other = (
        "tests/redis/test_rights.py::TestAsAWorker::test_it[sync]",
        "tests/contract/test_send.py::TestSend::test_it[async]",
    )
    assert kin_of_variant("redis", one) == kin_of_variant("redis", other) != kin_of_variant("postgres", other)


def test_all_of_what_takes_little_run() -> None:
    assert chosen(kin_of_all(*MANY), {}) == set(MANY)


def test_of_what_takes_more_always_the_same_few_run() -> None:
    took = {KIN: ENOUGH / 4}
    run = chosen(kin_of_all(*MANY), took)
    assert len(run) == 4
    assert chosen(kin_of_all(*reversed(MANY)), took) == run
    assert len(chosen(kin_of_all(*MANY, *(f"{test}more" for test in MANY)), took)) == 4


def test_one_at_least_runs_unless_it_is_long() -> None:
    assert len(chosen(kin_of_all(*MANY), {KIN: LONG})) == 1
    assert chosen(kin_of_all(*MANY), {KIN: LONG + 0.1}) == set()
    assert len(chosen(kin_of_all(*MANY), {KIN: LONG + 0.1}, always={KIN})) == 1


def test_the_record_has_what_does_not_take_little() -> None:
    little = {"tests/a/test_b.py::test_d[0]": 0.01, "tests/a/test_b.py::test_d[1]": 0.01}
    known = Record({"tests/a/test_b…::test_d": 1.0, "tests/z/test_z…::test_z": 1.0}, {})
    kin = kin_of_all(*little)
    assert noted(Record({}, {}), little, little, kin).kin == {}
    assert noted(known, little, little, kin).kin == {"tests/a/test_b…::test_d": 0.01, "tests/z/test_z…::test_z": 1.0}
    often = dict.fromkeys(MANY, 0.1)
    assert noted(Record({}, {}), often, often, kin_of_all(*MANY)).kin == {KIN: 0.1}


def test_the_record_has_how_long_the_tests_of_a_file_last() -> None:
    known = Record({}, {"tests/a/test_b.py": 9.0, "tests/z/test_z.py": 1.0})
    took = {"tests/a/test_b.py::test_d[0]": 0.01, "tests/a/test_b.py::test_e": 0.01}
    lasted = {"tests/a/test_b.py::test_d[0]": 2.0, "tests/a/test_b.py::test_e": 0.5}
    assert noted(known, took, lasted, kin_of_all(*took)).files == {"tests/a/test_b.py": 2.5, "tests/z/test_z.py": 1.0}


def test_a_folder_that_takes_more_than_its_budget_is_named() -> None:
    folder, budget = next(iter(BUDGETS.items()))
    assert over({folder: budget}) == []
    assert over({folder: budget + 1.0}) == [f"{folder} takes {budget + 1} seconds of a core, and its budget is {budget}."]
    assert over({"new": 1.0}) == ["new has no budget: give it one in tests/times.py."]
