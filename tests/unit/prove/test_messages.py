"""What the checker holds against the life of a message: one history that breaks it, and one that barely does not."""

from typing import Any

import pytest

from bide.prove.record import Result
from tests.unit.prove.book import Book, sent_and_done

# no loss


def lost(book: Book, **terms: Any) -> bool:
    sent_and_done(book)
    return "no loss" in book.broken(**terms)


def test_what_was_accepted_and_is_nowhere_is_lost(book: Book) -> None:
    book.send()
    book.look()
    assert lost(book)


def test_what_came_out_once_and_is_nowhere_is_lost_although_nobody_knows_whether_it_was_accepted(book: Book) -> None:
    book.send(result="unknown")
    book.receive("m")
    book.look()
    assert lost(book)


@pytest.mark.parametrize("state", ["scheduled", "dead"])
def test_what_is_planned_or_dead_is_not_lost(book: Book, state: str) -> None:
    book.send()
    book.look({"id": "m", "state": state})
    assert not lost(book)


@pytest.mark.parametrize("state", ["ready", "leased"])
def test_nothing_that_could_come_out_is_left_after_a_drain(book: Book, state: str) -> None:
    book.send()
    book.look({"id": "m", "state": state})
    assert lost(book)


def test_a_paused_topic_may_keep_what_is_ready(book: Book) -> None:
    book.send()
    book.look({"id": "m", "state": "ready"}, counts={"t": {"ready": 1, "paused": 1}})
    assert not lost(book)


def test_what_is_ready_may_be_left_if_nobody_says_that_all_was_drained(book: Book) -> None:
    book.send()
    book.look({"id": "m", "state": "ready"}, drained=False)
    assert not lost(book)


def test_an_ack_that_may_have_happened_may_have_ended_it(book: Book) -> None:
    book.send()
    book.receive("m")
    book.act("ack", token="1", result="unknown")
    book.look()
    assert not lost(book)


def test_an_ack_that_was_refused_has_not_ended_it(book: Book) -> None:
    book.send()
    book.receive("m")
    book.act("ack", token="1", result="fail", outcome="LeaseLost")
    book.look()
    assert lost(book)


def test_an_unknown_ack_of_an_earlier_delivery_has_not_ended_it(book: Book) -> None:
    book.send()
    book.receive("m")
    book.act("ack", token="1", result="unknown")
    book.receive("m", token="2", attempt=2, now=2_000)
    book.look()
    assert lost(book)


@pytest.mark.parametrize(("purged", "is_lost"), [(1, True), (2, False)])
def test_a_purge_has_taken_as_many_as_it_says(book: Book, purged: int, is_lost: bool) -> None:
    book.send("m1")
    book.send("m2")
    book.act("purge", None, topic="t", state="ready", count=purged)
    book.look()
    assert lost(book) == is_lost


@pytest.mark.parametrize(("dropped", "is_lost"), [(0, True), (1, False)])
def test_dead_letters_are_dropped_as_often_as_is_counted(book: Book, dropped: int, is_lost: bool) -> None:
    book.send()
    book.receive("m")
    book.act("bury", token="1")
    book.look(counts={"t": {"dropped": dropped}})
    assert lost(book) == is_lost


@pytest.mark.parametrize(("expires_in", "is_lost"), [(10_000_000, True), (10, False)])
def test_what_can_have_expired_is_not_lost(book: Book, expires_in: int, is_lost: bool) -> None:
    book.send(expires_in=expires_in)
    book.look()
    assert lost(book) == is_lost


def test_a_cancel_by_key_took_one_of_those_that_had_the_key(book: Book) -> None:
    for id in ("m1", "m2"):
        book.send(id, key="k")
    book.act("cancel", None, topic="t", key="k")
    book.look({"id": "m1", "tag": "m1", "body": "body of m1", "key": "k"})
    assert not lost(book)
    book.look()
    assert lost(book)


# nothing unexpected


@pytest.mark.parametrize(
    "other",
    [{}, {"body": "?"}, {"headers": "?"}, {"tag": "nobody's"}, {"key": "k"}, {"max_attempts": 9}],
    ids=lambda other: next(iter(other), "the same"),
)
def test_what_comes_out_is_what_was_sent(book: Book, other: dict[str, Any]) -> None:
    book.send()
    book.receive("m", **other)
    assert ("nothing unexpected" in book.broken()) == bool(other)


