"""A copy that somebody has changed in the new queue is theirs: it stays, whatever becomes of the message in the old one."""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from bide import Queue
from bide.adopt.copies import InDoubt
from bide.types import CancelResult
from tests.move.meddling import Before, Killed, die, source_of
from tests.move.test_meanwhile import bodies, moving, run

Act = Callable[[Queue], object]
THERE: dict[str, Act] = {
    "merged": lambda new: new.send("mail", "there", key="k", delay="2h", if_exists="merge"),
    "replaced": lambda new: new.send("mail", ["there"], key="k", delay="2h", if_exists="replace"),
    "sent anew with another time": lambda new: new.send("mail", ["a"], key="k", delay="5h", if_exists="replace"),
    "rescheduled": lambda new: new.reschedule(topic="mail", key="k", delay="5h"),
    "put off": lambda new: new.send("mail", ["there"], key="k", delay="2h", if_exists="later"),
}
HERE: dict[str, Act] = {
    "nothing": lambda old: None,
    "cancelled": lambda old: old.cancel(topic="mail", key="k"),
    "rescheduled": lambda old: old.reschedule(topic="mail", key="k", delay="3h"),
    "replaced": lambda old: old.send("mail", ["here"], key="k", delay="2h", if_exists="replace"),
    "merged": lambda old: old.send("mail", "here", key="k", delay="2h", if_exists="merge"),
}
LEFT: dict[str, list[Any]] = {
    "nothing": [],
    "cancelled": [],
    "rescheduled": [["a"]],
    "replaced": [["here"]],
    "merged": [["a", "here"]],
}

THEIRS = {"merged": ["a", "there"], "sent anew with another time": ["a"], "rescheduled": ["a"]}


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("there", THERE)
@pytest.mark.parametrize("here", HERE)
def test_a_copy_that_somebody_has_changed_there_stays(old: Queue, new: Queue, here: str, there: str, killed: bool) -> None:
    old.send("mail", "a", key="k", delay="2h", if_exists="merge")
    source = moving(old)

    def meanwhile() -> None:
        source.finishing = lambda: None
        THERE[there](new)
        HERE[here](old)
        if killed:
            raise Killed

    source.finishing = meanwhile
    if killed:
        with pytest.raises(Killed):
            run(source, new)
    else:
        run(source, new)
    again = run(moving(old), new)
    assert bodies(new) == [THEIRS.get(there, ["there"])]
    assert bodies(old) == LEFT[here]
    assert again.refused.total() == len(LEFT[here])
    assert again.late == int(killed and here != "nothing")
    assert old.stats().scheduled == len(LEFT[here])


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("there", [None, "rescheduled", "sent anew with another time"])
@pytest.mark.parametrize("here", ["cancelled", "rescheduled"])
def test_a_copy_that_came_with_an_attempt_is_told_from_one_that_was_tried_there(
    old: Queue, new: Queue, here: str, there: str | None, killed: bool
) -> None:
    old.send("mail", ["a"], key="k")
    [delivery] = old.receive("mail")
    delivery.retry("2h")
    source = moving(old)

    def meanwhile() -> None:
        source.finishing = lambda: None
        if there is not None:
            THERE[there](new)
        HERE[here](old)
        if killed:
            raise Killed

    source.finishing = meanwhile
    late = 0
    with suppress(Killed):
        late = run(source, new).late
    late += run(moving(old), new).late
    assert late == int(there is not None)
    assert bodies(new) == ([["a"]] if there is not None or here == "rescheduled" else [])
    assert bodies(old) == (LEFT[here] if there is not None else [])


def test_a_copy_that_nobody_has_changed_is_taken_back_with_its_neighbours(old: Queue, new: Queue) -> None:
    for n in range(5):
        old.send("mail", [n], key=f"k{n}", delay=7_200 + n)
    source = moving(old)

    def meanwhile() -> None:
        source.finishing = lambda: None
        new.send("mail", ["there"], key="k3", delay="2h", if_exists="replace")
        for n in range(5):
            old.reschedule(topic="mail", key=f"k{n}", delay=10_800 + n)

    source.finishing = meanwhile
    run(source, new)
    run(moving(old), new)
    assert {each.body[0] for each in new.messages("mail")} == {0, 1, 2, 4, "there"}
    assert bodies(old) == [[3]]
    assert min(each.due for each in new.messages("mail") if each.body != ["there"]) > time.time() * 1000 + 10_000_000


@pytest.mark.parametrize("then", ["nothing", "cancelled", "rescheduled"])
def test_what_is_replaced_as_it_is_taken_has_one_copy_that_is_taken_back(old: Queue, new: Queue, then: str) -> None:
    """It keeps its time, which is soon. The run is killed when it has sent."""
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=40)
    old.send("mail", ["a"], key="k", at=due)

    def replaces() -> None:
        old.send("mail", ["here"], key="k", at=due, if_exists="replace")

    with pytest.raises(Killed):
        run(source_of(Before(Before(old.session.engine(), "reschedule", replaces), "cancel", die, 1)), new)
    HERE[then](old)
    run(moving(old), new)
    assert bodies(new) == ([] if then == "cancelled" else [["here"]])
    assert old.topics() == []


