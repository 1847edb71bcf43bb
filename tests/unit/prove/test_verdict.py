"""What the checker answers, what it reads, and what it holds against a whole run."""

from pathlib import Path

import pytest

from bide import Capabilities
from bide.prove import History, check, read
from tests.unit.prove.book import Book, sent_and_done

# the verdict


def test_an_empty_history_has_a_report_too() -> None:
    report = check([])
    assert (report.valid, report.looked) == ("unknown", False)
    assert "No send was accepted." in str(report)


def test_the_report_says_whether_the_end_was_looked_at(book: Book) -> None:
    sent_and_done(book)
    assert not book.check().looked
    book.look()
    assert book.check().looked


def test_a_message_that_was_sent_delivered_and_acked_is_valid(book: Book) -> None:
    sent_and_done(book)
    book.look()
    report = book.check()
    assert report.valid is True
    assert {name: report.counts[name] for name in ("sent", "accepted", "delivered", "acked", "left")} == {
        "sent": 1, "accepted": 1, "delivered": 1, "acked": 1, "left": 0,
    }  # fmt: skip


def test_a_run_that_accepted_nothing_is_unknown(book: Book) -> None:
    book.send(result="fail")
    book.look()
    assert book.check().valid == "unknown"


def test_a_run_that_delivered_nothing_is_unknown(book: Book) -> None:
    book.send()
    book.look({"id": "m"})
    assert book.check().valid == "unknown"


def test_a_run_whose_faults_never_landed_is_unknown(book: Book) -> None:
    sent_and_done(book)
    book.look()
    book.end(book.begin("fault", kind="kill"), "ok")
    assert book.check().valid is True
    book.end(book.begin("fault", kind="partition"), "fail")
    assert book.check().valid == "unknown"
    assert book.check().faults == {"kill": (1, 1), "partition": (1, 0)}


def test_a_run_is_unknown_when_nobody_looked_for_what_came_to_no_end(book: Book) -> None:
    sent_and_done(book)
    assert book.check().valid is True
    book.send("m")
    assert book.check().valid == "unknown"


def test_a_violation_weighs_more_than_a_doubt(book: Book) -> None:
    book.send()
    book.receive("m")
    book.receive("m", token="2", attempt=2)
    assert book.check().valid is False


def test_the_report_tells_the_story_of_the_first_few(book: Book) -> None:
    sent_and_done(book)
    for number in range(5):
        book.send(f"m{number}", operation=f"o{number}")
    book.look()
    report = book.check(stories=2)
    assert [len(each.story) for each in report.violations["no loss"]] == [2, 2, 0, 0, 0]
    page = str(report)
    assert "valid: NO" in page
    assert "BROKEN, 5 times: no loss" in page
    assert "operation=o1" in page
    assert "operation=o2" not in page
    assert "and 3 more" in page


# the rest


@pytest.mark.parametrize(("came_out", "holds"), [(0, True), (1, False), (3, True)])
def test_a_batch_of_unknown_outcome_comes_out_whole_or_not_at_all(book: Book, came_out: int, holds: bool) -> None:
    for number in range(3):
        book.send(f"m{number}", "unknown", batch=7)
    for number in range(came_out):
        book.receive(f"m{number}")
        book.act("ack", f"m{number}", token="1")
    book.look()
    assert ("batches" not in book.broken()) == holds
    assert not book.broken(batches=False)


@pytest.mark.parametrize(("told", "holds"), [(1, True), (2, False)])
def test_counts_are_those_of_what_is_there(book: Book, told: int, holds: bool) -> None:
    sent_and_done(book)
    book.send()
    book.look({"id": "m"}, counts={"t": {"scheduled": told}})
    assert ("counts agree" not in book.broken()) == holds


def test_a_message_stays_in_its_topic(book: Book) -> None:
    book.send()
    book.deliver("m", topic="u")
    assert "isolation" in book.broken()


def test_a_receiver_gets_what_it_asked_for(book: Book) -> None:
    book.send(topic="u")
    book.receive("m", topic="u")
    assert "isolation" in book.broken()


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_paused_topic_hands_out_nothing_until_it_is_resumed(book: Book, when: str) -> None:
    book.send()
    receiving = book.begin("receive", topics=["t"]) if when == "before" else ("", 0)
    book.act("pause", None, topic="t")
    resuming = book.begin("resume", topic="t") if when == "after" else ("", 0)
    if when != "before":
        receiving = book.begin("receive", topics=["t"])
    book.deliver("m", call=receiving[1])
    book.end(receiving)
    if when == "after":
        book.end(resuming)
    assert ("pause" in book.broken()) == (when == "during")


def test_what_an_engine_does_not_promise_is_not_asked_of_it(book: Book) -> None:
    book.send()
    book.receive("m", token="x", attempt=1, now=1_010)
    book.receive("m", token="x", attempt=1, now=1_200)
    assert book.broken() == {"fencing", "attempts"}
    assert not book.broken(can=Capabilities(accepted="", fencing=False, attempts=False))


# files


def test_an_operation_whose_end_was_never_written_is_unknown(book: Book) -> None:
    sent_and_done(book)
    book.act("ack", "other", token="1", result="unknown")
    assert book.check().counts["unknown"] == 1


def test_a_torn_last_line_is_ignored(book: Book) -> None:
    sent_and_done(book)
    whole = list(read(book.path))
    with book.path.open("ab") as file:
        file.write(b'{"mono":1,"wall":2,"proc')
    assert len(list(read(book.path))) == len(whole)


def test_a_torn_last_line_is_cut_off_when_its_process_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    for _ in range(2):
        with History(path, "p") as history, history.fault("kill"):
            pass
        with path.open("ab") as file:
            file.write(b'{"mono":1,"wall":2,"proc')
    assert [record.op for record in read(path)] == ["begin", "fault", "fault"] * 2


def test_a_line_that_is_no_record_is_an_error(book: Book) -> None:
    book.file.write(b"{}\n")
    sent_and_done(book)
    with pytest.raises(ValueError, match=r"Line 2 of .* is not a record"):
        book.check()


def test_histories_of_two_machines_are_not_judged_together(tmp_path: Path, book: Book) -> None:
    other = Book(tmp_path / "q.jsonl")
    other.one("begin", note="that machine")
    other.file.close()
    with pytest.raises(ValueError, match="several machines"):
        check([book.path, other.path])