@pytest.mark.parametrize(("result", "outcome"), [("fail", "Unavailable"), ("ok", "kept")])
def test_a_body_that_was_not_accepted_does_not_come_out(book: Book, result: Result, outcome: str) -> None:
    book.send("m", key="k")
    book.send("m", result, tag="second", outcome=outcome, key="k")
    book.receive("m", tag="second", key="k")
    assert "nothing unexpected" in book.broken()


def test_a_send_of_unknown_outcome_may_come_out(book: Book) -> None:
    book.send(result="unknown")
    book.receive("m")
    book.act("ack", token="1")
    sent_and_done(book)
    book.look()
    report = book.check()
    assert report.valid is True
    assert report.counts["recovered"] == 1


def test_an_old_body_does_not_come_out_after_its_replacement(book: Book) -> None:
    book.send("m", tag="old", key="k")
    book.send("m", tag="new", outcome="replaced", key="k")
    book.receive("m", tag="old", key="k")
    assert "nothing unexpected" in book.broken()


def test_an_old_body_may_come_out_while_it_is_being_replaced(book: Book) -> None:
    book.send("m", tag="old", key="k")
    receiving = book.begin("receive", topics=["t"])
    book.send("m", tag="new", outcome="replaced", key="k")
    book.deliver("m", tag="old", key="k", call=receiving[1])
    book.end(receiving)
    assert not book.broken()


def test_what_is_left_was_sent(book: Book) -> None:
    sent_and_done(book)
    book.look({"id": "m"})
    assert "nothing unexpected" in book.broken()


# final


def test_nothing_comes_out_after_its_ack(book: Book) -> None:
    book.send()
    book.receive("m", lease=10)
    book.act("ack", token="1")
    book.receive("m", token="2", attempt=2, now=1_200)
    assert "final" in book.broken()


def test_nothing_is_left_after_its_ack(book: Book) -> None:
    sent_and_done(book)
    book.look({"id": "other", "tag": "other", "body": "body of other"})
    assert "final" in book.broken()


def test_a_cancelled_message_does_not_come_out(book: Book) -> None:
    book.send()
    book.act("cancel")
    book.receive("m")
    assert "final" in book.broken()


@pytest.mark.parametrize("result", ["fail", "unknown"])
def test_a_message_whose_cancel_is_not_known_may_come_out(book: Book, result: Result) -> None:
    book.send()
    book.act("cancel", result=result, outcome="running" if result == "fail" else None)
    book.receive("m")
    assert not book.broken()


def test_a_message_is_not_both_cancelled_and_acked(book: Book) -> None:
    book.send()
    cancelling = book.begin("cancel", id="m")
    book.receive("m")
    book.end(cancelling)
    assert not book.broken()
    book.act("ack", token="1")
    assert "final" in book.broken()


def test_a_cancel_by_key_is_that_of_the_only_message_that_had_the_key(book: Book) -> None:
    book.send(key="k")
    book.act("cancel", None, topic="t", key="k")
    book.receive("m", key="k")
    assert "final" in book.broken()


def test_nothing_is_accepted_after_the_end(book: Book) -> None:
    sent_and_done(book)
    book.act("reschedule", "other", result="fail", outcome="gone")
    assert not book.broken()
    book.act("reschedule", "other", at=2_000)
    assert "final" in book.broken()


@pytest.mark.parametrize("said", ["gone", "dead"])
def test_gone_and_dead_are_not_said_of_what_comes_out_later(book: Book, said: str) -> None:
    book.send()
    asking = book.begin("cancel", id="m")
    receiving = book.begin("receive", topics=["t"])
    book.end(asking, "fail", outcome=said)
    book.deliver("m", call=receiving[1])
    book.end(receiving)
    assert not book.broken()
    book.act("cancel", "m", "fail", outcome=said)
    book.receive("m", token="2", attempt=2, now=1_500)
    assert book.broken() == {"final"}


@pytest.mark.parametrize("requeued", [False, True])
def test_a_buried_message_comes_out_again_only_if_it_was_requeued(book: Book, requeued: bool) -> None:
    book.send()
    book.receive("m", lease=10)
    book.act("bury", token="1")
    if requeued:
        book.act("requeue", None, topic="t", count=1)
    book.receive("m", token="2", attempt=1 if requeued else 2, now=1_500)
    assert ("final" in book.broken()) == (not requeued)


# idempotent


