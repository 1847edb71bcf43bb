"""What the checker holds against deliveries: one history that breaks it, and one that barely does not."""

import pytest

from bide.prove.record import Result
from tests.unit.prove.book import Book

# never early


@pytest.mark.parametrize("early", [0, 1])
def test_nothing_comes_out_before_its_due_time(book: Book, early: int) -> None:
    book.send(delay=50)
    book.now += 100
    due = 1_052
    book.receive("m", due=due, now=due - early)
    assert ("never early" in book.broken()) == bool(early)


@pytest.mark.parametrize("sooner", [0, 1])
def test_a_message_is_due_when_its_send_was_told_it_would_be(book: Book, sooner: int) -> None:
    book.send(delay=50)
    book.now += 100
    book.receive("m", due=1_052 - sooner)
    assert ("never early" in book.broken()) == bool(sooner)


@pytest.mark.parametrize("sooner", [0, 1])
def test_a_rescheduled_message_is_not_due_before_its_new_time(book: Book, sooner: int) -> None:
    book.send()
    book.act("reschedule", at=1_500)
    book.now += 1_000
    book.receive("m", due=1_500 - sooner)
    assert ("never early" in book.broken()) == bool(sooner)


def test_a_message_that_is_being_rescheduled_may_come_out_at_either_time(book: Book) -> None:
    book.send()
    receiving = book.begin("receive", topics=["t"])
    book.act("reschedule", at=1_500)
    book.deliver("m", due=1_002, call=receiving[1])
    book.end(receiving)
    assert not book.broken()


@pytest.mark.parametrize("sooner", [0, 1])
def test_a_retried_message_is_not_due_before_its_delay_is_over(book: Book, sooner: int) -> None:
    book.send()
    book.receive("m", now=1_010)
    waiting = book.begin("receive", topics=["t"])
    book.act("retry", token="1", delay=70)
    book.now += 100
    book.deliver("m", "2", 2, due=1_080 - sooner, call=waiting[1])
    book.end(waiting)
    assert ("never early" in book.broken()) == bool(sooner)


@pytest.mark.parametrize("real", [20, 100])
def test_where_no_clock_was_set_the_machine_s_own_clock_judges_too(book: Book, real: int) -> None:
    book.send(delay=50)
    book.now += real
    book.receive("m", due=1_052, now=1_052)
    assert not book.broken()
    assert ("never early" in book.broken(steady=True)) == (real < 50)


# instants


def set_clock(book: Book, now: int) -> None:
    book.end(book.begin("clock"), now=now)


@pytest.mark.parametrize("early", [0, 1])
@pytest.mark.parametrize("verb", ["send", "reschedule"])
def test_an_instant_does_not_come_out_before_the_server_s_clock_shows_it(book: Book, verb: str, early: int) -> None:
    # Given engine time that is an hour ahead of a clock that was set right
    set_clock(book, 1_000)
    at = book.now + 500
    if verb == "send":
        book.send(delay=None, at=at, due=at)
    else:
        book.send(delay=50)
        book.act("reschedule", at=at)
    set_clock(book, book.now + 3_600_000)
    set_clock(book, book.now + 1)  # as the records do
    # When the instant comes out by engine time, by a clock that may show it, or can't, as 2 ms are allowed for rounding
    book.now = at - 4 - early
    book.receive("m", due=at, now=at + 3_600_000)
    assert book.broken() == ({"never early"} if early else set())


def test_a_delay_does_not_wait_for_the_server_s_clock(book: Book) -> None:
    set_clock(book, 1_000)
    book.send(delay=500)
    set_clock(book, 500)
    book.receive("m", due=1_510, now=3_600_000)
    assert not book.broken()


def test_what_is_retried_is_no_instant_any_more(book: Book) -> None:
    set_clock(book, 1_000)
    book.send(delay=None, at=1_500, due=1_500)
    set_clock(book, 2_000)
    book.receive("m", due=1_500, now=2_005)
    book.act("retry", token="1", delay=0)
    set_clock(book, 1_000)
    book.receive("m", token="2", attempt=2, due=2_006, now=2_010)
    assert not book.broken()


def test_an_instant_that_the_clock_had_reached_when_it_was_sent_is_for_now(book: Book) -> None:
    set_clock(book, 2_000)
    book.send(delay=None, at=1_500, due=2_002)
    set_clock(book, 1_000)
    book.receive("m", due=2_002, now=2_010)
    assert not book.broken()


