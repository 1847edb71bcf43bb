"""What becomes of a RabbitMQ message when its delivery ends, and what its label tells from copy to copy."""

import json

import pytest

from bide.engines.base import End, NewMessage
from bide.engines.rabbitmq import label
from bide.engines.rabbitmq.label import HEADER, Label, LabelledDelivery, label_of, lease_ended, outcome, unused
from bide.errors import BadOption

NOW = 1_000_000
FRESH = Label(id="1", topic="mail", due=NOW, since=NOW, most=3)


def _end(verdict: str, **options: object) -> End:
    return End("mail", "1", "0000000001", verdict, **options)  # type: ignore[arg-type]


def test_attempts_and_tokens_go_on_from_copy_to_copy() -> None:
    # Given a first delivery, that was made twice since a worker died
    second = LabelledDelivery(FRESH, b"x", 1)
    assert (second.attempt, second.token) == (2, "0000000002")
    # When it fails
    copy = outcome(_end("retry", delay=500), second, NOW).label
    assert copy is not None
    third = LabelledDelivery(copy, b"x", 0)
    assert (third.attempt, third.token, third.label.due) == (3, "0000000003", NOW + 500)
    # And a release counts no attempt, and a new token
    given_back = outcome(_end("release"), third, NOW).label
    assert given_back is not None
    fourth = LabelledDelivery(given_back, b"x", 0)
    assert (fourth.attempt, fourth.token, fourth.label.due) == (3, "0000000004", NOW + 500)


def test_the_last_attempt_buries() -> None:
    what = outcome(_end("retry", error="oops"), LabelledDelivery(FRESH, b"x", 2), NOW + 7)
    assert what.ended == "dead"
    assert what.label is not None
    assert (what.label.used, what.label.error, what.label.died) == (3, "oops", NOW + 7)
    # And a requeued one has all of its attempts again, with tokens that rise
    again = LabelledDelivery(what.label.revived(NOW + 99), b"x", 0)
    assert (again.attempt, again.label.due, again.label.since, again.label.died) == (1, NOW + 99, NOW + 99, None)
    assert again.token > "0000000003"


def test_a_lease_that_ends_counts_as_an_attempt_and_begins_the_first() -> None:
    what = lease_ended(LabelledDelivery(FRESH, b"x", 0), NOW + 50, began=NOW + 5)
    assert what.label is not None
    assert (what.ended, what.label.used, what.label.began, what.label.due) == ("scheduled", 1, NOW + 5, NOW)
    assert lease_ended(LabelledDelivery(FRESH, b"x", 2), NOW).ended == "dead"


def test_what_was_not_begun_counts_nothing() -> None:
    assert LabelledDelivery(unused(LabelledDelivery(FRESH, b"x", 0)), b"x", 0).attempt == 1


@pytest.mark.parametrize("verdict", ["retry", "release"])
def test_what_would_come_back_after_its_expiry_ends(verdict: str) -> None:
    brief = label_of(NewMessage("mail", b"x", expires_in=100), "1", NOW)
    assert outcome(_end(verdict, delay=99), LabelledDelivery(brief, b"x", 0), NOW).ended == "scheduled"
    assert outcome(_end(verdict, delay=100), LabelledDelivery(brief, b"x", 0), NOW).ended == "expired"
    assert outcome(_end(verdict), LabelledDelivery(brief, b"x", 0), NOW + 100).ended == "expired"


def test_expiry_counts_from_the_new_due_time_of_a_requeued_message() -> None:
    brief = label_of(NewMessage("mail", b"x", expires_in=100), "1", NOW)
    assert brief.buried(NOW + 5, 1, 1, None).revived(NOW + 1_000).expires == NOW + 1_100


def test_a_label_is_read_as_it_was_written() -> None:
    whole = Label("1", "mail", 2, 3, 4, 5, 6, 7, 8, {"名": "値 🐎", "": "\0"}, "why \x1b", 9)
    found = label.read({HEADER: label.written(whole), label.COUNT: 2}, b"\0body")
    assert found == LabelledDelivery(whole, b"\0body", 2)


@pytest.mark.parametrize("headers", [None, {}, {HEADER: "no json"}, {HEADER: 5}, {HEADER: "{}"}, {HEADER: '{"id": 1}'}])
def test_what_others_have_sent_has_no_label(headers: dict[str, object] | None) -> None:
    assert label.read(headers, b"x") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "x" * 300},
        {"id": ""},
        {"id": "\ud800"},
        {"topic": "a:b"},
        {"topic": "x" * 200},
        {"topic": "#\n"},
        {"due": -1},
        {"due": 10**18},
        {"due": 10**30},
        {"since": 1.5},
        {"told": -5},
        {"used": 2**40},
        {"most": "3"},
        {"headers": {"a": 1}},
    ],
)
def test_a_label_that_bide_can_t_have_written_is_none(wrong: dict[str, object]) -> None:
    right: dict[str, object] = {"id": "1", "topic": "mail", "due": 5, "since": 5}
    assert label.read({HEADER: json.dumps(right)}, b"x") is not None
    assert label.read({HEADER: json.dumps(right | wrong)}, b"x") is None


def test_headers_that_the_protocol_can_t_carry_are_refused() -> None:
    with pytest.raises(BadOption, match="headers are over"):
        label.written(label_of(NewMessage("mail", b"", headers={"a": "x" * 200_000}), "1", NOW))
