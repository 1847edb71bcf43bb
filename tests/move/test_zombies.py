"""What a run that was killed has asked for takes effect late; and a run is killed, or fails, where it takes copies back."""

from typing import Any

import pytest

from bide import Queue
from bide.adopt.queue.transfer_log import stopped_moves
from bide.errors import Unavailable
from bide.types import CancelResult
from tests.move.meddling import Before, Killed, Late, source_of
from tests.move.test_meanwhile import bodies, moving, run, send

HOUR, DAY = 3_600, 86_400


def killed_in(old: Queue, new: Queue, verb: str) -> Late:
    late = Late(old.session.engine(), verb)
    with pytest.raises(Killed):
        run(source_of(late), new)
    return late


def test_a_cancel_of_a_killed_run_that_acts_just_before_ours_loses_nothing(old: Queue, new: Queue) -> None:
    sent = send(old, 5)
    late = killed_in(old, new, "cancel")
    adoption = run(source_of(Before(old.session.engine(), "cancel", late.acts)), new)
    run(moving(old), new)
    assert (adoption.adopted, adoption.gone, adoption.late) == (5, 0, 0)
    assert {each.due for each in new.messages("mail")} == {each.due for each in sent}
    assert old.stats().scheduled == 0


def test_what_a_killed_run_moves_away_when_another_has_begun_has_no_effect(old: Queue, new: Queue) -> None:
    sent = send(old, 5)
    late = killed_in(old, new, "reschedule")
    second = moving(old)
    second.held()
    late.acts()
    assert {each.due for each in old.messages("mail")} == {each.due for each in sent}
    run(second, new)
    run(moving(old), new)
    assert {each.due for each in new.messages("mail")} == {each.due for each in sent}
    assert old.stats().scheduled == 0


@pytest.mark.parametrize("days", [10, 60, 400, 5_000])
def test_a_message_that_two_runs_move_away_keeps_its_time(old: Queue, new: Queue, days: int) -> None:
    sent = [old.send("mail", n, delay=days * DAY, key=f"k{n}") for n in range(3)]
    late = killed_in(old, new, "reschedule")
    second = moving(old)
    second.take(10)
    late.acts()
    second.close()
    run(moving(old), new)
    run(moving(old), new)
    assert {each.due for each in new.messages("mail")} == {each.due for each in sent}


class Deaf:
    """A queue that can't cancel just now, or whose mover is killed there."""

    def __init__(self, queue: Queue, error: BaseException) -> None:
        real: Any = queue.session.engine()
        self._cancel, self._engine = real.cancel, queue.session.engine
        self.error: BaseException | None = error
        queue.session.engine = lambda: self  # type: ignore[method-assign, assignment, return-value]
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def cancel(self, *refs: Any, **how: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self._cancel(*refs, **how)


@pytest.mark.parametrize("error", [Unavailable("no"), Killed()], ids=lambda each: type(each).__name__)
def test_a_copy_that_could_not_be_taken_back_is_taken_back_by_the_next_run(
    old: Queue, new: Queue, error: BaseException
) -> None:
    send(old, 3)
    source, said = moving(old), list[CancelResult]()
    source.finishing = lambda: said.append(old.cancel(topic="mail", key="k1"))
    deaf = Deaf(new, error)
    with pytest.raises(type(error)):
        run(source, new)
    assert stopped_moves(old.session.engine())
    deaf.error = None
    run(moving(old), new)
    assert (said, bodies(new)) == ([CancelResult.CANCELLED], [0, 2])
    assert stopped_moves(old.session.engine()) == []


@pytest.mark.parametrize("step", ["taken", "finishing"])
def test_a_message_that_is_replaced_by_one_of_the_same_time_moves_as_the_new_one(old: Queue, new: Queue, step: str) -> None:
    sent = send(old, 3)
    source = moving(old)

    def replace() -> None:
        setattr(source, step, lambda: None)
        old.send("mail", 1, at=sent[1].due_at, key="k1", if_exists="replace", priority="high", max_attempts=9, expires_in="1h")

    setattr(source, step, replace)
    run(source, new)
    run(moving(old), new)
    found = new.get(topic="mail", key="k1")
    assert found is not None
    assert (found.priority, found.max_attempts, found.due) == ("high", 9, sent[1].due)
    assert found.expires is not None
    assert len(list(new.messages("mail"))) == 3


def test_a_dead_letter_that_was_requeued_and_done_meanwhile_leaves_no_copy(old: Queue, new: Queue) -> None:
    old.send("mail", "dead", key="k")
    [delivery] = old.receive("mail")
    delivery.bury("no use")
    source = moving(old)

    def done() -> None:
        old.requeue("mail")
        [delivery] = old.receive("mail")
        delivery.ack()

    source.finishing = done
    adoption = run(source, new)
    assert (adoption.adopted, adoption.gone) == (0, 1)
    assert list(new.messages("mail")) == []
    assert old.topics() == []