@pytest.mark.parametrize("outcome", ["unknown", "not set before"])
def test_a_clock_that_nobody_knows_judges_nothing(book: Book, outcome: str) -> None:
    if outcome == "unknown":
        set_clock(book, 1_000)
        book.begin("clock")
    book.send(delay=None, at=1_500, due=1_500)
    book.receive("m", due=1_500, now=1_500)
    assert not book.broken()


# one live lease, and duplicates explained


@pytest.mark.parametrize("early", [0, 1])
def test_a_message_comes_again_when_its_lease_has_ended_and_not_before(book: Book, early: int) -> None:
    book.send()
    book.receive("m", now=1_010, lease=100)
    book.receive("m", token="2", attempt=2, now=1_110 - early)
    report = book.check()
    assert set(report.violations) == ({"one live lease", "duplicates explained"} if early else set())
    assert report.duplicates == ({"unexplained": 1} if early else {"lease": 1})


@pytest.mark.parametrize("early", [0, 1])
def test_an_extended_lease_ends_later(book: Book, early: int) -> None:
    book.send()
    book.receive("m", now=1_010, lease=100)
    book.act("extend", token="1", lease=500)
    book.receive("m", token="2", attempt=2, now=1_510 - early)
    assert ("one live lease" in book.broken()) == bool(early)


def test_an_extension_that_may_have_happened_makes_no_lease_longer(book: Book) -> None:
    book.send()
    book.receive("m", now=1_010, lease=100)
    book.act("extend", token="1", lease=500, result="unknown")
    book.receive("m", token="2", attempt=2, now=1_110)
    assert not book.broken()


@pytest.mark.parametrize("result", ["ok", "unknown", "fail"])
@pytest.mark.parametrize("verb", ["retry", "release"])
def test_a_retry_or_release_explains_a_repeat_if_it_may_have_happened(book: Book, verb: str, result: Result) -> None:
    book.send()
    book.receive("m")
    book.act(verb, token="1", result=result, outcome="LeaseLost" if result == "fail" else None)
    book.receive("m", token="2", attempt=1 if verb == "release" else 2)
    broken = book.broken() - {"attempts"}
    assert broken == ({"one live lease", "duplicates explained"} if result == "fail" else set())


def test_a_retry_that_began_later_does_not_explain_a_repeat(book: Book) -> None:
    book.send()
    book.receive("m")
    book.receive("m", token="2", attempt=2)
    book.act("retry", token="1", result="unknown")
    assert "duplicates explained" in book.broken()


def test_the_same_delivery_twice_is_a_repeat_without_a_cause(book: Book) -> None:
    book.send()
    book.receive("m")
    book.receive("m")
    assert {"one live lease", "duplicates explained", "fencing"} <= book.broken()


# fencing


def test_tokens_rise(book: Book) -> None:
    book.send()
    book.receive("m", token="2")
    book.act("retry", token="2")
    book.receive("m", token="1", attempt=2)
    assert "fencing" in book.broken()


def test_tokens_rise_by_the_engine_s_clock_too(book: Book) -> None:
    book.send()
    receiving, also = book.begin("receive", topics=["t"]), book.begin("receive", topics=["t"])
    book.deliver("m", "2", 1, call=receiving[1], now=1_010)
    book.deliver("m", "1", 2, call=also[1], now=1_200)
    book.end(receiving)
    book.end(also)
    assert "fencing" in book.broken()


@pytest.mark.parametrize(("took", "broken"), [(50, False), (3, True)])
def test_a_receive_that_asked_several_servers_may_be_told_of_an_older_token_later(book: Book, took: int, broken: bool) -> None:
    """Its time is that of its last claim, and the message of its first one may have come back meanwhile."""
    book.send()
    slow = book.begin("receive", topics=["t"])
    also = book.begin("receive", topics=["t"])
    book.now += took
    book.deliver("m", "2", 2, call=also[1], now=1_140)
    book.end(also)
    book.deliver("m", "1", 1, call=slow[1], now=1_150, lease=1)
    book.end(slow)
    assert ("fencing" in book.broken(spread=True)) == broken
    assert "fencing" in book.broken()


