"""A run that another one has taken over between two of its steps, or just before it acts: what it still does has no effect."""

import pytest

from bide import Queue
from bide.adopt.adoption import Adoption
from bide.adopt.queue.transfer_log import OtherMove
from bide.adopt.source import EarlierRun, FoundEntry
from tests.move.meddling import Before, source_of
from tests.move.test_meanwhile import Meddled, killed, moving, run, send
from tests.move.test_two_movers import DAY


def names(found: list[FoundEntry]) -> list[str]:
    return [each.name for each in found]


def goes_on(second: Meddled, held: EarlierRun, new: Queue) -> int:
    """With what it had when it took over. Gives how many it moved."""
    real, seen = second.held, [held]
    second.held = lambda: seen.pop() if seen else real()  # type: ignore[method-assign]
    return run(second, new).adopted


@pytest.mark.parametrize("call", [1, 2])
def test_a_step_that_was_noted_before_another_run_took_over_ends_nothing(old: Queue, new: Queue, call: int) -> None:
    """The other one knows of the step, and gives its note another time."""
    sent = send(old, 5)
    killed(old, new, "finishing")
    second, held = moving(old), list[EarlierRun]()
    engine = Before(old.session.engine(), "cancel", lambda: held.append(second.held()), call)
    with pytest.raises(OtherMove, match="taken over"):
        run(source_of(engine), new, batch=2)
    there = 5 if call == 1 else 3
    assert len(list(old.messages("mail"))) == len(held[0].found) == there
    assert goes_on(second, held[0], new) == there
    run(moving(old), new)
    assert {each.key: each.due for each in new.messages("mail")} == {f"k{n}": each.due for n, each in enumerate(sent)}
    assert new.stats("mail").pending == 5
    assert old.stats().scheduled == 0


def test_a_run_that_was_taken_over_gives_nothing_back(old: Queue, new: Queue) -> None:
    """No worker is to get what the other one has, and perhaps has sent."""
    sent = send(old, 5)
    second, held = moving(old), list[EarlierRun]()
    first = source_of(Before(old.session.engine(), "reschedule", lambda: held.append(second.held()), 2))
    taken = names(list(first.take(10).found))
    with pytest.raises(OtherMove, match="goes on with what this one had"):
        first.give_back(taken)
    assert min(each.due for each in old.messages("mail")) > max(each.due for each in sent) + 365 * DAY
    assert goes_on(second, held[0], new) == 5
    assert {each.key: each.due for each in new.messages("mail")} == {f"k{n}": each.due for n, each in enumerate(sent)}
    assert old.stats().scheduled == 0


@pytest.mark.timeout(60)
def test_a_run_that_looks_again_after_a_long_sleep_does_not_give_back_what_was_taken_anew(old: Queue, new: Queue) -> None:
    """As `--follow` does: another run has given back what it had, and a third one has taken it."""
    sent = send(old, 5)
    first, second, third = (moving(old) for _ in range(3))
    taken = names(list(first.take(10).found))
    second.give_back(names(list(second.held().found)))
    second.close()
    assert {each.due for each in old.messages("mail")} == {each.due for each in sent}
    assert len(third.take(10).found) == 5
    for does in (first.held, lambda: first.give_back(taken)):
        with pytest.raises(OtherMove, match="has taken over"):
            does()
    assert min(each.due for each in old.messages("mail")) > max(each.due for each in sent) + 365 * DAY
    run(moving(old), new)
    assert {each.key: each.due for each in new.messages("mail")} == {f"k{n}": each.due for n, each in enumerate(sent)}
    assert old.stats().scheduled == 0


def test_a_lease_that_ends_between_listing_and_taking_counts_as_an_attempt(old: Queue, new: Queue) -> None:
    """Its time stays the same, so only a second look tells it."""
    sent = old.send("mail", "slow")
    engine = old.session.engine()

    def a_worker_dies() -> None:
        [claimed] = engine.claim(["mail"], 1, 1).messages
        assert claimed.id == sent.id
        while (there := old.get(sent.id)) is None or there.state != "ready":
            engine.tend()

    run(source_of(Before(engine, "reschedule", a_worker_dies)), new)
    run(moving(old), new)
    assert [(each.body, each.attempt, each.state) for each in new.messages("mail")] == [("slow", 1, "ready")]
    assert old.topics() == []


def test_a_run_that_follows_stops_when_another_one_begins(old: Queue, new: Queue) -> None:
    follows = moving(old)
    assert run_once(follows, new) == 0
    sent = send(old, 5)
    second = moving(old)
    taken = names(list(second.take(10).found))
    with pytest.raises(OtherMove, match="has taken over"):
        run_once(follows, new)
    second.give_back(taken)
    second.close()
    assert {each.due for each in old.messages("mail")} == {each.due for each in sent}
    assert run_once(moving(old), new) == 5


def run_once(source: Meddled, new: Queue) -> int:
    """A look of `--follow`."""
    adoption = Adoption(source, new)
    adoption.run(lambda _: None, lambda: False)
    return adoption.adopted
