"""A message that is changed just before it ends is not ended; and what a run does when it has been taken over has no effect."""

from collections.abc import Callable
from typing import Any

import pytest

from bide import Outgoing, Queue
from bide.adopt import adoption
from bide.adopt.adoption import Adoption
from bide.adopt.queue import move
from bide.adopt.queue.transfer_log import stopped_moves
from bide.engines.base import Move, Ref
from bide.errors import BideError
from bide.queue.schedules.records import MOVING
from bide.types import RescheduleResult, Sent
from tests.move.meddling import After, AfterTake, Before, Killed, die, source_of
from tests.move.test_meanwhile import bodies, killed, moving, run, send
from tests.move.test_zombies import killed_in

CHANGES: dict[str, Callable[[Queue, Sent], object]] = {
    "cancelled": lambda old, sent: old.cancel(sent),
    "rescheduled": lambda old, sent: old.reschedule(sent, delay="5h"),
    "replaced": lambda old, sent: old.send("mail", ["new"], key="k", delay="5h", if_exists="replace"),
    "put off": lambda old, sent: old.send("mail", ["new"], key="k", delay="5h", if_exists="later"),
    "put off as it is": lambda old, sent: old.send("mail", ["a"], key="k", if_exists="later", headers={"x": "y"}),
    "merged": lambda old, sent: old.send("mail", "b", key="k", delay="5h", if_exists="merge"),
}
LEFT: dict[str, list[Any]] = {
    "cancelled": [["other"]],
    "rescheduled": [["a"], ["other"]],
    "replaced": [["new"], ["other"]],
    "put off": [["new"], ["other"]],
    "put off as it is": [["a"], ["other"]],
    "merged": [["a", "b"], ["other"]],
}


WAYS = [("taken", change) for change in CHANGES] + [("ending", change) for change in CHANGES if change != "put off as it is"]
"""What leaves the time and the body is looked for before the end, and not in its moment."""


@pytest.mark.parametrize(("when", "change"), WAYS)
def test_what_is_changed_on_its_way_counts(old: Queue, new: Queue, change: str, when: str) -> None:
    sent = old.send("mail", "a", key="k", delay="2h", if_exists="merge")
    old.send("mail", ["other"], delay="2h")
    verb = "get" if when == "taken" else "cancel"
    run(source_of(AfterTake(old.session.engine(), verb, lambda: CHANGES[change](old, sent))), new)
    run(moving(old), new)
    assert bodies(new) == LEFT[change]
    assert new.stats("mail").pending == len(LEFT[change])
    assert old.topics() == []
    found = {each.body[0]: each for each in new.messages("mail")}
    if change == "rescheduled":
        assert found["a"].due > sent.due + 10_000_000
    if change == "put off as it is":
        assert found["a"].headers == {"x": "y"}


def test_what_loses_its_key_as_it_is_taken_is_moved_once_without_it(old: Queue, new: Queue) -> None:
    """A message that has been tried gets a successor under its key. The run is killed when it has sent what it took."""
    old.send("mail", ["tried"], key="k")
    [delivery] = old.receive("mail")
    delivery.retry("2h", error="it broke")

    def merges() -> None:
        assert old.send("mail", "more", key="k", delay="3h", if_exists="merge").created

    meddled = After(old.session.engine(), "reschedule", merges)
    with pytest.raises(Killed):
        run(source_of(Before(meddled, "cancel", die, 1)), new)
    run(moving(old), new)
    assert sorted((each.body[0], each.key, each.attempt) for each in new.messages("mail")) == [
        ("more", "k", 0),
        ("tried", None, 1),
    ]
    assert old.topics() == []


def test_what_is_rescheduled_just_before_it_is_given_back_keeps_that_time(old: Queue, new: Queue) -> None:
    sent = old.send("mail", "here", key="k", delay="2h")
    new.send("mail", "there", key="k", delay="2h")
    said: list[RescheduleResult] = []
    engine = Before(old.session.engine(), "reschedule", lambda: said.append(old.reschedule(sent, delay="5h")), 2)
    run(source_of(engine), new)
    assert said == [RescheduleResult.MOVED]
    [left] = old.messages("mail")
    assert sent.due + 10_000_000 < left.due < sent.due + 12_000_000


