"""`bide stats`, `topics`, `dead`, `requeue`, `purge`, `pause`, `resume` and `doctor`: what they do and what they answer."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bide import Queue, Stats
from tests.cli.running import Bide, buried

COUNTS = {
    "topic", "scheduled", "ready", "leased", "dead", "dead_dropped", "paused", "oldest_overdue", "next_due", "next_due_ms",
    "about",
    "missing",
}  # fmt: skip


@pytest.fixture
def filled(queue: Queue) -> Queue:
    """One message of each state in order.pack, and a paused topic."""
    buried(queue, "order.pack")
    queue.send_many("order.pack", [1, 2])
    queue.receive("order.pack")
    queue.send("order.pack", 3, delay="1h")
    queue.send("mail", 1, delay="2h")
    queue.pause("mail")
    return queue


def test_stats_count_one_topic_or_all(bide: Bide, filled: Queue) -> None:
    one, all_of_them = bide("stats", "order.pack").out, bide("stats").out
    for name, count in (("scheduled", 1), ("ready", 1), ("leased", 1), ("dead", 1), ("paused", "no")):
        assert re.search(rf"^{name} +{count}$", one, re.MULTILINE)
    for name, count in (("topics", 2), ("scheduled", 2), ("paused", "mail")):
        assert re.search(rf"^{name} +{count}$", all_of_them, re.MULTILINE)
    assert re.search(r"^next due +\d{4}-\d\d-\d\d .*, in (1h|59m 5\ds)$", one, re.MULTILINE)


def test_stats_and_topics_have_the_same_fields_in_json(bide: Bide, filled: Queue) -> None:
    one, all_of_them = (json.loads(bide("stats", *topic, "--json").out) for topic in (["mail"], []))
    each = [json.loads(line) for line in bide("topics", "--json").out.splitlines()]
    assert one.keys() == all_of_them.keys() == each[0].keys() == COUNTS
    assert [answer["topic"] for answer in each] == ["mail", "order.pack"]
    assert (one, all_of_them["topic"], all_of_them["scheduled"]) == (each[0], None, 2)
    assert (one["paused"], one["oldest_overdue"]) == (True, None)
    assert one["next_due"].endswith("Z")


def test_topics_are_a_table(bide: Bide, filled: Queue) -> None:
    head, mail, pack = bide("topics").out.splitlines()
    assert head.split() == ["topic", "scheduled", "ready", "leased", "dead", "paused", "overdue", "next", "due"]
    assert re.fullmatch(r"mail +1 +0 +0 +0  paused +in [12].*", mail)
    assert re.fullmatch(r"order.pack +1 +1 +1 +1 +\d+s +in .*", pack)


def test_no_topics_are_said_beside_the_result(bide: Bide, queue: Queue) -> None:
    queue.stats()
    assert bide("topics") == (0, "", "There are no topics.\n")


def test_dead_letters_are_listed_with_their_errors(bide: Bide, queue: Queue) -> None:
    ids = buried(queue, "t", 5)
    head, *rows = bide("dead", "t").out.splitlines()
    assert head.split() == ["id", "was", "due", "at", "attempts", "key", "last", "error"]
    assert [row.split()[0] for row in rows] == ids
    assert all(row.endswith("  no such order") for row in rows)
    part = bide("dead", "t", "--limit", "2", "--json")
    assert [json.loads(line)["last_error"] for line in part.out.splitlines()] == ["no such order"] * 2
    assert "There are more" in part.err
    assert bide("dead", "other") == (0, "", "other has no dead letters.\n")


def test_dead_letters_are_requeued_by_name(bide: Bide, queue: Queue) -> None:
    first, second, third = buried(queue, "t", 3)
    assert bide("requeue", "t", first, first).out == "Requeued 1 of 1 dead letter of t.\n"
    assert bide("requeue", "t", second, "0" * 16) == (
        4,
        "Requeued 1 of 2 dead letters of t. 1 message had moved or ended before.\n",
        "",
    )
    assert bide("requeue", "t", third, "--delay", "1h", "--json") == (
        0,
        '{"topic":"t","requeued":1,"keyless":0,"asked":1,"gone":0,"missing":[],"refused":[],"unconfirmed":null}\n',
        "",
    )
    assert [each.state for each in queue.messages("t")] == ["ready", "ready", "scheduled"]


def test_requeue_says_which_key_a_newer_message_holds(bide: Bide, queue: Queue) -> None:
    for key in ("a", "b", "c"):
        queue.send("t", key=key, max_attempts=1)
        [taken] = queue.receive("t")
        taken.bury("no such order")
    queue.send("t", key="b", delay="1h")
    said = "Requeued 3 of 3 dead letters of t.\n1 of them lost its key, because a newer message has it.\n"
    assert bide("requeue", "t", "--all") == (0, said, "")
    assert sorted(each.key or "" for each in queue.messages("t")) == ["", "a", "b", "c"]


def test_dead_letters_are_requeued_all_together(bide: Bide, queue: Queue) -> None:
    for _ in range(3):
        buried(queue, "t", 800)
    assert bide("requeue", "t", "--all").out == "Requeued 2,400 of 2,400 dead letters of t.\n"
    assert (queue.stats("t").ready, queue.stats("t").dead) == (2_400, 0)
    assert bide("requeue", "t", "--all").out == "t has no dead letters.\n"


@pytest.mark.parametrize("wrong", [[], ["id", "--all"], ["--all", "--delay", "soon"]], ids=repr)
def test_requeue_wants_ids_or_all(bide: Bide, queue: Queue, wrong: list[str]) -> None:
    buried(queue, "t")
    assert bide("requeue", "t", *wrong).code == 2
    assert queue.stats("t").dead == 1


def test_purge_without_a_terminal_needs_yes(bide: Bide, filled: Queue) -> None:
    refused = bide("purge", "order.pack", "--state", "dead", stdin="y\n")
    assert (refused.code, refused.out) == (2, "")
    assert "--yes" in refused.err
    assert filled.stats("order.pack").dead == 1


def test_purge_drops_what_is_in_that_state_and_nothing_else(bide: Bide, filled: Queue) -> None:
    assert bide("purge", "order.pack", "--state", "dead", "--yes") == (0, "Deleted 1 dead letter of order.pack.\n", "")
    assert bide("purge", "order.pack", "--state", "dead", "--yes") == (0, "order.pack has no dead letters.\n", "")
    ended = bide("purge", "order.pack", "--state", "ready", "--yes", "--json")
    assert json.loads(ended.out) == {
        "topic": "order.pack",
        "purged": 1,
        "state": "ready",
        "asked": 1,
        "gone": 0,
        "missing": [],
        "refused": [],
        "unconfirmed": None,
    }
    left = filled.stats("order.pack")
    assert (left.scheduled, left.ready, left.leased, left.dead) == (1, 0, 1, 0)


def test_purge_of_leased_ones_is_refused(bide: Bide, filled: Queue) -> None:
    ended = bide("purge", "order.pack", "--state", "leased", "--yes")
    assert (ended.code, ended.out) == (2, "")
    assert "scheduled" in ended.err
    assert filled.stats("order.pack").leased == 1
    assert bide("purge", "order.pack", "--yes").code == 2
    offered = bide("purge", "--help").out
    assert "scheduled|ready|dead" in re.sub(r"\s", "", offered)


@pytest.mark.parametrize("command", ["stats", "resume"])
def test_a_topic_that_holds_nothing_may_be_a_slip_of_the_pen(bide: Bide, queue: Queue, command: str) -> None:
    assert "There are no topics." in bide(command, "order.pack").err
    queue.send("order.pack")
    ended = bide(command, "order.pakc")
    assert ended.code == 0
    assert ended.out
    assert ended.err == "bide: order.pakc has no messages. Known topics: order.pack.\n"
    assert bide(command, "order.pack").err == ""


def test_a_mistyped_topic_is_not_paused_unless_it_is_meant(bide: Bide, queue: Queue) -> None:
    queue.send("mail.send")
    refused = bide("pause", "mail.sned")
    assert refused.code == 1
    assert refused.out == ""
    assert "mail.sned has no messages. Known topics: mail.send. Nothing was paused." in refused.err
    assert "--empty" in refused.err
    assert "mail.sned" not in queue.topics()
    assert bide("pause", "mail.sned", "--empty").out == "Paused mail.sned; due messages wait, running handlers go on.\n"
    queue.send("mail.sned")
    assert queue.receive("mail.sned") == []


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_pattern_is_no_topic_to_pause(bide: Bide, queue: Queue, command: str) -> None:
    queue.send("order.pack")
    refused = bide(command, "order.*")
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    assert "The topic is 'order.*'. A topic is 1 to 128 characters" in refused.err
    assert "--empty" not in refused.err


def test_a_topic_that_may_be_on_a_server_that_does_not_answer_is_not_called_mistyped(
    bide: Bide, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send("other")
    real = Queue.stats

    def partly(self: Queue, *asked: Any, **options: Any) -> Stats:
        return msgspec.structs.replace(real(self, *asked, **options), missing=["127.0.0.1:1"])

    monkeypatch.setattr(Queue, "stats", partly)
    assert bide("pause", "mail").out == "Paused mail; due messages wait, running handlers go on.\n"
    assert bide("resume", "mail").err == ""


def test_a_topic_is_paused_and_resumed(bide: Bide, queue: Queue) -> None:
    queue.send("t")
    assert bide("pause", "t").out == "Paused t; due messages wait, running handlers go on.\n"
    assert queue.receive("t") == []
    assert bide("resume", "t").out == "Resumed t; 1 message waiting.\n"
    assert len(queue.receive("t")) == 1
    assert bide("pause", "t", "--json").out == '{"topic":"t","paused":true}\n'
    assert bide("resume", "t", "--json").out == '{"topic":"t","paused":false}\n'


def test_the_doctor_makes_nothing(bide: Bide, folder: Path) -> None:
    ended = bide("doctor")
    assert ended.code == 0
    assert "not there yet" in ended.out
    assert {each["name"] for each in json.loads(bide("doctor", "--json").out)} >= {"file", "state"}
    assert list(folder.iterdir()) == []
    assert bide("doctor", "--url", "memory://").code == 0
