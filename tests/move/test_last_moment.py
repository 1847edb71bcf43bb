"""A message that is changed just before it ends is not ended; and what a run does when it has been taken over has no effect."""

from collections.abc import Callable
from typing import Any

import pytest

from bide import Outgoing, Queue
from bide.adopt.queue import giving_back
from bide.adopt.queue.notes import stopped_moves
from bide.errors import BideError
from bide.types import RescheduleResult, Sent
from tests.move.test_meanwhile import bodies, moving, new, old, run, send
from tests.move.test_zombies import Before, killed_in, source_of

__all__ = ["new", "old"]

CHANGES: dict[str, Callable[[Queue, Sent], object]] = {
    "cancelled": lambda old, sent: old.cancel(sent),
    "rescheduled": lambda old, sent: old.reschedule(sent, delay="5h"),
    "replaced": lambda old, sent: old.send("mail", ["new"], key="k", delay="5h", if_exists="replace"),
    "put off": lambda old, sent: old.send("mail", ["new"], key="k", delay="5h", if_exists="later"),
    "merged": lambda old, sent: old.send("mail", "b", key="k", delay="5h", if_exists="merge"),
}
LEFT: dict[str, list[Any]] = {
    "cancelled": [["other"]],
    "rescheduled": [["a"], ["other"]],
    "replaced": [["new"], ["other"]],
    "put off": [["new"], ["other"]],
    "merged": [["a", "b"], ["other"]],
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_just_before_it_ends_counts(old: Queue, new: Queue, change: str) -> None:
    sent = old.send("mail", "a", key="k", delay="2h", if_exists="merge")
    old.send("mail", ["other"], delay="2h")
    run(source_of(Before(old.session.engine(), "cancel", lambda: CHANGES[change](old, sent))), new)
    run(moving(old), new)
    assert bodies(new) == LEFT[change]
    assert new.stats("mail").pending == len(LEFT[change])
    assert old.topics() == []
    if change == "rescheduled":
        [found] = [each for each in new.messages("mail") if each.body == ["a"]]
        assert found.due > sent.due + 10_000_000


def test_what_is_rescheduled_just_before_it_is_given_back_keeps_that_time(old: Queue, new: Queue) -> None:
    sent = old.send("mail", "here", key="k", delay="2h")
    new.send("mail", "there", key="k", delay="2h")
    said: list[RescheduleResult] = []
    engine = Before(old.session.engine(), "reschedule", lambda: said.append(old.reschedule(sent, delay="5h")))
    source = source_of(Again(engine, old))
    run(source, new)
    assert said == [RescheduleResult.MOVED]
    [left] = old.messages("mail")
    assert sent.due + 10_000_000 < left.due < sent.due + 12_000_000


class Again:
    """An engine where something happens before the second call of reschedule, which brings messages back."""

    def __init__(self, armed: Before, queue: Queue) -> None:
        self._armed, self._engine, self._calls = armed, queue.session.engine(), 0

    def __getattr__(self, name: str) -> Any:
        if name == "reschedule":
            self._calls += 1
            if self._calls == 2:
                return getattr(self._armed, name)
        return getattr(self._engine, name)


@pytest.mark.parametrize("verb", ["reschedule", "cancel"])
def test_what_a_killed_run_still_does_after_a_give_back_has_no_effect(
    old: Queue, new: Queue, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(giving_back, "QUIET", 0.0)
    sent = send(old, 5)
    late = killed_in(old, new, verb)
    giving_back.give_all_back(old.session.engine(), "old")
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
    monkeypatch.setattr(giving_back, "QUIET", 0.0)
    sent = send(old, 5)
    engine = old.session.engine()
    source = source_of(Before(engine, "cancel", lambda: giving_back.give_all_back(engine, "old")))
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