@pytest.mark.parametrize("verb", ["reschedule", "cancel"])
def test_what_a_killed_run_still_does_after_a_give_back_has_no_effect(
    old: Queue, new: Queue, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "QUIET", 0.0)
    sent = send(old, 5)
    late = killed_in(old, new, verb)
    move.give_all_back(old.session.engine(), "old")
    late.acts()
    assert {each.due for each in old.messages("mail")} == {each.due for each in sent}
    assert stopped_moves(old.session.engine()) == []


def test_what_a_killed_run_still_moves_away_after_its_successor_has_ended_stays(old: Queue, new: Queue) -> None:
    """What the successor has left, because its key is taken."""
    sent = old.send("mail", "here", key="k", delay="2h")
    new.send("mail", "there", key="k", delay="2h")
    late = killed_in(old, new, "reschedule")
    run(moving(old), new)
    late.acts()
    [left] = old.messages("mail")
    assert left.due == sent.due


def test_a_run_that_was_taken_over_and_goes_on_ends_nothing(old: Queue, new: Queue) -> None:
    old.send_many("mail", [Outgoing(n, delay=3_600 + n) for n in range(5)])

    def taken_over() -> None:
        source = moving(old)
        source.give_back([each.name for each in source.held().found])

    with pytest.raises(BideError, match="It goes on with what this one had"):
        run(source_of(Before(old.session.engine(), "cancel", taken_over)), new)
    assert bodies(old) == [0, 1, 2, 3, 4]


def test_a_run_that_stood_still_while_its_messages_were_given_back_says_so(
    old: Queue, new: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "QUIET", 0.0)
    sent = send(old, 5)
    engine = old.session.engine()
    source = source_of(Before(engine, "cancel", lambda: move.give_all_back(engine, "old")))
    with pytest.raises(BideError, match="the other queue may have copies"):
        run(source, new)
    assert source.log.taken_over
    assert {each.due for each in old.messages("mail")} == {each.due for each in sent}
    assert stopped_moves(engine) == []


def test_a_run_that_looks_again_while_it_has_messages_ends_them(old: Queue, new: Queue) -> None:
    """As `--follow` does: what is noted has another time then."""
    send(old, 5)
    source = moving(old)
    taken = source.take(10)
    assert source.held().found == []
    source.finish([each.name for each in taken.found], nothing)
    source.close()
    assert old.topics() == []
    assert stopped_moves(old.session.engine()) == []


def nothing(_: object) -> None: ...


def test_a_run_that_ends_leaves_alone_what_the_next_one_has_begun(old: Queue, new: Queue) -> None:
    """It has read that it is still the one, and the next one begins then."""
    engine, second = old.session.engine(), moving(old)
    send(old, 1)
    first = source_of(engine)
    run_to_its_end = Adoption(first, new)
    run_to_its_end.run(nothing, lambda: False)
    send(old, 2)
    first.log._engine = Before(engine, "cancel", lambda: (second.held(), second.take(1)))  # type: ignore[assignment]
    first.close()
    assert len(second.take(10).found) == 1
    run(moving(old), new)
    assert bodies(new) == [0, 1]
    assert bodies(old) == [0], "the key of the first one is taken"


def test_a_killed_run_that_is_still_taking_over_hides_nothing(old: Queue, new: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives another time to what is noted, just before the next one does."""
    monkeypatch.setattr(move, "QUIET", 0.0)
    sent = send(old, 5)
    killed(old, new, "taken")
    late = killed_in(old, new, "reschedule")
    engine: Any = Before(old.session.engine(), "reschedule", late.acts)
    assert move.give_all_back(engine, "old").messages == 5
    assert {each.due for each in old.messages("mail")} == {each.due for each in sent}
    assert stopped_moves(old.session.engine()) == []


def test_a_run_that_is_killed_late_in_its_pass_is_not_called_old(
    old: Queue, new: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it gave back early is not what it has."""
    monkeypatch.setattr(adoption, "SURE", 60.0)
    here = send(old, 2)
    new.send("mail", "theirs", key="k0", delay="2h")
    new.send("mail", "theirs", key="k1", delay="2h")
    source = moving(old)
    early = source.take(10)
    source.give_back([each.name for each in early.found])
    engine = old.session.engine()
    for each in engine.scan(MOVING, "scheduled", 1_000).messages:
        if (each.key or "").startswith("batch/"):
            engine.reschedule([Move(Ref(id=each.id), at=each.due - 3_600_000)])
    assert source.held().age < 60
    assert {each.due for each in old.messages("mail")} == {each.due for each in here}
