"""A queue that does nothing as a whole, as a Redis of several shards: what somebody does to what is on its way from there."""

import re
from typing import Any

import pytest

from bide import Outgoing, Queue
from bide.adopt.queue.messages import Able
from bide.adopt.queue.transfer_log import OtherMove, stopped_moves
from bide.types import CancelResult, RescheduleResult, Sent
from tests.move.meddling import Apart, Before, Killed, die, source_of
from tests.move.test_meanwhile import Meddled, bodies, nothing, run
from tests.move.test_two_movers import DAY, HOUR

pytestmark = pytest.mark.parametrize("old", ["sqlite"], indirect=True)


def apart(engine: Any) -> Meddled:
    return Meddled(Apart(engine), "old", re.compile(".*"), Able(), "new")  # type: ignore[arg-type]


def sent_to(old: Queue, count: int = 4) -> list[Sent]:
    return old.send_many("mail", [Outgoing(n, delay=HOUR + n) for n in range(count)])


def move(old: Queue, new: Queue) -> None:
    run(apart(old.session.engine()), new)


def bury(old: Queue) -> None:
    old.send_many("mail", list(range(4)))
    for delivery in old.receive("mail", limit=4):
        delivery.bury("no use")


class HalfEnded:
    """Of what is ended at once, one shard ends its part; then the process is killed."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def cancel(self, refs: Any, **options: Any) -> Any:
        if len(refs) == 1:
            return self._engine.cancel(refs, **options)
        self._engine.cancel(refs[: len(refs) // 2], **options)
        raise Killed

    def purge(self, topic: str, state: Any, ids: Any) -> Any:
        self._engine.purge(topic, state, ids[: len(ids) // 2])
        raise Killed


@pytest.mark.parametrize("step", ["taken", "finishing"])
def test_what_is_rescheduled_on_its_way_moves_with_that_time(old: Queue, new: Queue, step: str) -> None:
    sent = sent_to(old)
    source = apart(old.session.engine())

    def rescheduled() -> None:
        setattr(source, step, nothing)
        assert old.reschedule(sent[1], delay="10d") is RescheduleResult.MOVED

    setattr(source, step, rescheduled)
    run(source, new)
    move(old, new)
    due = {each.body: each.due for each in new.messages("mail")}
    assert bodies(new) == [0, 1, 2, 3]
    assert due.pop(1) > sent[1].due + 9 * DAY
    assert due == {n: sent[n].due for n in (0, 2, 3)}
    assert old.stats().scheduled == 0


@pytest.mark.parametrize("step", ["taken", "finishing"])
def test_what_is_cancelled_on_its_way_is_not_delivered(old: Queue, new: Queue, step: str) -> None:
    sent = sent_to(old)
    source = apart(old.session.engine())

    def cancelled() -> None:
        setattr(source, step, nothing)
        assert old.cancel(sent[1]) is CancelResult.CANCELLED

    setattr(source, step, cancelled)
    assert run(source, new).gone == 1
    move(old, new)
    assert bodies(new) == [0, 2, 3]
    assert old.stats().scheduled == 0


def test_what_one_shard_has_ended_before_a_kill_stays_in_the_new_queue(old: Queue, new: Queue) -> None:
    """And the other shard has not ended its part: that does not tell whose the gone ones were."""
    sent = sent_to(old)
    with pytest.raises(Killed):
        run(source_of(Apart(HalfEnded(old.session.engine()))), new)
    assert bodies(old) == [2, 3]
    move(old, new)
    assert {each.body: each.due for each in new.messages("mail")} == {n: each.due for n, each in enumerate(sent)}
    assert new.stats("mail").pending == 4
    assert stopped_moves(old.session.engine()) == []
    assert old.stats().scheduled == 0


def test_nor_does_what_one_shard_has_left_of_the_dead_letters_tell(old: Queue, new: Queue) -> None:
    """They are there as they were, and were to be purged with the ones that are gone."""
    bury(old)
    with pytest.raises(Killed):
        run(source_of(Apart(HalfEnded(old.session.engine()))), new)
    assert len(bodies(old)) == 2
    move(old, new)
    assert [(each.state, each.attempt) for each in new.messages("mail")] == [("dead", 1)] * 4
    assert bodies(new) == [0, 1, 2, 3]
    assert old.topics() == []


def test_nor_does_it_when_the_next_run_finds_that_only_as_it_ends_them(old: Queue, new: Queue) -> None:
    """What the killed run has asked for takes effect late, and at one shard, when the next run has read what is there."""
    bury(old)
    with pytest.raises(Killed):
        run(source_of(Before(Apart(old.session.engine()), "purge", die, 1)), new)
    source = apart(old.session.engine())

    def acts_late() -> None:
        source.finishing = nothing
        old.purge("mail", state="dead", ids=[each.id for each in old.messages("mail", limit=2)])

    source.finishing = acts_late
    run(source, new)
    move(old, new)
    assert bodies(new) == [0, 1, 2, 3]
    assert old.topics() == []


def test_what_two_runs_move_away_at_once_keeps_its_time(old: Queue, new: Queue) -> None:
    """The first one has been told that it is still the one; then the second one takes over, and has them."""
    sent = sent_to(old)
    engine = old.session.engine()
    second = apart(engine)

    def takes_all() -> None:
        second.held()
        assert len(second.take(10).found) == len(sent)

    with pytest.raises(OtherMove, match="taken over"):
        run(source_of(Before(Apart(engine), "reschedule", takes_all, 1)), new)
    move(old, new)
    assert {each.body: each.due for each in new.messages("mail")} == {n: each.due for n, each in enumerate(sent)}
    assert old.stats().scheduled == 0


def test_what_a_run_has_ended_for_its_successor_is_moved_once(old: Queue, new: Queue) -> None:
    """All that it has, in steps of three; the second one begins between them."""
    sent = sent_to(old, 8)
    source = apart(old.session.engine())

    def begins() -> None:
        source.finished = nothing
        apart(old.session.engine()).held()

    source.finished = begins
    with pytest.raises(OtherMove, match="taken over"):
        run(source, new, batch=3)
    move(old, new)
    assert {each.body: each.due for each in new.messages("mail")} == {n: each.due for n, each in enumerate(sent)}
    assert new.stats("mail").pending == 8
    assert old.stats().scheduled == 0


def test_dead_letters_of_which_one_shard_has_ended_its_part_all_move_when_there_is_one_shard(old: Queue, new: Queue) -> None:
    bury(old)
    engine = old.session.engine()
    with pytest.raises(Killed):
        run(apart(HalfEnded(engine)), new)
    assert len(list(old.messages("mail"))) == 2
    run(source_of(engine), new)
    assert sorted(bodies(new)) == [0, 1, 2, 3]
    assert old.stats().scheduled == 0


def test_what_is_moved_away_after_another_run_has_looked_for_it_comes_back(old: Queue, new: Queue) -> None:
    sent = sent_to(old)
    second = apart(old.session.engine())
    first = source_of(Before(Apart(old.session.engine()), "reschedule", second.held, 1))
    with pytest.raises(OtherMove):
        run(first, new)
    assert {each.due for each in old.messages("mail")} == {each.due for each in sent}
    second.settle()
    second.close()
    move(old, new)
    assert {each.due for each in new.messages("mail")} == {each.due for each in sent}
    assert old.stats().scheduled == 0