@pytest.mark.parametrize("killed", [False, True])
def test_a_copy_that_a_worker_has_tried_is_taken_back(old: Queue, new: Queue, killed: bool) -> None:
    old.send("mail", ["a"], key="k")
    source = moving(old)

    def tries() -> None:
        source.finishing = lambda: None
        [delivery] = new.receive("mail")
        delivery.retry("1h")
        old.cancel(topic="mail", key="k")
        if killed:
            raise Killed

    source.finishing = tries
    late = 0
    with suppress(Killed):
        late = run(source, new).late
    assert late + run(moving(old), new).late == 1
    assert (bodies(new), bodies(old)) == ([], [])


@pytest.mark.parametrize("end", ["retry", "bury"])
@pytest.mark.parametrize("key", ["k", None])
def test_what_a_worker_has_tried_there_was_changed_too_late(old: Queue, new: Queue, key: str | None, end: str) -> None:
    sent = old.send("mail", ["a"], key=key)
    source = moving(old)

    def tries() -> None:
        source.finishing = lambda: None
        [delivery] = new.receive("mail")
        delivery.retry("1h") if end == "retry" else delivery.bury("no use")
        old.reschedule(sent, delay="1h")

    source.finishing = tries
    adoption = run(source, new)
    assert (adoption.gone, adoption.late) == (0, 1)
    assert run(moving(old), new).adopted == 1
    assert [(each.body, each.state) for each in new.messages("mail")] == [(["a"], "scheduled")]


@pytest.mark.parametrize("here", ["cancelled", "rescheduled"])
def test_a_copy_without_a_key_is_taken_back_also_if_a_worker_there_has_put_it_off(old: Queue, new: Queue, here: str) -> None:
    sent = old.send("mail", ["a"])
    source = moving(old)

    def puts_off() -> None:
        source.finishing = lambda: None
        [delivery] = new.receive("mail")
        delivery.release("1h")
        old.cancel(sent) if here == "cancelled" else old.reschedule(sent, delay="3h")

    source.finishing = puts_off
    assert run(source, new).late == 0
    run(moving(old), new)
    assert bodies(new) == ([["a"]] if here == "rescheduled" else [])


def test_what_is_merged_into_a_copy_as_it_is_taken_back_stays(old: Queue, new: Queue) -> None:
    old.send("mail", "a", key="k", delay="2h", if_exists="merge")
    source = moving(old)
    source.finishing = partial(HERE["cancelled"], old)
    engine = new.session.engine()
    merges = Before(engine, "cancel", lambda: new.send("mail", "b", key="k", delay="2h", if_exists="merge"))
    with patch.object(new.session, "engine", lambda: merges):
        adoption = run(source, new)
    assert (adoption.late, bodies(new)) == (1, [["a", "b"]])


def test_a_message_of_others_that_is_like_a_copy_stays(old: Queue, new: Queue) -> None:
    """The old one was refused, as they have its key."""
    new.send("mail", ["a"], key="k", delay="2h")
    old.send("mail", ["a"], key="k", delay="2h")
    source = moving(old)
    with pytest.raises(Killed):
        run(source_of(Before(old.session.engine(), "get", die, 2)), new)
    assert old.cancel(topic="mail", key="k") is CancelResult.CANCELLED
    run(source, new)
    assert bodies(new) == [["a"]]


def test_what_was_changed_too_long_ago_is_not_taken_back(old: Queue, new: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new queue no longer knows what it got: a name would bring another copy."""
    old.send("mail", ["a"], key="k", delay="2h")
    source = moving(old)

    def dies() -> None:
        old.cancel(topic="mail", key="k")
        raise Killed

    source.finishing = dies
    with pytest.raises(Killed):
        run(source, new)
    monkeypatch.setattr("bide.adopt.adoption.SURE", -1.0)
    with pytest.raises(InDoubt):
        run(moving(old), new)
    adoption = run(moving(old), new, doubt="send")
    assert (adoption.adopted, adoption.gone, adoption.late) == (0, 0, 0)
    assert (bodies(new), old.topics()) == ([["a"]], [])


def test_what_was_retried_and_expires_is_not_told_as_taken_by_others(old: Queue, new: Queue) -> None:
    old.send("mail", ["a"], key="k", expires_in="10d")
    [delivery] = old.receive("mail")
    delivery.retry("2h")
    adoption = run(moving(old), new)
    assert (adoption.adopted, adoption.gone) == (1, 0)
