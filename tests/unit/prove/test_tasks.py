"""What the checker holds against tasks: locks and limits, schedules, results, dependencies and merged sends."""

from typing import Any

import pytest

from bide.prove.record import Result
from tests.unit.prove.book import Book, sent_and_done


def handed_out(book: Book, *ids: str, **fields: Any) -> None:
    for id in ids:
        book.send(id)
    book.receive(*ids, **fields)


def handled(book: Book, id: str, value: str | None = None, **fields: Any) -> None:
    under_way = book.begin("handle", id=id, topic="t", **({"token": "1"} | fields))
    book.end(under_way, value=value)


@pytest.mark.parametrize("places", [1, 2])
def test_no_more_are_in_a_gate_at_once_than_it_has_room_for(book: Book, places: int) -> None:
    handed_out(book, "a", "b")
    first, second = (book.begin("handle", id=id, token="1", topic="t", gates={"lock": places}) for id in ("a", "b"))
    book.end(first)
    book.end(second)
    for id in ("a", "b"):
        book.act("ack", id, token="1")
    assert book.broken() == (set() if places == 2 else {"limits"})


def test_one_after_the_other_may_be_in_a_gate(book: Book) -> None:
    handed_out(book, "a", "b")
    for id in ("a", "b"):
        handled(book, id, gates={"lock": 1})
        book.act("ack", id, token="1")
    assert not book.broken()


@pytest.mark.parametrize("dies", [True, False])
def test_who_lost_its_lease_or_its_life_is_in_no_gate(book: Book, dies: bool) -> None:
    handed_out(book, "a", "b")
    first = book.begin("handle", id="a", token="1", topic="t", gates={"lock": 1})
    book.now += 1_000
    book.receive("a", token="2", attempt=2)
    handled(book, "b", gates={"lock": 1})
    if not dies:
        book.end(first, "fail", outcome="CancelledError")
    for id, token in (("a", "2"), ("b", "1")):
        book.act("bury", id, token=token)
    assert not book.broken()


@pytest.mark.parametrize("other", [100, 200])
def test_each_instant_of_a_schedule_is_one_message(book: Book, other: int) -> None:
    handed_out(book, "a", "b")
    for id, planned in (("a", 100), ("b", other)):
        handled(book, id, planned=planned)
        book.act("ack", id, token="1")
    assert book.broken() == (set() if other == 200 else {"instants"})


def read(book: Book, value: str, id: str = "m") -> None:
    book.end(book.begin("result", id=id), value=value)


@pytest.mark.parametrize("value", ["mine", "another"])
def test_a_result_is_what_the_handler_returned(book: Book, value: str) -> None:
    handed_out(book, "m")
    handled(book, "m", value="mine")
    book.act("ack", token="1")
    read(book, value)
    assert book.broken() == (set() if value == "mine" else {"results"})


@pytest.mark.parametrize("value", ["first", "second"])
def test_the_result_is_of_the_handler_whose_message_was_acked(book: Book, value: str) -> None:
    handed_out(book, "m")
    late = book.begin("handle", id="m", token="1", topic="t")
    book.now += 1_000
    book.receive("m", token="2", attempt=2)
    handled(book, "m", value="second", token="2")
    book.act("ack", token="2")
    book.end(late, value="first")
    read(book, value)
    assert book.broken() == (set() if value == "second" else {"results"})


def test_before_the_ack_a_result_may_be_of_any_attempt(book: Book) -> None:
    handed_out(book, "m")
    handled(book, "m", value="first")
    read(book, "first")
    book.now += 1_000
    book.receive("m", token="2", attempt=2)
    handled(book, "m", value="second", token="2")
    book.act("ack", token="2")
    assert not book.broken()


@pytest.mark.parametrize("when", ["after", "before", "at its deadline", "after its worker died"])
def test_what_waits_for_others_comes_after_them_or_at_its_deadline(book: Book, when: str) -> None:
    handed_out(book, "part")
    book.send("m", delay=500, needs=["part"])
    if when == "after":
        handled(book, "part")
    elif when == "after its worker died":
        book.begin("handle", id="part", token="1", topic="t")
    elif when == "at its deadline":
        book.now += 600
    book.receive("m")
    handled(book, "m", needs=["part"])
    book.act("ack", "m", token="1")
    if when in ("before", "at its deadline"):
        handled(book, "part")
    book.act("ack", "part", token="1")
    assert book.broken() == ({"dependencies"} if when == "before" else set())


