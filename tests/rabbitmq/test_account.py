"""What the judge of the storms says of a message that a broker has doubled: histories by hand."""

from pathlib import Path

import pytest

from tests.rabbitmq.account import Account, account
from tests.unit.prove.book import Book

PAUSE = 50  # ms, of the retry


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "p.jsonl")


def end_of(book: Book) -> Account:
    book.file.close()
    return account([book.path])


def killed(book: Book) -> None:
    fault = book.begin("fault", kind="kill")
    book.end(fault, note=str(book.now * 1_000_000))


def handed_out_and_put_off(book: Book) -> int:
    """The due time."""
    due = book.now
    book.receive("m", token="1", due=due)
    book.act("retry", token="1", delay=PAUSE)
    return due


def handed_out_as_before(book: Book, due: int, token: str = "2") -> None:
    book.receive("m", token=token, due=due)
    book.act("ack", token=token)


def handed_out_in_its_time(book: Book, token: str = "3") -> None:
    book.now += PAUSE
    book.receive("m", token=token, attempt=2)
    book.act("ack", token=token)


def test_a_message_that_a_kill_doubled_on_its_way_may_come_in_the_midst_of_a_retry(book: Book) -> None:
    book.send()
    killed(book)
    due = handed_out_and_put_off(book)
    handed_out_as_before(book, due)
    handed_out_in_its_time(book)
    found = end_of(book)
    assert found.good, str(found)
    assert found.repeats == {"retry": 1, "kill, in the ladder": 1}


def test_so_may_one_that_a_worker_put_back_for_a_moment(book: Book) -> None:
    book.send()
    killed(book)
    due = handed_out_and_put_off(book)
    handed_out_as_before(book, due + 1)
    handed_out_in_its_time(book, token="2")
    found = end_of(book)
    assert found.good, str(found)


def test_so_may_one_whose_ack_was_lost_in_a_kill(book: Book) -> None:
    book.send()
    due = handed_out_and_put_off(book)
    killed(book)
    handed_out_as_before(book, due)
    handed_out_in_its_time(book)
    found = end_of(book)
    assert found.good, str(found)


def test_without_a_fault_it_is_early(book: Book) -> None:
    book.send()
    due = handed_out_and_put_off(book)
    handed_out_as_before(book, due)
    handed_out_in_its_time(book)
    killed(book)
    found = end_of(book)
    assert set(found.broken) == {"never early"}
    assert len(found.unexplained) == 1
    assert str(found).startswith("UNEXPLAINED m")


def test_a_kill_does_not_excuse_a_retry_that_comes_early(book: Book) -> None:
    book.send()
    killed(book)
    handed_out_and_put_off(book)
    book.receive("m", token="2", attempt=2)
    book.act("ack", token="2")
    found = end_of(book)
    assert set(found.broken) == {"never early"}
