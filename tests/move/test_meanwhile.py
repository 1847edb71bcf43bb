"""What others do to a message, or to the mover, at each step of its way."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from bide import Outgoing, Queue
from bide.adopt.adoption import Adoption
from bide.adopt.copies import InDoubt
from bide.adopt.queue.messages import Able
from bide.adopt.queue.move import QueueSource
from bide.adopt.queue.transfer_log import OtherMove, TransferLog, stopped_moves
from bide.adopt.source import Entries, FoundEntry, Names
from bide.types import CancelResult, Info, RescheduleResult, Sent
from tests.move.meddling import Killed

Step = Callable[[], object]


def nothing() -> None: ...


class Meddled(QueueSource):
    """Somebody else acts after a take, before a finish, and after it."""

    taken: Step = staticmethod(nothing)
    finishing: Step = staticmethod(nothing)
    finished: Step = staticmethod(nothing)

    def take(self, limit: int) -> Entries:
        found = super().take(limit)
        if found.found:
            self.taken()
        return found

    def finish(self, names: Sequence[str], changed: Names) -> None:
        self.finishing()
        super().finish(names, changed)
        self.finished()


def moving(old: Queue, able: Able | None = None) -> Meddled:
    return Meddled(old.session.engine(), "old", re.compile(".*"), able or Able(), "new")


def run(source: QueueSource, new: Queue, **how: Any) -> Adoption:
    adoption = Adoption(source, new, **how)
    try:
        adoption.run(lambda done: None, lambda: False)
    finally:
        source.close()
    return adoption


def killed(old: Queue, new: Queue, step: str) -> None:
    """A run that ends at this step, as by a kill."""

    def die() -> None:
        raise Killed

    source = moving(old)
    setattr(source, step, die)
    with pytest.raises(Killed):
        Adoption(source, new).run(lambda done: None, lambda: False)


def bodies(queue: Queue, topic: str = "mail") -> list[Any]:
    return sorted(each.body for each in queue.messages(topic, limit=1_000))


def send(queue: Queue, count: int = 3) -> list[Sent]:
    return queue.send_many("mail", [Outgoing(n, delay=3_600 + n, key=f"k{n}") for n in range(count)])


def test_no_worker_gets_a_message_that_is_on_its_way(old: Queue, new: Queue) -> None:
    old.send("mail", "due")
    source = moving(old)
    received: list[object] = []
    source.taken = lambda: received.extend(old.receive("mail"))
    assert run(source, new).adopted == 1
    assert received == []
    assert [each.body for each in new.receive("mail")] == ["due"]


def test_a_message_that_a_worker_fails_when_it_was_listed_comes_when_the_worker_said(old: Queue, new: Queue) -> None:
    old.send_many("mail", [Outgoing(n) for n in range(3)])
    source = moving(old)
    reschedule: Any = source._engine.reschedule

    def late(moves: Any, **options: Any) -> Any:
        [delivery] = old.receive("mail", limit=1)
        delivery.retry("1h", error="it broke")
        source._engine.reschedule = reschedule  # type: ignore[method-assign]
        return reschedule(moves, **options)

    source._engine.reschedule = late  # type: ignore[method-assign]
    run(source, new)
    run(moving(old), new)
    found = {each.state: each.attempt for each in new.messages("mail")}
    assert found == {"ready": 0, "scheduled": 1}
    assert old.stats().scheduled == 0


def test_a_message_that_is_cancelled_on_its_way_is_cancelled_there(old: Queue, new: Queue) -> None:
    send(old)
    source, said = moving(old), list[CancelResult]()
    source.finishing = lambda: said.append(old.cancel(topic="mail", key="k1"))
    adoption = run(source, new)
    assert said == [CancelResult.CANCELLED]
    assert (adoption.adopted, adoption.gone, adoption.late) == (2, 1, 0)
    assert bodies(new) == [0, 2]
    assert old.topics() == []


def test_a_message_that_is_given_a_new_time_on_its_way_moves_with_that_time(old: Queue, new: Queue) -> None:
    sent = send(old)
    source, said = moving(old), list[RescheduleResult]()

    def reschedule() -> None:
        source.finishing = nothing
        said.append(old.reschedule(topic="mail", key="k1", delay="10d"))

    source.finishing = reschedule
    adoption = run(source, new)
    assert said == [RescheduleResult.MOVED]
    assert adoption.gone == 1
    run(moving(old), new)
    assert bodies(new) == [0, 1, 2]
    found = new.get(topic="mail", key="k1")
    assert found is not None
    assert found.due - sent[1].due > 9 * 86_400_000


def test_a_message_that_is_given_a_new_time_keeps_it_when_it_is_given_back(old: Queue) -> None:
    sent = send(old)
    source = moving(old)
    names = [each.name for each in source.take(10).found]
    assert old.reschedule(topic="mail", key="k1", delay="10d") is RescheduleResult.MOVED
    source.give_back(names)
    source.close()
    due = {each.body: each.due for each in old.messages("mail", limit=10)}
    assert (due[0], due[2]) == (sent[0].due, sent[2].due)
    assert due[1] - sent[1].due > 9 * 86_400_000


def test_a_message_that_is_replaced_on_its_way_moves_with_its_new_body(old: Queue, new: Queue) -> None:
    sent = send(old)
    source = moving(old)

    def replace() -> None:
        source.finishing = nothing
        old.send("mail", "new", delay=3_600, key="k1", if_exists="replace")

    source.finishing = replace
    run(source, new)
    run(moving(old), new)
    assert len(list(new.messages("mail"))) == 3
    found = new.get(topic="mail", key="k1")
    assert found is not None
    assert found.body == "new"
    assert found.due >= sent[1].due - 2_000


@pytest.mark.parametrize("step", ["taken", "finishing", "finished"])
def test_a_mover_that_is_killed_at_any_step_loses_and_doubles_nothing(old: Queue, new: Queue, step: str) -> None:
    sent = send(old, 2_500)
    old.send("dead", "letter")
    [delivery] = old.receive("dead")
    delivery.bury("no use")
    for _ in range(3):
        killed(old, new, step)
    run(moving(old), new)
    assert old.topics() == []
    assert old.stats().scheduled == 0
    found: dict[object, Info] = {}
    for topic in ("mail", "dead"):
        page = new.messages(topic, limit=1_000)
        while True:
            for each in page:
                assert each.key not in found
                found[each.key or topic] = each
            if page.after is None:
                break
            page = new.messages(topic, limit=1_000, after=page.after)
    assert found.pop("dead").state == "dead"
    assert {each.due for each in found.values()} == {each.due for each in sent}
    assert len(found) == 2_500


def test_a_mover_that_comes_back_too_late_asks(old: Queue, new: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = send(old)
    killed(old, new, "finishing")
    monkeypatch.setattr(TransferLog, "age", lambda self, batches: 3_600.0 if batches else 0.0)
    with pytest.raises(InDoubt, match="no longer knows whether it got them"):
        run(moving(old), new)
    # Given back, they wait where they were, as they were
    [delivered] = [each for each in new.messages("mail") if each.key == "k0"]
    adoption = Adoption(moving(old), new, doubt="give-back")
    adoption.resume()
    assert adoption.given_back == 3
    assert {each.due for each in old.messages("mail")} == {each.due for each in sent}
    assert delivered.due == sent[0].due


def test_what_is_due_in_too_many_years_stays(old: Queue, new: Queue) -> None:
    old.send("mail", "far", delay="36500d")
    old.send("mail", "near", delay="1d")
    adoption = run(moving(old), new)
    assert (adoption.adopted, adoption.refused.total()) == (1, 1)
    assert bodies(old) == ["far"]
    assert bodies(new) == ["near"]


def test_a_queue_that_keeps_no_past_gets_the_attempts_that_are_left(old: Queue, new: Queue) -> None:
    old.send("mail", "tried", max_attempts=5)
    [delivery] = old.receive("mail")
    delivery.retry("1h", error="it broke")
    old.send("mail", "dead")
    [delivery] = old.receive("mail")
    delivery.bury("no use")
    adoption = run(moving(old, Able(past=False)), new)
    assert (adoption.adopted, adoption.refused.total()) == (1, 1)
    [moved] = new.messages("mail")
    assert (moved.body, moved.attempt, moved.max_attempts) == ("tried", 0, 4)
    assert [(each.body, each.state) for each in old.messages("mail")] == [("dead", "dead")]


def test_names_of_puts_are_of_one_take(old: Queue, new: Queue) -> None:
    send(old, 1)
    names: list[str] = []
    for _ in range(2):
        source = moving(old)
        found: Sequence[FoundEntry] = source.take(10).found
        names += [each.name for each in found]
        source.give_back([each.name for each in found])
        source.close()
    assert len(set(names)) == 2


def test_the_doctor_tells_of_a_move_that_was_stopped(old: Queue, new: Queue) -> None:
    send(old)
    killed(old, new, "taken")
    [found] = stopped_moves(old.session.engine())
    assert (found.level, found.value.startswith("up to 3 messages since"), found.value.endswith("to new")) == (
        "warn",
        True,
        True,
    )
    run(moving(old), new)
    assert stopped_moves(old.session.engine()) == []


def test_a_second_mover_takes_over_and_nothing_is_lost_or_doubled(old: Queue, new: Queue) -> None:
    sent = send(old, 2_500)
    first = moving(old)

    def take_over() -> None:
        first.finishing = nothing
        run(moving(old), new)

    first.finishing = take_over
    with suppress(OtherMove):  # it has taken all, or it is told
        run(first, new)
    run(moving(old), new)
    assert new.stats().scheduled == len(sent)
    assert old.stats().scheduled == 0


def test_a_mover_that_another_one_has_taken_over_from_takes_nothing_more(old: Queue, new: Queue) -> None:
    send(old, 2_500)
    first = moving(old)

    def take_over() -> None:
        moving(old).log.begin()

    first.finishing = take_over
    with pytest.raises(OtherMove, match="Another run of this command has taken over"):
        run(first, new)
    run(moving(old), new)
    assert new.stats().scheduled == 2_500
    assert old.stats().scheduled == 0


def test_a_move_to_another_place_waits_for_the_one_that_was_stopped(old: Queue, new: Queue) -> None:
    send(old)
    killed(old, new, "taken")
    other = QueueSource(old.session.engine(), "old", re.compile(".*"), Able(), "elsewhere")
    with pytest.raises(OtherMove, match="to new was stopped"):
        run(other, new)
    run(moving(old), new)
    assert bodies(new) == [0, 1, 2]


def test_a_mover_whose_clock_is_fast_ends_nothing_too_soon(old: Queue, new: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    old.send("mail", "overdue", expires_in="3m")
    real = time.time_ns
    source = moving(old)
    monkeypatch.setattr(time, "time_ns", lambda: real() + 600 * 10**9)
    run(source, new)
    monkeypatch.undo()
    [delivery] = new.receive("mail")
    assert delivery.body == "overdue"


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("years", [26, 30, 50])
def test_a_new_time_that_is_far_away_counts(old: Queue, new: Queue, years: int, killed: bool) -> None:
    """It is not taken for the mover's own."""
    sent = old.send("mail", "a", delay="2h")
    source, far = moving(old), timedelta(days=365 * years)

    def puts_off() -> None:
        source.finishing = nothing
        assert old.reschedule(sent, delay=far) is RescheduleResult.MOVED
        if killed:
            raise Killed

    source.finishing = puts_off
    with suppress(Killed):
        run(source, new)
    assert run(moving(old), new).refused == {"is due in more than 25 years": 1}
    [left] = old.messages("mail")
    assert abs(left.due / 1000 - time.time() - far.total_seconds()) < 60
    assert bodies(new) == []