MERGE: dict[str, Any] = {"key": "k", "if_exists": "merge"}


def merged(book: Book, *tags: str, **fields: Any) -> None:
    book.receive("m", tag="a", key="k", body="a list", tags=list(tags), **fields)


def send_merged(book: Book) -> None:
    book.send("m", tag="a", **MERGE)
    book.send("m", tag="b", outcome="merged", **MERGE)


@pytest.mark.parametrize("tags", [("a", "b"), ("a",), ("a", "b", "b"), ("a", "b", "c")])
def test_each_send_that_was_merged_is_in_its_message_once(book: Book, tags: tuple[str, ...]) -> None:
    send_merged(book)
    merged(book, *tags)
    book.act("ack", token="1")
    assert book.broken() == (set() if tags == ("a", "b") else {"merged"})


def test_a_handler_finds_the_same_list_in_each_attempt(book: Book) -> None:
    send_merged(book)
    merged(book, "a", "b")
    book.act("retry", token="1", delay=0)
    merged(book, "b", "a", token="2", attempt=2)
    book.act("ack", token="2")
    assert book.broken() == {"merged"}


def test_a_send_that_was_merged_is_in_no_other_message(book: Book) -> None:
    send_merged(book)
    merged(book, "a", "b")
    book.act("ack", token="1")
    book.send("n", tag="c", **MERGE)
    book.receive("n", tag="c", key="k", body="a list", tags=["c", "b"])
    book.act("ack", "n", token="1")
    assert book.broken() == {"merged"}


def test_what_is_merged_makes_its_message_no_later(book: Book) -> None:
    sent_and_done(book)
    book.send("m", tag="a", delay=5, **MERGE)
    book.send("m", tag="b", outcome="merged", delay=5_000, **MERGE)
    book.now += 10
    merged(book, "a", "b")
    book.act("ack", token="1")
    assert not book.broken(steady=True)


def snoozed_and_delivered(book: Book) -> int:
    """Returns when it was due at first."""
    book.send("m")
    due = book.now
    book.receive("m")
    book.act("release", token="1", delay=5)
    book.now += 10
    book.receive("m", token="2")
    return due


@pytest.mark.parametrize("aside", ["", "fail", "unknown"])
@pytest.mark.parametrize("called", ["", "ok", "fail", "unknown"])
def test_what_is_called_at_a_gate_comes_with_its_first_due_time(book: Book, called: Result, aside: Result) -> None:
    """Also when its worker died or stood still on its way to set it aside, and its lease ended."""
    due = snoozed_and_delivered(book)
    if aside:
        book.act("release", token="2", result=aside)
    book.now += 100
    if called:
        book.act("call", result=called)
    book.receive("m", token="3", due=due, attempt=2)
    book.act("ack", token="3")
    assert book.broken() == (set() if called in ("ok", "unknown") else {"never early"})


def test_what_is_called_does_not_come_before_it_is_due(book: Book) -> None:
    due = snoozed_and_delivered(book)
    book.act("release", token="2", delay=1_000)
    book.act("call")
    book.receive("m", token="3", due=due)
    book.act("ack", token="3")
    assert book.broken() == {"never early"}


@pytest.mark.parametrize("key", ["every tick", "every other"])
def test_what_a_schedule_has_planned_may_be_taken_back_by_its_key(book: Book, key: str) -> None:
    sent_and_done(book)
    book.receive("m", tag=None, key="every tick", planned=100)
    book.begin("cancel", topic="t", key=key)
    book.look()
    assert book.broken() == (set() if key == "every tick" else {"no loss"})


def test_what_a_schedule_has_planned_may_be_left_out(book: Book) -> None:
    handed_out(book, "other")
    handled(book, "other")
    book.act("ack", "other", token="1")
    for id, planned in (("a", 100), ("b", None)):
        book.receive(id, tag=None, planned=planned)
        book.act("ack", id, token="1")
    assert book.broken() == {"nothing unexpected", "handled"}
    assert {each.id for found in book.check().violations.values() for each in found} == {"b"}
