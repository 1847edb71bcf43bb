"""A run is killed while it ends messages in the old queue: what their users do until the next run counts."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from bide import Outgoing, Queue
from bide.adopt.adoption import Adoption
from bide.adopt.queue.held import Last, ended_by_others, left_of
from bide.adopt.queue.messages import Able
from bide.adopt.queue.move import QueueSource
from bide.adopt.queue.transfer_log import BatchStep, ListedMark, TransferBatch, TransferLog
from bide.engines.base import MAX_BATCH
from bide.errors import Unavailable
from bide.types import CancelResult
from tests.move.meddling import Killed, Lossy
from tests.move.test_meanwhile import bodies, killed, moving, run, send


@pytest.fixture
def spread(redis_url: str) -> Iterator[Queue]:
    with Queue(f"{redis_url}?shards=3") as queue:
        yield queue


def killed_at(old: Queue, new: Queue, verb: str, *, acts: bool) -> None:
    engine = Lossy(old.session.engine(), verb, Killed(), acts=acts)
    with pytest.raises(Killed):
        run(QueueSource(engine, "old", re.compile(".*"), Able(), "new"), new)  # type: ignore[arg-type]


def its_user_ends_what_a_failed_run_has_left(queue: Queue, new: Queue, source: QueueSource, id: str) -> None:
    """And the next run takes the copy back."""
    with pytest.raises(Unavailable):
        run(source, new)
    assert queue.cancel(id) is CancelResult.CANCELLED
    assert run(moving(queue), new).gone == 1
    assert bodies(new) == []


@pytest.mark.parametrize("which", [slice(0, 1), slice(0, 5)], ids=["one", "all"])
def test_what_is_cancelled_after_a_kill_just_before_the_end_is_not_delivered(old: Queue, new: Queue, which: slice) -> None:
    sent = send(old, 5)
    killed_at(old, new, "cancel", acts=False)
    assert len(bodies(new)) == 5
    assert [old.cancel(each.id) for each in sent[which]] == [CancelResult.CANCELLED] * len(sent[which])
    adoption = run(moving(old), new)
    assert bodies(new) == list(range(5))[which.stop :]
    assert adoption.gone == which.stop
    assert old.stats().scheduled == 0


def test_what_was_ended_before_a_kill_stays_in_the_new_queue(old: Queue, new: Queue) -> None:
    sent = send(old, 5)
    killed_at(old, new, "cancel", acts=True)
    assert [old.cancel(each.id) for each in sent] == [CancelResult.GONE] * 5
    adoption = run(moving(old), new)
    assert (adoption.gone, adoption.late) == (0, 0)
    assert bodies(new) == list(range(5))


def test_batches_that_end_apart_are_told_apart(redis_url: str, new: Queue) -> None:
    """Redis ends 250 messages as a whole, and no more."""
    with Queue(redis_url) as old:
        sent = old.send_many("mail", [Outgoing(n, delay=3_600 + n) for n in range(600)])
        engine = Lossy(old.session.engine(), "cancel", Killed(), acts=True)
        source = QueueSource(engine, "old", re.compile(".*"), Able(), "new")  # type: ignore[arg-type]
        with pytest.raises(Killed):
            run(source, new)
        there = {each.id for each in old.messages("mail", limit=1_000)}
        assert 300 < len(there) < 400, "one batch of three has ended"
        ended = [n for n, each in enumerate(sent) if each.id in there][::7]
        assert {old.cancel(sent[n].id) for n in ended} == {CancelResult.CANCELLED}
        adoption = run(moving(old), new)
        assert adoption.gone == len(ended)
        assert bodies(new) == [n for n in range(600) if n not in ended]


def test_the_steps_of_one_run_are_told_apart(old: Queue, new: Queue) -> None:
    """It goes on with what an earlier one had, two at a time, and is killed when it has ended four of five."""
    sent = send(old, 5)
    killed(old, new, "finishing")
    source, steps = moving(old), list[int]()

    def dies_at_last() -> None:
        steps.append(len(steps))
        if len(steps) == 2:
            raise Killed

    source.finished = dies_at_last
    with pytest.raises(Killed):
        Adoption(source, new, batch=2).run(lambda done: None, lambda: False)
    assert bodies(old) == [4]
    adoption = run(moving(old), new)
    assert (adoption.adopted, adoption.gone) == (1, 0)
    assert {each.body: each.due for each in new.messages("mail")} == {n: each.due for n, each in enumerate(sent)}
    assert old.stats().scheduled == 0


def test_over_several_shards_what_is_gone_is_taken_for_moved(spread: Queue, new: Queue) -> None:
    """They do nothing as a whole, so nobody can tell; and a message that was moved must not be lost."""
    assert spread.session.engine().capabilities.together == 1
    send(spread, 30)
    killed_at(spread, new, "cancel", acts=True)
    adoption = run(moving(spread), new)
    assert (adoption.gone, adoption.late) == (0, 0)
    assert bodies(new) == list(range(30))


def test_a_look_that_fails_before_the_end_leaves_no_note_of_it(spread: Queue, new: Queue) -> None:
    [sent] = send(spread, 1)
    source = moving(spread)
    engine: Any = spread.session.engine()

    def fail() -> None:
        source._ending._get = Lossy(engine, "get", Unavailable("away"), acts=False).get

    source.finishing = fail
    its_user_ends_what_a_failed_run_has_left(spread, new, source, sent.id)


def test_a_run_that_can_not_learn_whether_it_is_still_the_one_leaves_no_note_of_the_end(spread: Queue, new: Queue) -> None:
    [sent] = send(spread, 1)
    source = moving(spread)
    engine: Any = spread.session.engine()

    def fail() -> None:
        source.log._engine = Lossy(engine, "get", Unavailable("away"), acts=False)  # type: ignore[assignment]

    source.finishing = fail
    its_user_ends_what_a_failed_run_has_left(spread, new, source, sent.id)


def test_a_step_of_which_something_is_left_was_not_done() -> None:
    steps = [BatchStep(["a", "b"]), BatchStep(["c"]), BatchStep(["d", "e"], "its mark")]
    assert ended_by_others("abcdef", steps, []) == ["d", "e", "f"]
    assert ended_by_others("abcdef", steps, ["b"]) == ["a", "b", "d", "e", "f"]


def test_of_two_batches_that_name_a_message_the_one_that_was_ending_it_counts() -> None:
    mark = ListedMark("m", "print", "mail", None, dead=False, due=0, attempt=0)
    moved, noted = TransferBatch("moved", [mark], noted=1, steps=[BatchStep(["m"])]), TransferBatch("noted", [mark], noted=2)
    last = Last.of([noted, moved])
    assert (last.has["m"], last.ends["m"]) == ("noted", "moved")
    left = left_of(noted, lambda ids: [None for _ in ids], last)
    assert (left.held, left.changed, left.known) == ([], [], [mark]), "the other one has ended it, and nobody else"


def test_all_notes_are_read_however_many_there_are(old: Queue) -> None:
    log = TransferLog(old.session.engine(), "new")
    log.begin()
    for number in range(MAX_BATCH + 100):
        log.add([TransferBatch(f"b{number}", [])])
    assert len(log.read()) == MAX_BATCH + 100
    log.take_off(log.read())
    assert log.read() == []


def test_a_change_after_a_kill_that_comes_too_late_is_told(old: Queue, new: Queue) -> None:
    sent = [old.send("mail", n) for n in range(3)]
    killed(old, new, "finishing")
    for delivery in new.receive("mail", limit=2):
        delivery.ack()
    assert {old.cancel(each.id) for each in sent} == {CancelResult.CANCELLED}
    adoption = run(moving(old), new)
    assert (adoption.adopted, adoption.gone, adoption.late) == (0, 1, 2)
    again = run(moving(old), new)
    assert (again.gone, again.late) == (0, 0)
