"""Dead letters on their way: their users purge or requeue them at each step of it, and what is not touched moves."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bide import Queue
from bide.adopt.queue.transfer_log import stopped_moves
from tests.move.meddling import Killed, Lossy, die, source_of
from tests.move.test_meanwhile import Step, killed, moving, run


def handled(old: Queue, ids: Sequence[str]) -> None:
    old.requeue("mail", ids=ids)
    for delivery in old.receive("mail", limit=len(ids)):
        delivery.ack()


Change = Callable[[Queue, Sequence[str]], object]
CHANGES: dict[str, Change] = {
    "purged": lambda old, ids: old.purge("mail", state="dead", ids=ids),
    "alive": lambda old, ids: old.requeue("mail", ids=ids, delay="1h"),
    "requeued and done": handled,
}
STEPS = ["taken", "finishing"]
each_change = pytest.mark.parametrize("change", CHANGES)
one_or_all = pytest.mark.parametrize("which", [["a"], ["a", "b", "c"]], ids="".join)
one_or_two = pytest.mark.parametrize("which", [["b"], ["a", "c"]], ids="".join)


def bury(queue: Queue, topic: str = "mail", named: str = "abc") -> None:
    queue.send_many(topic, list(named))
    for delivery in queue.receive(topic, limit=len(named)):
        delivery.bury("no use")


def states(queue: Queue) -> Counter[tuple[str, str]]:
    """Of all messages, by their bodies: which are there, and how often."""
    return Counter((each.body, each.state) for topic in queue.topics() for each in queue.messages(topic, limit=1_000))


def changing(old: Queue, change: str, which: list[str]) -> Step:
    ids = [each.id for each in old.messages("mail") if each.body in which]

    def changes() -> None:
        CHANGES[change](old, ids)

    return changes


def what_became(change: str, which: list[str]) -> Counter[tuple[str, str]]:
    touched = ["scheduled"] if change == "alive" else []
    return Counter((name, state) for name in "abc" for state in (touched if name in which else ["dead"]))


def killed_before_the_purge(old: Queue, new: Queue) -> None:
    with pytest.raises(Killed):
        run(source_of(Lossy(old.session.engine(), "purge", Killed(), acts=False)), new)


def nothing_is_left(old: Queue) -> bool:
    return old.topics() == [] and stopped_moves(old.session.engine()) == [] and old.stats().scheduled == 0


@pytest.mark.parametrize("topics", [("mail", "orders"), ("mail", "orders", "news")], ids=len)
def test_dead_letters_of_several_topics_all_move(old: Queue, new: Queue, topics: Sequence[str]) -> None:
    for topic in topics:
        bury(old, topic, "ab")
    adoption = run(moving(old), new)
    assert adoption.adopted == 2 * len(topics)
    assert nothing_is_left(old)
    for topic in topics:
        assert sorted((each.body, each.state) for each in new.messages(topic)) == [("a", "dead"), ("b", "dead")]


@each_change
@one_or_all
@pytest.mark.parametrize("step", STEPS)
def test_a_dead_letter_that_is_changed_on_its_way_takes_no_other_with_it(
    old: Queue, new: Queue, change: str, which: list[str], step: str
) -> None:
    bury(old)
    source, changes = moving(old), changing(old, change, which)

    def once() -> None:
        source.taken = source.finishing = lambda: None
        changes()

    setattr(source, step, once)
    run(source, new)
    run(moving(old), new)
    assert states(new) == what_became(change, which)
    assert nothing_is_left(old)


@each_change
@one_or_all
@pytest.mark.parametrize("step", STEPS)
def test_a_dead_letter_that_is_changed_after_a_kill_takes_no_other_with_it(
    old: Queue, new: Queue, change: str, which: list[str], step: str
) -> None:
    bury(old)
    killed(old, new, step)
    changing(old, change, which)()
    run(moving(old), new)
    assert states(new) == what_became(change, which)
    assert nothing_is_left(old)


@each_change
@one_or_two
def test_a_run_that_was_killed_just_before_the_end_has_not_ended_what_its_user_did(
    old: Queue, new: Queue, change: str, which: list[str]
) -> None:
    """As long as one of them is there as it was: they end together."""
    bury(old)
    killed_before_the_purge(old, new)
    changing(old, change, which)()
    run(moving(old), new)
    assert states(new) == what_became(change, which)
    assert nothing_is_left(old)


@each_change
@one_or_two
def test_nor_has_it_ended_what_its_user_does_while_the_next_run_has_them(
    old: Queue, new: Queue, change: str, which: list[str]
) -> None:
    bury(old)
    killed_before_the_purge(old, new)
    source, changes = moving(old), changing(old, change, which)

    def once() -> None:
        source.finishing = lambda: None
        changes()

    source.finishing = once
    run(source, new)
    run(moving(old), new)
    assert states(new) == what_became(change, which)
    assert nothing_is_left(old)


@each_change
@one_or_two
def test_what_its_user_ends_on_its_way_is_not_what_a_run_notes_before_it_is_killed(
    old: Queue, new: Queue, change: str, which: list[str]
) -> None:
    bury(old)
    source, changes = moving(old), changing(old, change, which)

    def once() -> None:
        changes()
        source._ending._engine = Lossy(old.session.engine(), "purge", Killed(), acts=False)  # type: ignore[assignment]

    source.finishing = once
    with pytest.raises(Killed):
        run(source, new)
    run(moving(old), new)
    assert states(new) == what_became(change, which)
    assert nothing_is_left(old)


@pytest.mark.parametrize("named", ["a", "ab", "abc"])
def test_nor_what_a_run_that_is_killed_then_has_no_time_to_note(
    old: Queue, new: Queue, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has noted what it was going to end; and what is left of that gets a new life, so nothing is there as it was."""
    bury(old, named=named)
    source, purged, live = moving(old), changing(old, "purged", ["a"]), changing(old, "alive", ["b", "c"])
    source.finishing = purged
    monkeypatch.setattr(source.log, "add_changed", die)
    with pytest.raises(Killed):
        run(source, new)
    live()
    run(moving(old), new)
    assert states(new) == Counter((name, "scheduled") for name in named[1:])
    assert nothing_is_left(old)


def test_what_a_run_has_purged_before_it_is_killed_stays_in_the_new_queue(old: Queue, new: Queue) -> None:
    bury(old)
    bury(old, "orders", "xyz")
    engine: Any = Lossy(old.session.engine(), "purge", Killed(), acts=True)
    with pytest.raises(Killed):
        run(source_of(engine), new)
    assert old.topics() == ["orders"], "one batch has ended, and the other one has not"
    adoption = run(moving(old), new)
    assert (adoption.gone, adoption.late) == (0, 0)
    assert states(new) == Counter((name, "dead") for name in "abcxyz")
    assert nothing_is_left(old)


def test_dead_letters_that_are_given_back_are_as_they_were(old: Queue, new: Queue) -> None:
    bury(old)
    before = list(old.messages("mail"))
    source = moving(old)
    source.give_back([each.name for each in source.take(10).found])
    source.close()
    assert list(old.messages("mail")) == before
    assert old.stats().scheduled == 0
    run(moving(old), new)
    assert states(new) == what_became("purged", [])
