"""Two movers of one queue at once, and what others do between a kill and the next run."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from bide import Outgoing, Queue
from bide.adopt.queue.messages import Able
from bide.adopt.queue.move import QueueSource
from bide.adopt.queue.transfer_log import OtherMove, TransferBatch, TransferLog, batches_of
from bide.adopt.source import EarlierRun, FoundEntry
from bide.engines.base import Ref
from bide.types import CancelResult
from tests.move.meddling import After, Apart, Before, Killed
from tests.move.test_meanwhile import bodies, killed, moving, run, send

HOUR, DAY = 3_600, 86_400_000


def sly_source(old: Queue, verb: str, act: Callable[[], object], call: int) -> QueueSource:
    return QueueSource(Before(old.session.engine(), verb, act, call), "old", re.compile(".*"), Able(), "new")  # type: ignore[arg-type]


@pytest.mark.parametrize("old", ["sqlite"], indirect=True)
@pytest.mark.parametrize("call", range(1, 7))
@pytest.mark.parametrize("verb", ["put", "reschedule", "get", "cancel", "scan"])
def test_a_second_mover_that_runs_at_any_moment_of_the_first_loses_and_doubles_nothing(
    old: Queue, new: Queue, verb: str, call: int
) -> None:
    sent = send(old, 5)

    def other() -> None:
        with suppress(OtherMove):
            run(moving(old), new)

    with suppress(OtherMove):
        run(sly_source(old, verb, other, call), new)
    run(moving(old), new)
    found = list(new.messages("mail"))
    assert {each.key: each.due for each in found} == {f"k{n}": each.due for n, each in enumerate(sent)}
    assert len(found) == len(sent)
    assert old.topics() == []
    assert old.stats().scheduled == 0


@pytest.mark.parametrize("old", ["sqlite"], indirect=True)
@pytest.mark.parametrize("call", range(1, 7))
@pytest.mark.parametrize("verb", ["put", "reschedule", "get", "cancel", "scan"])
@pytest.mark.parametrize("after", ["nothing", "a kill"])
def test_a_second_mover_that_begins_at_any_moment_of_the_first_loses_and_doubles_nothing(
    old: Queue, new: Queue, verb: str, call: int, after: str
) -> None:
    """After a kill, the first one ends what there was in two steps."""
    sent = send(old, 5)
    if after == "a kill":
        killed(old, new, "finishing")
    second = moving(old)
    seen: list[EarlierRun] = []

    def begin() -> None:
        with suppress(OtherMove):
            seen.append(second.held())  # and then the first one goes on, as far as it gets

    with suppress(OtherMove):
        run(sly_source(old, verb, begin, call), new, batch=3)
    real, second.held = second.held, lambda: seen.pop() if seen else real()  # type: ignore[method-assign]
    with suppress(OtherMove):
        run(second, new)
    run(moving(old), new)
    found = list(new.messages("mail"))
    assert {each.key: each.due for each in found} == {f"k{n}": each.due for n, each in enumerate(sent)}
    assert len(found) == len(sent)
    assert old.stats().scheduled == 0


def test_a_mover_that_is_slow_to_move_messages_away_sends_nothing(old: Queue, new: Queue) -> None:
    sent = send(old, 3)
    second = moving(old)
    with pytest.raises(OtherMove, match="has taken over"):
        run(sly_source(old, "reschedule", lambda: second.take(10), 1), new)
    second.close()
    run(moving(old), new)
    assert {each.due for each in new.messages("mail")} == {each.due for each in sent}
    assert old.stats().scheduled == 0


@pytest.mark.parametrize("ended", ["told", "killed"])
def test_a_mover_that_is_slow_to_note_what_it_takes_hides_nothing_that_its_successor_has(
    old: Queue, new: Queue, ended: str
) -> None:
    send(old, 3)
    second, taken = moving(old), list[FoundEntry]()
    engine = Before(old.session.engine(), "put", lambda: taken.extend(second.take(10).found), 2)

    def die() -> None:
        raise Killed

    slow = engine if ended == "told" else Before(engine, "get", die, 1)  # it has noted them, and asks whose they are
    with pytest.raises(OtherMove if ended == "told" else Killed):
        QueueSource(slow, "old", re.compile(".*"), Able(), "new").take(10)  # type: ignore[arg-type]
    batches, _ = batches_of(old.session.engine())
    assert len(batches) == (1 if ended == "told" else 2)
    third = moving(old)
    held = third.held()
    assert {each.name for each in held.found} == {each.name for each in taken}
    third.give_back([each.name for each in held.found])
    third.held()
    third.close()
    assert len(list(old.messages("mail"))) == 3
    assert old.stats().scheduled == 3


def test_a_mover_that_another_has_taken_over_leaves_that_one_what_is_due(old: Queue, new: Queue) -> None:
    old.send_many("mail", [Outgoing(n) for n in range(5)])
    second = moving(old)
    first = QueueSource(After(old.session.engine(), "reschedule", second.held), "old", re.compile(".*"), Able(), "new")  # type: ignore[arg-type]
    with pytest.raises(OtherMove):
        run(first, new)
    assert old.receive("mail", limit=10) == [], "the second one has them"
    run(moving(old), new)
    assert bodies(new) == [0, 1, 2, 3, 4]


def test_of_two_that_begin_at_once_one_goes_on(old: Queue) -> None:
    first, second = (TransferLog(old.session.engine(), "new") for _ in range(2))
    slow = TransferLog(Before(old.session.engine(), "put", second.begin, 1), "new")  # type: ignore[arg-type]
    first.begin()
    slow.begin()
    assert [each.is_ours() for each in (first, second, slow)] == [False, False, True]
    with pytest.raises(OtherMove, match="has taken over"):
        second.add([TransferBatch("a", [])])
    slow.end()
    assert old.stats().scheduled == 0


def test_one_that_begins_and_is_slow_does_nothing_to_what_its_successor_has(old: Queue) -> None:
    engine, batch = old.session.engine(), TransferBatch("a", [])
    second = TransferLog(engine, "new")

    def takes_over() -> None:
        second.begin()
        second.add([batch])

    with suppress(OtherMove):
        TransferLog(Before(engine, "scan", takes_over, 2), "new").begin()  # type: ignore[arg-type]
    [note] = engine.get([Ref(id=batch.own)])
    assert note is not None
    assert note.due == batch.noted
    second.check()


def test_one_that_was_taken_over_leaves_the_notes_to_its_successor(old: Queue) -> None:
    engine, batch = old.session.engine(), TransferBatch("a", [])
    first, second = TransferLog(engine, "new"), TransferLog(engine, "new")
    first.begin()
    first.add([batch])
    [taken] = second.begin()
    with pytest.raises(OtherMove, match="has taken over"):
        first.take_off([batch])
    assert [each.name for each in second.read()] == ["a"]
    second.take_off([taken])
    second.end()
    assert old.stats().scheduled == 0


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("step", ["taken", "finishing", "finished"])
def test_what_is_cancelled_after_a_kill_is_not_delivered(old: Queue, new: Queue, step: str, keyed: bool) -> None:
    sent = [old.send("mail", n, delay=HOUR + n, key=f"k{n}" if keyed else None) for n in range(3)]
    killed(old, new, step)
    said = old.cancel(topic="mail", key="k1") if keyed else old.cancel(sent[1])
    adoption = run(moving(old), new)
    if step == "finished":  # it was in the new queue alone
        assert (said, bodies(new)) == (CancelResult.GONE, [0, 1, 2])
    else:
        assert (said, bodies(new), adoption.gone) == (CancelResult.CANCELLED, [0, 2], int(step == "finishing"))
    assert new.stats("mail").pending == len(bodies(new))
    assert old.stats().scheduled == 0


def test_thousands_that_are_cancelled_after_a_kill_are_not_delivered(old: Queue, new: Queue) -> None:
    sent = send(old, 2_900)
    killed(old, new, "finishing")  # two batches are sent, and a third is on its way
    assert new.stats("mail").pending > 1_000
    old.cancel_many(sent)
    assert run(moving(old), new).adopted == 0
    assert (new.stats("mail").pending, old.stats().scheduled) == (0, 0)


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("step", ["taken", "finishing"])
def test_what_is_given_a_new_time_after_a_kill_is_moved_once_with_that_time(
    old: Queue, new: Queue, step: str, keyed: bool
) -> None:
    sent = [old.send("mail", n, delay=HOUR + n, key=f"k{n}" if keyed else None) for n in range(3)]
    killed(old, new, step)
    old.reschedule(topic="mail", key="k1", delay="10d") if keyed else old.reschedule(sent[1], delay="10d")
    run(moving(old), new)
    assert bodies(new) == [0, 1, 2]
    due = {each.body: each.due for each in new.messages("mail")}
    assert (due[0], due[2]) == (sent[0].due, sent[2].due)
    assert due[1] - sent[1].due > 9 * DAY
    assert old.stats().scheduled == 0


def test_a_dead_letter_that_lives_again_after_a_kill_is_moved_once(old: Queue, new: Queue) -> None:
    old.send("mail", "dead", key="k")
    [delivery] = old.receive("mail")
    delivery.bury("no use")
    killed(old, new, "finishing")
    assert old.requeue("mail") == 1
    run(moving(old), new)
    assert [(each.body, each.state, each.key) for each in new.messages("mail")] == [("dead", "ready", "k")]


def test_a_dead_letter_that_lives_again_just_before_a_run_ends_it_and_is_killed_takes_no_other_with_it(
    old: Queue, new: Queue
) -> None:
    for name in ("lives", "stays"):
        old.send("mail", name)
        [delivery] = old.receive("mail")
        delivery.bury("no use")
    [lives, _] = old.messages("mail")

    def die() -> None:
        raise Killed

    engine = Before(old.session.engine(), "purge", lambda: old.requeue("mail", ids=[lives.id]), 1)
    with pytest.raises(Killed):
        run(QueueSource(After(engine, "purge", die), "old", re.compile(".*"), Able(), "new"), new)  # type: ignore[arg-type]
    assert [each.body for each in old.messages("mail")] == ["lives"]
    run(moving(old), new)
    assert {each.body: each.state for each in new.messages("mail")} == {"lives": "ready", "stays": "dead"}
    assert len(list(new.messages("mail"))) == 2
    assert old.stats().scheduled == 0


def test_a_message_that_took_the_key_in_the_new_queue_is_left_alone(old: Queue, new: Queue) -> None:
    send(old)
    killed(old, new, "taken")
    old.cancel(topic="mail", key="k1")
    new.send("mail", "theirs", delay=HOUR, key="k1")
    run(moving(old), new)
    assert len(list(new.messages("mail"))) == 3
    found = new.get(topic="mail", key="k1")
    assert found is not None
    assert found.body == "theirs"


def test_what_a_run_moves_away_when_another_one_has_come_and_gone_is_brought_back(old: Queue, new: Queue) -> None:
    sent = send(old)
    there = new.send("mail", "there", delay=HOUR, key="k1")
    engine = Apart(old.session.engine())

    def second() -> None:
        run(QueueSource(engine, "old", re.compile(".*"), Able(), "new"), new)  # type: ignore[arg-type]

    slow = Before(engine, "reschedule", second, 1)
    with pytest.raises(OtherMove):
        run(QueueSource(slow, "old", re.compile(".*"), Able(), "new"), new)  # type: ignore[arg-type]
    assert [(each.body, each.due) for each in old.messages("mail")] == [(1, sent[1].due)]
    new.cancel(there.id)
    run(moving(old), new)
    assert bodies(new) == [0, 1, 2]
    assert {each.due for each in new.messages("mail")} == {each.due for each in sent}
    assert old.stats().scheduled == 0


@pytest.mark.parametrize("keyed", [True, False])
def test_what_is_in_the_notes_of_two_runs_that_were_killed_is_moved_once(old: Queue, new: Queue, keyed: bool) -> None:
    sent = [old.send("mail", n, delay=HOUR + n, key=f"k{n}" if keyed else None) for n in range(3)]

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        run(sly_source(old, "reschedule", die, 1), new)  # the note is there, and the messages are not away
    killed(old, new, "taken")  # by a batch of its own
    third = moving(old)
    assert len(third.held().found) == 3
    assert min(each.due for each in old.messages("mail")) > max(each.due for each in sent) + 365 * DAY  # none is brought back
    run(moving(old), new)
    assert bodies(new) == [0, 1, 2]
    assert {each.due for each in new.messages("mail")} == {each.due for each in sent}
    assert old.stats().scheduled == 0


@pytest.mark.parametrize("step", ["taken", "finishing"])
@pytest.mark.parametrize("keyed", [True, False])
def test_what_was_noted_when_the_queue_had_several_shards_is_moved_when_it_has_one(
    old: Queue, new: Queue, step: str, keyed: bool
) -> None:
    sent = [old.send("mail", n, delay=HOUR + n, key=f"k{n}" if keyed else None) for n in range(20)]
    there = [new.send("mail", "there", delay=HOUR, key=f"k{n}") for n in range(10, 20)]
    engine: Any = old.session.engine()

    def die() -> None:
        raise Killed

    first = Before(Apart(engine), "get" if step == "taken" else "cancel", die, 1)
    with pytest.raises(Killed):
        run(QueueSource(first, "old", re.compile(".*"), Able(), "new"), new)  # type: ignore[arg-type]
    ended = sent[:8] if step == "taken" else []  # what is cancelled after a step of several shards is taken for moved
    old.cancel_many(ended)
    engine.capabilities = replace(engine.capabilities, together=4)
    run(moving(old), new)
    kept = sent[len(ended) : 10] if keyed else sent[len(ended) :]
    assert {each.body: each.due for each in new.messages("mail") if each.body != "there"} == {
        n: each.due for n, each in enumerate(sent) if each in kept
    }
    assert {each.due for each in old.messages("mail")} == {each.due for each in sent[10:] if keyed}
    assert len(list(new.messages("mail"))) == len(kept) + len(there)
    assert old.stats().scheduled == (10 if keyed else 0)
