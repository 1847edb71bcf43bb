"""A verb of the old queue that fails on the way, and changes that leave a message where the mover put it."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bide import Queue
from bide.adopt.adoption import Adoption
from bide.adopt.copies import InDoubt
from bide.adopt.queue.transfer_log import FOR_GOOD, OtherMove, TransferLog, batches_of, stopped_moves
from bide.engines.base import Move, NewMessage, Ref
from bide.errors import OutcomeUnknown, Unavailable
from bide.queue.schedules.records import MOVING
from tests.move.meddling import Before, Lossy, source_of
from tests.move.test_meanwhile import bodies, killed, moving, run, send


@pytest.mark.parametrize("acts", [True, False])
@pytest.mark.parametrize("verb", ["put", "reschedule", "get", "cancel"])
@pytest.mark.parametrize("error", [OutcomeUnknown("?"), Unavailable("no"), KeyboardInterrupt()], ids=lambda e: type(e).__name__)
def test_a_verb_that_fails_leaves_what_the_next_run_needs(
    old: Queue, new: Queue, verb: str, error: BaseException, acts: bool
) -> None:
    sent = send(old)
    with pytest.raises(type(error)):
        run(source_of(Lossy(old.session.engine(), verb, error, acts=acts)), new)
    run(moving(old), new)
    assert bodies(new) == [0, 1, 2]
    assert {each.due for each in new.messages("mail")} == {each.due for each in sent}
    assert old.topics() == []
    assert old.stats().scheduled == 0


def test_a_run_that_can_not_read_what_an_earlier_one_left_keeps_its_record(old: Queue, new: Queue) -> None:
    sent = send(old)
    killed(old, new, "taken")
    real = old.session.engine()
    engine = Lossy(real, "get", Unavailable("no"), acts=False)
    refs: list[Any] = []

    class Second:
        """The record can be read, and then nothing."""

        def __getattr__(self, name: str) -> Any:
            if name == "get" and not refs:
                refs.append(name)
                return real.get
            return getattr(engine, name)

    with pytest.raises(Unavailable):
        run(source_of(Second()), new)
    run(moving(old), new)
    assert {each.due for each in new.messages("mail")} == {each.due for each in sent}
    assert old.stats().scheduled == 0


def test_what_another_release_has_noted_in_its_own_way_is_left_to_it(old: Queue, new: Queue) -> None:
    sent = send(old)
    killed(old, new, "finishing")
    engine = old.session.engine()
    [batch] = batches_of(engine)[0]
    [note] = engine.put([NewMessage(MOVING, b"[[0]]", delay=FOR_GOOD, key=f"ending/{batch.name}/a run")])
    assert engine.cancel([Ref(id=sent[0].id)])
    for _ in range(2):
        with pytest.raises(OtherMove, match="another release"):
            run(moving(old), new)
    assert bodies(new) == [0, 1, 2]
    assert [each.name for each in stopped_moves(engine)] == ["moving"]
    # When that release has ended its move
    engine.cancel([Ref(id=each) for each in (sent[1].id, sent[2].id, note.id, *batch.notes)])
    run(moving(old), new)
    assert bodies(new) == [0, 1, 2]
    assert old.stats().scheduled == 0


def test_a_give_back_that_fails_is_given_back_by_the_next_run(old: Queue, new: Queue) -> None:
    sent = send(old)
    new.send("mail", "there", delay=60, key="k1")
    engine = Lossy(old.session.engine(), "reschedule", Unavailable("no"), acts=False, times=0)
    source = source_of(engine)
    taken = source.take(10).found
    engine._times = 1
    with pytest.raises(Unavailable):
        source.give_back([each.name for each in taken])
    source.close()
    run(moving(old), new)
    assert bodies(old) == [1]
    assert {each.due for each in old.messages("mail")} == {sent[1].due}


def changes() -> Sequence[tuple[str, Callable[[Queue], object], Any]]:
    def later(queue: Queue) -> object:
        return queue.send("mail", "later", delay=7_200, key="k1", if_exists="later")

    def replaced(queue: Queue) -> object:
        return queue.send("mail", "replaced", delay=7_200, key="k1", if_exists="replace")

    def moved(queue: Queue) -> object:
        return queue.reschedule(topic="mail", key="k1", delay="3h")

    def from_due(queue: Queue) -> object:
        return queue.session.engine().reschedule([Move(Ref(topic="mail", key="k1"), delay=60_000, origin="due")])

    return [("later", later, "later"), ("replaced", replaced, "replaced"), ("moved", moved, 1), ("from due", from_due, 1)]


@pytest.mark.parametrize(("name", "act", "body"), changes(), ids=lambda each: each if isinstance(each, str) else "")
@pytest.mark.parametrize("step", ["before", "taken", "finishing"])
def test_a_change_moves_along_whenever_it_comes(old: Queue, new: Queue, name: str, act: Any, body: Any, step: str) -> None:
    send(old)
    source = moving(old)

    def once() -> None:
        source.taken = source.finishing = lambda: None
        act(old)

    if step == "before":
        source._engine = Before(old.session.engine(), "reschedule", once)  # type: ignore[assignment]
    else:
        setattr(source, step, once)
    run(source, new)
    run(moving(old), new)
    found = new.get(topic="mail", key="k1")
    assert found is not None
    assert found.body == body
    assert len(list(new.messages("mail"))) == 3
    assert old.stats().scheduled == 0


def test_two_batches_are_given_back_when_the_other_queue_takes_nothing(old: Queue, new: Queue) -> None:
    sent = send(old, 3_000)
    engine = new.session.engine()
    engine.put = refuse  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="full"):
        run(moving(old), new)
    del engine.put
    assert old.stats("mail").scheduled == 3_000
    assert old.stats().scheduled == 3_000
    run(moving(old), new)
    assert new.stats("mail").scheduled == len(sent)
    assert old.stats().scheduled == 0


def refuse(*_: Any, **__: Any) -> Any:
    time.sleep(1)  # the next batch is taken meanwhile
    raise Unavailable("full")


@pytest.mark.parametrize("doubt", ["give-back", "forget"])
def test_more_than_a_batch_in_doubt_is_given_back_or_forgotten(
    old: Queue, new: Queue, doubt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(old, 3_000)
    killed_run = moving(old)
    taken = sum(len(killed_run.take(1_000).found) for _ in range(2))
    assert taken > 1_000
    monkeypatch.setattr(TransferLog, "age", lambda self, batches: 3_600.0 if batches else 0.0)
    source = moving(old)
    adoption = Adoption(source, new, doubt=doubt)
    adoption.resume()
    source.close()
    assert old.stats().scheduled == (3_000 if doubt == "give-back" else 3_000 - taken)
    assert old.stats("mail").scheduled == old.stats().scheduled


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_run_that_ends_when_it_has_taken_copies_back_leaves_no_question(
    old: Queue, new: Queue, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first, *_] = send(old, 1)
    killed(old, new, "finishing")
    old.cancel(first)
    second = moving(old)
    adoption = Adoption(second, new)
    if how == "stopped":
        adoption.run(lambda _: None, lambda: True)
        second.close()
        assert stopped_moves(old.session.engine()) == []
    else:
        adoption.resume()
    monkeypatch.setattr(TransferLog, "age", lambda self, batches: 3_600.0 if batches else 0.0)
    for _ in range(2 if how == "killed" else 0):  # nobody knows whether that was done
        with pytest.raises(InDoubt, match="while it moved 1 message"):
            run(moving(old), new)
    run(moving(old), new, doubt="forget")
    assert (old.stats().scheduled, list(new.messages("mail"))) == (0, [])