@pytest.mark.parametrize("first", ["ok", "unknown"])
def test_one_operation_makes_one_message(book: Book, first: Result) -> None:
    book.send("m", first, tag="x", operation="o")
    book.send("m", tag="x", operation="o")
    book.receive("m", tag="x")
    assert not book.broken()
    book.receive("n", tag="x", token="2")
    assert "idempotent" in book.broken()


def test_one_operation_has_one_answer_whatever_its_body(book: Book) -> None:
    book.send("m", tag="x", operation="o")
    book.send("m", tag="y", operation="o")
    assert not book.broken()
    book.send("n", tag="z", operation="o")
    assert "idempotent" in book.broken()


@pytest.mark.parametrize("other", [{"topic": "u"}, {"key": "k"}], ids=str)
def test_an_operation_belongs_to_its_topic_and_key(book: Book, other: dict[str, Any]) -> None:
    book.send("m", tag="x", operation="o")
    book.send("n", tag="y", operation="o", **other)
    assert not book.broken()


def test_an_operation_may_act_again_after_ten_minutes(book: Book) -> None:
    book.send("m", tag="x", operation="o")
    book.now += 600_000
    book.send("n", tag="y", operation="o")
    assert not book.broken()


@pytest.mark.parametrize("tries", [1, 2])
def test_a_send_without_an_operation_makes_no_more_messages_than_it_had_tries(book: Book, tries: int) -> None:
    for _ in range(tries):
        book.send(result="unknown")
    book.receive("m")
    book.receive("n", tag="m")
    assert ("idempotent" in book.broken()) == (tries == 1)


def test_a_key_has_one_pending_message(book: Book) -> None:
    book.send("m", key="k")
    book.receive("m", key="k")
    book.act("ack", token="1")
    book.send("n", key="k")
    book.receive("n", key="k")
    assert not book.broken()
    book.send("o", key="k")
    book.receive("n", token="2", attempt=2, key="k", now=1_500)
    assert "idempotent" in book.broken()


def test_a_pending_message_keeps_its_key_even_if_it_comes_out_without(book: Book) -> None:
    book.send("m", key="k")
    book.send("n", key="k")
    book.receive("m", key=None)
    assert "idempotent" in book.broken()


def test_a_running_message_gives_its_key_to_its_successor(book: Book) -> None:
    book.send("m", key="k")
    book.receive("m", key="k")
    book.send("n", key="k", if_exists="replace")
    book.receive("m", key=None, token="2", attempt=2, now=1_500)
    assert not book.broken()


@pytest.mark.parametrize("came_out", [True, False])
def test_a_key_may_have_gone_to_a_message_that_a_failover_undid(came_out: bool, book: Book) -> None:
    """Its send made another one first, and was repeated where that was not known: there it postponed the first."""
    book.send("m", key="k")
    book.receive("m", key="k")
    send = {"topic": "t", "tag": "n", "body": "body of n", "headers": "h", "max_attempts": 3, "delay": 0, "key": "k"}
    under_way = book.begin("send", **send, if_exists="later")
    book.receive("m", key=None, token="2", attempt=2, now=1_500)
    if came_out:
        book.receive("other", key="k", tag="n", token="3", now=1_600)
    book.end(under_way, "ok", id="m", due=1_700, outcome="postponed")
    assert ("nothing unexpected" in book.broken()) is not came_out


def test_two_that_are_left_have_two_keys(book: Book) -> None:
    book.send("m", key="k")
    book.receive("m", key="k")
    book.send("n", key="k", if_exists="replace")
    other = {"id": "n", "tag": "n", "body": "body of n", "key": "k"}
    book.look({"id": "m", "attempt": 1}, other)
    assert not book.broken()
    book.look({"id": "m", "attempt": 1, "key": "k"}, other)
    assert "idempotent" in book.broken()


@pytest.mark.parametrize("fault", ["reshard 6", "kill", None])
def test_a_dead_letter_comes_back_without_its_key_only_when_shards_were_given_up(book: Book, fault: str | None) -> None:
    book.send("m", key="k")
    book.receive("m", key="k")
    book.act("bury", token="1")
    if fault:
        book.end(book.begin("fault", kind=fault), kind=fault)
    book.act("requeue", None, topic="t", count=1)
    book.receive("m", token="2")
    book.act("ack", token="2")
    assert book.broken() == (set() if fault == "reshard 6" else {"nothing unexpected"})