@pytest.mark.parametrize(("result", "broken"), [("ok", True), ("fail", False), ("unknown", False)])
@pytest.mark.parametrize("verb", ["ack", "retry", "release", "bury", "extend"])
def test_an_old_token_is_refused(book: Book, verb: str, result: Result, broken: bool) -> None:
    book.send()
    book.receive("m", now=1_010)
    book.receive("m", token="2", attempt=2, now=1_200)
    book.act(verb, token="1", result=result, outcome="LeaseLost" if result == "fail" else None)
    report = book.check()
    assert ("fencing" in report.violations) == broken
    assert report.counts["refused"] == (result == "fail")


def test_a_late_ack_counts_while_nobody_has_taken_the_message(book: Book) -> None:
    book.send()
    book.receive("m", lease=10)
    book.now += 100
    book.act("ack", token="1")
    assert not book.broken()


def test_a_delivery_ends_once(book: Book) -> None:
    book.send()
    book.receive("m")
    book.act("release", token="1")
    assert not book.broken()
    book.act("retry", token="1")
    assert "fencing" in book.broken()


# attempts


@pytest.mark.parametrize(("attempts", "holds"), [([1, 2, 3], True), ([1, 3], False), ([2], False), ([1, 1], False)])
def test_attempts_are_counted(book: Book, attempts: list[int], holds: bool) -> None:
    book.send()
    for place, attempt in enumerate(attempts, 1):
        book.receive("m", token=str(place), attempt=attempt, now=1_000 + 200 * place)
    assert book.broken() == (set() if holds else {"attempts"})


def test_no_attempt_is_past_the_limit(book: Book) -> None:
    book.send(max_attempts=2)
    for attempt in (1, 2, 3):
        book.receive("m", token=str(attempt), attempt=attempt, max_attempts=2, now=1_000 + 200 * attempt)
    assert book.broken() == {"attempts"}


@pytest.mark.parametrize(("result", "next_ones"), [("ok", {1}), ("unknown", {1, 2})])
def test_a_release_repeats_the_number(book: Book, result: Result, next_ones: set[int]) -> None:
    for attempt in (1, 2, 3):
        id = f"m{attempt}"
        book.send(id)
        book.receive(id)
        book.act("release", id, token="1", result=result)
        book.receive(id, token="2", attempt=attempt)
    wrong = {each.id for each in book.check().violations["attempts"]}
    assert {attempt for attempt in (1, 2, 3) if f"m{attempt}" not in wrong} == next_ones


@pytest.mark.parametrize("replaced", [False, True])
def test_attempts_start_again_with_a_replacing_send(book: Book, replaced: bool) -> None:
    book.send(key="k")
    book.receive("m", key="k")
    book.act("retry", token="1", delay=0)
    if replaced:
        book.send("m", tag="new", outcome="replaced", key="k", if_exists="replace")
    book.receive("m", tag="new" if replaced else "m", key="k", token="2", attempt=1, due=1_500, now=1_500)
    assert ("attempts" in book.broken()) == (not replaced)


@pytest.mark.parametrize(("unseen", "holds"), [(0, False), (1, False), (2, True)])
def test_attempts_may_be_missing_where_a_receive_has_no_known_answer(book: Book, unseen: int, holds: bool) -> None:
    book.send()
    for _ in range(unseen):
        book.begin("receive", topics=["t"], limit=1)
    book.receive("m", attempt=3)
    assert ("attempts" not in book.broken()) == holds


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("meanwhile", [True, False])
def test_an_attempt_may_be_missing_where_one_of_several_servers_failed_during_a_receive(
    book: Book, spread: bool, meanwhile: bool
) -> None:
    """The others answered, so it has a good answer; what that one had leased came back when the lease ended."""
    book.send()
    fault = book.begin("fault", kind="kill")
    if not meanwhile:
        book.end(fault, kind="kill")
    book.receive()
    if meanwhile:
        book.end(fault, kind="kill")
    book.receive("m", attempt=2)
    assert ("attempts" not in book.broken(spread=spread)) == (spread and meanwhile)


def test_no_more_attempts_are_missing_than_can_have_gone_unseen(book: Book) -> None:
    book.begin("receive", topics=["t"], limit=2)
    for number in range(3):
        book.send(f"m{number}")
        book.receive(f"m{number}", attempt=2 if number < 2 else 1)
    assert not book.broken()
    book.send("m4")
    book.receive("m4", attempt=2)
    assert book.broken() == {"attempts"}
