"""A server that goes back to an older state may undo what it accepted since then, and nothing else."""

import pytest

from tests.unit.prove.book import Book, sent_and_done


def rolled_back(book: Book, *, landed: bool = True) -> bool:
    """Whether the verdict is good; a message came out, so there is one."""
    sent_and_done(book)
    report = book.check()
    assert landed or report.valid is not True
    return not report.violations


def test_a_cancel_that_a_rollback_may_have_undone_binds_nobody(book: Book) -> None:
    book.send()
    back = book.begin("fault", kind="rollback")
    book.act("cancel", outcome="cancelled")
    book.end(back, kind="rollback")
    book.receive("m")
    book.act("ack", token="1")
    assert rolled_back(book)
    assert book.check().counts["undone"] == 1


def test_a_cancel_that_was_accepted_after_the_rollback_is_final(book: Book) -> None:
    book.send()
    book.end(book.begin("fault", kind="rollback"), kind="rollback")
    book.act("cancel", outcome="cancelled")
    book.receive("m")
    assert not rolled_back(book)
    assert book.broken() == {"final"}


def test_a_cancel_that_was_accepted_before_anything_could_be_forgotten_is_final(book: Book) -> None:
    book.send()
    book.act("cancel", outcome="cancelled")
    book.end(book.begin("fault", kind="rollback"), kind="rollback")
    book.receive("m")
    assert not rolled_back(book)


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_pause_binds_unless_a_rollback_may_have_undone_it(book: Book, when: str) -> None:
    book.send()
    if when == "before":
        book.act("pause", None, topic="t")
    back = book.begin("fault", kind="rollback")
    if when == "during":
        book.act("pause", None, topic="t")
    book.end(back, kind="rollback")
    if when == "after":
        book.act("pause", None, topic="t")
    book.receive("m")
    book.act("ack", token="1")
    assert rolled_back(book) == (when == "during")
    assert book.broken() == (set() if when == "during" else {"pause"})


@pytest.mark.parametrize("forgotten", [True, False])
def test_an_operation_that_a_rollback_may_have_undone_acts_again(book: Book, forgotten: bool) -> None:
    kind = "rollback" if forgotten else "restart"
    back = book.begin("fault", kind=kind)
    book.send("m", tag="x", operation="o")
    book.end(back, kind=kind)
    book.send("n", tag="x", operation="o")
    book.receive("n", tag="x")
    book.act("ack", "n", token="1")
    assert ("idempotent" not in book.broken()) == forgotten


def test_a_rollback_that_never_landed_undoes_nothing(book: Book) -> None:
    book.send()
    book.begin("fault", kind="rollback")
    book.act("cancel", outcome="cancelled")
    book.receive("m")
    assert not rolled_back(book, landed=False)


def test_another_kind_of_fault_undoes_nothing(book: Book) -> None:
    book.send()
    back = book.begin("fault", kind="restart")
    book.act("cancel", outcome="cancelled")
    book.end(back, kind="restart")
    book.receive("m")
    assert not rolled_back(book)


def test_a_handler_may_be_at_work_on_what_was_delivered_before_the_cancel(book: Book) -> None:
    book.send()
    back = book.begin("fault", kind="rollback")
    book.receive("m")
    book.end(back, kind="rollback")  # the delivery is forgotten, and the message is pending
    book.act("cancel", outcome="cancelled")
    book.end(book.begin("handle", id="m", topic="t", token="1"))
    book.act("ack", result="fail", token="1", outcome="LeaseLost")
    assert book.check().valid is True


def test_an_ack_that_was_forgotten_may_be_followed_by_a_delivery_of_the_same_attempt(book: Book) -> None:
    book.send()
    back = book.begin("fault", kind="rollback")
    book.receive("m")
    book.act("ack", token="1")
    book.end(back, kind="rollback")
    book.receive("m", token="2")
    book.act("ack", token="2")
    assert rolled_back(book)


def test_what_was_sent_while_it_could_be_forgotten_may_be_gone(book: Book) -> None:
    back = book.begin("fault", kind="rollback")
    book.send()
    book.end(back, kind="rollback")
    book.look()
    assert rolled_back(book)