def test_who_moves_a_message_on_by_an_hour_while_it_is_on_its_way_has_that(old: Queue, new: Queue) -> None:
    sent = old.send("mail", "a", delay="2h")
    source = moving(old)

    def puts_off() -> None:
        source.finishing = nothing
        assert old.reschedule(sent, by="1h") is RescheduleResult.MOVED

    source.finishing = puts_off
    run(source, new)
    run(moving(old), new)
    assert [each.due - sent.due for each in new.messages("mail")] == [3_600_000]


def test_small_topics_move_together(old: Queue, new: Queue) -> None:
    for number in range(120):
        old.send(f"topic.{number}", number, delay=3_600)
    old.send("dead", "letter")
    [delivery] = old.receive("dead")
    delivery.bury("no use")
    source, sizes = moving(old), list[int]()
    source.taken = lambda: sizes.append(len(source._in_hand.ids))
    assert run(source, new).adopted == 121
    assert len(new.topics()) == 121
    assert len(sizes) == 2


def test_a_message_that_is_listed_twice_is_moved_once(old: Queue, new: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = send(old)
    source = moving(old)
    listed = source.listing.pages

    def twice(limit: int) -> Iterator[Any]:
        for page in listed(limit):
            yield page
            yield page

    monkeypatch.setattr(source.listing, "pages", twice)
    assert run(source, new).adopted == 3
    assert {each.due for each in new.messages("mail")} == {each.due for each in sent}


def test_messages_that_were_listed_on_their_way_are_not_told_as_left(old: Queue, new: Queue) -> None:
    send(old, 4_500)
    adoption = run(moving(old), new)
    assert (adoption.adopted, adoption.refused.total()) == (4_500, 0)
