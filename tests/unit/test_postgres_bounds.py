"""From which due time on a claim in PostgreSQL looks."""

import pytest

from bide.engines.postgres.recent import BEGINNING, EVERY, SLACK, SLOW, SLOW_EACH, Bounds

LONG = SLOW + 1


def learned(took: int = LONG, messages: int = 0) -> Bounds:
    """After a claim at second 0 that left nothing due before 10,000 ms."""
    bounds = Bounds()
    bounds.learn(bounds.look(["mail"], 0.0), 10_000, took, messages)
    return bounds


def test_claims_that_are_quick_look_from_the_beginning() -> None:
    assert learned(took=SLOW).look(["mail"], 1.0).firsts == [BEGINNING]


def test_a_claim_is_not_slow_for_the_many_messages_that_it_brings() -> None:
    assert learned(SLOW + 50 * SLOW_EACH, messages=50).look(["mail"], 1.0).firsts == [BEGINNING]


def test_after_a_slow_claim_the_next_one_begins_where_nothing_was_left_with_some_slack() -> None:
    assert learned().look(["mail", "news"], 1.0).firsts == [10_000 - SLACK, BEGINNING]


def test_claims_that_begin_later_move_the_bound_on() -> None:
    bounds = learned()
    bounds.learn(bounds.look(["mail"], 1.0), 20_000, 0, 0)
    assert bounds.look(["mail"], 2.0).firsts == [20_000 - SLACK]


def test_the_bound_never_moves_back_by_itself() -> None:
    bounds = learned()
    bounds.learn(bounds.look(["mail"], 1.0), 5_000, 0, 0)
    assert bounds.look(["mail"], 2.0).firsts == [10_000 - SLACK]


def test_a_claim_looks_from_the_beginning_every_few_seconds_also_when_those_between_were_quick() -> None:
    bounds = learned()
    bounds.learn(bounds.look(["mail"], EVERY - 0.1), 20_000, 0, 0)
    assert bounds.look(["mail"], EVERY).firsts == [BEGINNING]


def test_a_message_that_was_due_earlier_lowers_the_bound() -> None:
    bounds = learned()
    bounds.lower("mail", 3_000)
    bounds.lower("mail", 50_000)
    assert bounds.look(["mail"], 1.0).firsts == [3_000]


def test_a_message_that_was_heard_of_during_a_claim_is_not_passed_over() -> None:
    bounds = learned()
    look = bounds.look(["mail"], 1.0)
    bounds.lower("mail", 3_000)
    bounds.learn(look, 20_000, 0, 0)
    assert bounds.look(["mail"], 2.0).firsts == [3_000]


def test_what_was_forgotten_is_looked_for_from_the_beginning() -> None:
    bounds = learned()
    bounds.forget()
    assert bounds.look(["mail"], 1.0).firsts == [BEGINNING]


@pytest.mark.parametrize(("took", "longest"), [(SLOW, 5.0), (LONG, EVERY - 1)])
def test_a_sleeper_wakes_when_it_has_to_look_from_the_beginning(took: int, longest: float) -> None:
    assert learned(took).patience(["mail", "news"], 1.0, 5.0) == longest
    assert learned(took).patience(["mail"], 1.0, 0.1) == 0.1
    assert learned(took).patience(["news"], 1.0, 5.0) == 5.0


def test_a_message_that_is_back_is_looked_for_from_the_beginning() -> None:
    bounds = learned()
    bounds.back("mail")
    bounds.learn(bounds.look(["mail"], 1.0), 20_000, 0, 0)
    assert bounds.look(["mail"], 2.0).firsts == [20_000 - SLACK]
    bounds.back("mail")
    assert bounds.look(["mail"], 3.0).firsts == [0]


@pytest.mark.parametrize("bounds", [Bounds(), learned()], ids=["new", "known"])
def test_a_message_that_is_back_during_a_claim_is_not_passed_over(bounds: Bounds) -> None:
    for _ in range(2):
        look = bounds.look(["mail"], 1.0)
        bounds.back("mail")
        bounds.learn(look, 20_000, LONG, 0)
        assert bounds.look(["mail"], 2.0).firsts[0] <= 0