def test_what_was_sent_before_a_rollback_is_lost_if_it_is_gone(book: Book) -> None:
    book.send()
    book.end(book.begin("fault", kind="rollback"), kind="rollback")
    book.look()
    assert not rolled_back(book)


@pytest.mark.parametrize("kind", ["lost claims", "kill"])
def test_a_failover_that_loses_a_claim_explains_one_repeated_delivery(book: Book, kind: str) -> None:
    book.send()
    back = book.begin("fault", kind=kind)
    book.receive("m")
    book.end(back, kind=kind)
    book.receive("m", token="2")
    book.act("ack", token="2")
    assert rolled_back(book) == (kind == "lost claims")


@pytest.mark.parametrize("kind", ["lost claims", "kill"])
def test_a_failover_may_lose_what_was_delivered_before_it_was_confirmed(book: Book, kind: str) -> None:
    back = book.begin("fault", kind=kind)
    book.send(result="unknown")
    book.receive("m")
    book.end(back, kind=kind)
    book.look()
    assert rolled_back(book) == (kind == "lost claims")


@pytest.mark.parametrize("kind", ["lost claims", "kill"])
def test_a_send_that_a_failover_cuts_short_may_be_seen_lost_and_made_again(book: Book, kind: str) -> None:
    back = book.begin("fault", kind=kind)
    sending = book.begin("send", topic="t", tag="m", body="body of m", headers="h", max_attempts=3, delay=0)
    book.receive("first", tag="m")
    book.end(back, kind=kind)
    book.end(sending, id="second", due=book.now + 1_000, outcome="created")
    book.now += 1_000
    book.receive("second", tag="m", token="2")
    book.act("ack", "second", token="2")
    assert rolled_back(book) == (kind == "lost claims")


@pytest.mark.parametrize("kind", ["lost claims", "kill"])
def test_an_old_ack_may_have_ended_what_a_failover_has_lost_the_later_claim_of(book: Book, kind: str) -> None:
    book.send()
    book.receive("m")
    book.now += 10_000  # its lease ends
    book.receive("m", token="2", attempt=2)
    back = book.begin("fault", kind=kind)
    book.act("ack", token="1", result="unknown")
    book.end(back, kind=kind)
    book.look()
    assert rolled_back(book) == (kind == "lost claims")


@pytest.mark.parametrize("when", ["before the failover", "after it"])
@pytest.mark.parametrize("op", ["retry", "release"])
def test_a_failover_has_not_lost_a_claim_whose_holder_has_ended_it(book: Book, op: str, when: str) -> None:
    book.send()
    book.receive("m")
    book.now += 10_000
    book.receive("m", token="2", attempt=2)
    if when == "before the failover":
        book.act(op, token="2", delay=0)
    back = book.begin("fault", kind="lost claims")
    book.act("ack", token="1", result="unknown")
    book.end(back, kind="lost claims")
    if when == "after it":
        book.act(op, token="2", delay=0)
    book.look()
    assert not rolled_back(book)


def test_an_old_ack_has_not_ended_what_a_failover_an_hour_later_has_lost_the_claim_of(book: Book) -> None:
    book.send()
    book.receive("m")
    book.act("ack", token="1", result="unknown")
    book.now += 10_000
    book.receive("m", token="2", attempt=2)
    book.now += 3_600_000
    back = book.begin("fault", kind="lost claims")
    book.end(back, kind="lost claims")
    book.look()
    assert not rolled_back(book)


def test_a_failover_that_loses_claims_loses_nothing_that_was_confirmed(book: Book) -> None:
    back = book.begin("fault", kind="lost claims")
    book.send()
    book.receive("m")
    book.end(back, kind="lost claims")
    book.look()
    assert not rolled_back(book)


def test_a_failover_that_loses_claims_loses_no_cancel(book: Book) -> None:
    book.send()
    back = book.begin("fault", kind="lost claims")
    book.act("cancel", outcome="cancelled")
    book.end(back, kind="lost claims")
    book.receive("m")
    assert not rolled_back(book)
