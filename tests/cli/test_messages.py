"""`bide send`, `list`, `show`, `cancel` and `reschedule`: what they do and what they answer."""

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest

from bide import Queue, types
from tests.cli.running import Bide, buried

MESSAGE = {
    "id", "topic", "state", "due", "due_ms", "attempt", "max_attempts", "key", "priority", "body", "body_base64",
    "headers", "last_error", "lease_until", "lease_until_ms", "leased_since", "leased_since_ms", "worker",
    "expires", "expires_ms",
}  # fmt: skip


# send


def test_a_message_is_sent_with_all_its_options(bide: Bide, queue: Queue) -> None:
    ended = bide(
        *("send", "order.cancel", '{"order": 42}', "--delay", "15m", "--key", "order:42", "--priority", "high"),
        *("--expires-in", "1h", "--max-attempts", "5", "--header", "by=Ada", "--header", "to=a=b"),
    )
    info = queue.get(topic="order.cancel", key="order:42")
    assert info is not None
    assert (ended.code, ended.err) == (0, "")
    assert re.fullmatch(rf"{info.id}  due \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d(:\d\d)?, in 1[45]m.*\n", ended.out)
    assert (info.body, info.priority, info.max_attempts) == ({"order": 42}, "high", 5)
    assert info.headers == {"by": "Ada", "to": "a=b"}
    assert info.expires == info.due + 3_600_000


def test_send_answers_json_that_has_its_id_and_due_time(bide: Bide, queue: Queue) -> None:
    answer = json.loads(bide("send", "t", "1", "--at", "2030-01-15T09:00:00+01:00", "--json").out)
    due_ms = round(datetime(2030, 1, 15, 8, tzinfo=UTC).timestamp() * 1000)
    [info] = queue.messages("t")
    assert answer == {
        "id": info.id, "topic": "t", "outcome": "created", "due": "2030-01-15T08:00:00.000Z", "due_ms": due_ms,
    }  # fmt: skip


def test_a_delay_may_be_a_number_of_seconds(bide: Bide, queue: Queue) -> None:
    bide("send", "t", "--delay", "90")
    [info] = queue.messages("t")
    assert info.body is None
    assert timedelta(seconds=60) < info.due_at - datetime.now(UTC) <= timedelta(seconds=90)


def test_a_key_that_is_taken_is_answered_as_if_exists_says(bide: Bide) -> None:
    same = ("send", "t", "1", "--delay", "1h", "--key", "k")
    assert "due" in bide(*same).out
    assert "was kept" in bide(*same).out
    assert "got the new body and time" in bide(*same, "--if-exists", "replace").out
    assert "the later time" in bide(*same, "--if-exists", "later").out
    refused = bide(*same, "--if-exists", "error")
    assert refused.code == 1
    assert re.fullmatch(r"bide: Message \w+ of t has the key 'k' and has not ended\. Cancel or reschedule it .*\n", refused.err)


def test_max_wait_bounds_how_far_later_sends_move_a_message(bide: Bide, queue: Queue) -> None:
    later = ("send", "t", "1", "--key", "k", "--if-exists", "later", "--json")
    first = json.loads(bide(*later, "--delay", "1m", "--max-wait", "1h").out)
    last = json.loads(bide(*later, "--at", "2100-01-15T09:00:00+01:00", "--max-wait", "1h").out)
    assert (last["id"], last["outcome"]) == (first["id"], "postponed")
    assert last["due_ms"] == first["due_ms"] - 60_000 + 3_600_000  # after the first send
    assert bide("send", "t", "1", "--max-wait", "1h").code == 1


def test_merge_gathers_bodies_in_a_list(bide: Bide, queue: Queue, folder: Path) -> None:
    merge = ("--key", "k", "--if-exists", "merge", "--delay", "1h")
    first = json.loads(bide("send", "t", '{"a": 1}', *merge, "--json").out)
    assert json.loads(bide("send", "t", "[2]", *merge, "--json").out) == {**first, "outcome": "merged"}
    assert "at the end of its list" in bide("send", "t", "three", "--text", *merge).out
    [line] = bide("list", "t", "--json").out.splitlines()
    assert json.loads(line)["body"] == [{"a": 1}, [2], "three"]
    # And goes to another queue as it is
    (folder / "all.jsonl").write_text(bide("list", "--all", "--json").out)
    assert queue.cancel(first["id"])
    assert bide("send", "--from", "all.jsonl").code == 0
    assert json.loads(bide("send", "t", "4", *merge, "--json").out)["outcome"] == "merged"
    [info] = queue.messages("t")
    assert info.body == [{"a": 1}, [2], "three", 4]
    assert bide("send", "--from", "all.jsonl", "--if-exists", "merge").code == 2


def test_unique_for_sends_once_in_its_time(bide: Bide, queue: Queue) -> None:
    once = ("send", "t", "1", "--key", "k", "--unique-for", "1h")
    first = json.loads(bide(*once, "--json").out)
    assert queue.cancel(first["id"])
    assert json.loads(bide(*once, "--json").out) == {**first, "outcome": "duplicate"}
    assert "nothing was sent now" in bide(*once).out
    assert bide(*once, "--if-exists", "error").code == 1


def test_an_operation_sent_twice_acts_once(bide: Bide, queue: Queue) -> None:
    first, again = (json.loads(bide("send", "t", "1", "--operation", "o", "--json").out) for _ in range(2))
    assert first["id"] == again["id"]
    assert queue.stats("t").ready == 1


def test_a_body_that_is_no_json_is_refused_and_the_quoting_is_shown(bide: Bide, folder: Path) -> None:
    ended = bide("send", "t", "hello")
    assert (ended.code, ended.out) == (2, "")
    assert """'"text"'""" in ended.err
    assert "--text" in ended.err
    assert list(folder.iterdir()) == []


def test_a_text_is_sent_as_it_stands(bide: Bide, queue: Queue) -> None:
    bide("send", "t", '{"not": json', "--text")
    [info] = queue.messages("t")
    assert info.body == '{"not": json'


@pytest.mark.parametrize(
    "wrong",
    [
        ["--delay", "soon"], ["--delay", "-5"], ["--delay", ""], ["--delay", "200000d"], ["--delay", "1e3"],
        ["--at", "2030-01-15"], ["--at", "tomorrow"], ["--at", "2030-01-15T09:00:00"],
        ["--delay", "1s", "--at", "2030-01-15T09:00:00Z"], ["--expires-in", "never"],
        ["--priority", "urgent"], ["--if-exists", "maybe"], ["--max-attempts", "0"], ["--max-attempts", "many"],
        ["--header", "name"], ["--header", "=value"], ["--from", "nowhere.jsonl"], ["--from", "."], ["--from", "\0"],
        ["--from", "-", "--stdin", "1"], ["--stdin", "--key", "k"], ["--nonsense"], ["1", "2"], ["NaN"], ["[" * 2_000],
        ["\ud800"], ["--url", "sqlite:///a.db", "--url-file", "u"],
    ],
    ids=repr,
)  # fmt: skip
def test_a_command_line_that_makes_no_sense_ends_with_2_and_a_sentence(bide: Bide, folder: Path, wrong: list[str]) -> None:
    ended = bide("send", "t", *wrong)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("bide send: ")
    assert ended.err.endswith("\nTry: bide send --help\n")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["send", "t", "--priority", "urgent"], "'urgent' is not one of 'high', 'normal', 'low'."),
        (["send", "t", "--max-attempts", "0"], "greater than or equal to 1"),
        (["purge", "t", "--yes"], "scheduled, ready, dead"),
    ],
    ids=repr,
)
def test_what_typer_refuses_is_one_line_of_plain_words(bide: Bide, wrong: list[str], said: str) -> None:
    first, *rest = bide(*wrong).err.splitlines()
    assert said in first
    assert rest == [f"Try: bide {wrong[0]} --help"]
    assert not any(each in first for each in ("\\u000a", "Value error", "Input should"))


@pytest.mark.parametrize(
    "wrong",
    [
        ["a b", "1"], ["", "1"], ["\u202et", "1"], ["t" * 129, "1"], ["t", "1", "--key", ""], ["t", "1", "--key", "a\nb"],
        ["t", "1", "--operation", "o" * 129], ["t", '"' + "x" * 300_000 + '"'], ["t", "1", "--header", "a=" + "x" * 9_000],
        ["t", "1", "--at", "9999-12-31T00:00:00Z"], ["t", "1", "--namespace", "a b"], ["t", "1", "--header", "a=\ud800"],
    ],
    ids=lambda wrong: ascii(wrong)[:40],
)  # fmt: skip
def test_what_a_queue_refuses_ends_with_1_and_its_sentence(bide: Bide, queue: Queue, wrong: list[str]) -> None:
    ended = bide("send", *wrong)
    assert (ended.code, ended.out) == (1, "")
    assert re.fullmatch(r"bide: .{20,700}\.\n", ended.err)
    assert queue.topics() == []


# many


def test_a_body_a_line_is_sent_from_a_file_or_a_pipe(bide: Bide, queue: Queue, folder: Path) -> None:
    lines = "".join(f'{{"cart": {number}}}\n\n' for number in range(2_500))
    (folder / "carts.jsonl").write_text(lines)
    assert bide("send", "file", "--from", "carts.jsonl", "--delay", "1h") == (0, "Sent 2,500 messages to file.\n", "")
    for way in (["-"], ["--stdin"], ["--from", "-"]):
        assert bide("send", "pipe", *way, stdin='{"a":1}\r\n2').out == "Sent 2 messages to pipe.\n"
    assert queue.stats("file").scheduled == 2_500
    assert [each.body for each in queue.messages("pipe", limit=2)] == [{"a": 1}, 2]


def test_texts_are_sent_a_line_each(bide: Bide, queue: Queue) -> None:
    bide("send", "t", "--text", "-", stdin="one\n two \n")
    assert [each.body for each in queue.messages("t")] == ["one", " two "]


def test_each_of_many_is_answered_in_json_lines(bide: Bide, queue: Queue) -> None:
    answers = [json.loads(line) for line in bide("send", "t", "-", "--json", stdin="1\n2\n").out.splitlines()]
    assert [each["id"] for each in answers] == [each.id for each in queue.messages("t")]
    assert all(answer.keys() == {"id", "topic", "outcome", "due", "due_ms"} for answer in answers)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"oops", "it is not JSON"), (b'["\\ud800"]', "half of a character"), (b"[NaN]", "it is not JSON"),
        (b"\xff\xfe", "it is not"), (b"[" * 200_000, "nested too deeply"),
        (b'"' + b"x" * 300_000 + b'"', "the limit is 262,144"), (b"1" * (4 * 2**20 + 1), "longer than 4,194,304 bytes"),
    ],
    ids=["no json", "half a character", "no number", "no text", "deep", "large", "endless"],
)  # fmt: skip
def test_a_bad_line_is_named_with_what_was_accepted_before_it(bide: Bide, queue: Queue, line: bytes, why: str) -> None:
    ended = bide("send", "t", "-", stdin=b"1\n" * 1_999 + b"\n" + line + b"\n3\n")
    assert ended.code == 1
    assert ended.err.startswith("bide: Line 2,001")
    assert why in ended.err
    rest = "To send the rest, run this, with the OPTIONS of this one: sed -n '1001,$p' FILE | bide send t - OPTIONS"
    assert ended.err.endswith(f"Accepted before the error: 1,000 messages. {rest}\n")
    assert queue.stats("t").ready == 1_000


def test_a_file_with_a_bad_line_sends_nothing(bide: Bide, folder: Path) -> None:
    (folder / "carts.jsonl").write_text("1\n" * 1_500 + "oops\n")
    ended = bide("send", "t", "--from", "carts.jsonl")
    assert ended.code == 1
    assert ended.err.startswith("bide: Line 1,501 is not a valid body: it is not JSON")
    assert not (folder / "bide.db").exists()


def test_the_same_lines_sent_again_under_an_operation_add_nothing(bide: Bide, queue: Queue) -> None:
    lines = "\n".join(map(str, range(1_200)))
    for _ in range(2):
        assert bide("send", "t", "-", "--operation", "nightly", stdin=lines).code == 0
    assert queue.stats("t").ready == 1_200


# list


def test_a_list_has_a_line_for_each_message(bide: Bide, queue: Queue) -> None:
    later = queue.send("t", {"order": 42}, delay="1h", key="order:42")
    ready = queue.send("t", "now")
    head, first, second = bide("list", "t").out.splitlines()
    assert head.split() == ["id", "state", "due", "at", "attempt", "key", "body"]
    assert re.fullmatch(rf"{ready.id}  ready +now +\d{{4}}-.* 0/3 +\"now\"", first)
    assert re.fullmatch(rf'{later.id}  scheduled  in [159hms ]+  \d{{4}}-.*  0/3 +order:42  {{"order":42}}', second)


def test_a_list_goes_on_where_the_last_one_ended(bide: Bide, queue: Queue) -> None:
    ids = [each.id for each in queue.send_many("t", range(450))]
    seen, mark = [], ()
    while True:
        ended = bide("list", "t", "--limit", "225", "--json", *mark)
        seen += [json.loads(line)["id"] for line in ended.out.splitlines()]
        if not ended.err:
            break
        mark = ("--after", ended.err.partition("--after ")[2].partition(",")[0])  # type: ignore[assignment]
    assert seen == ids
    assert [json.loads(line)["id"] for line in bide("list", "t", "--all", "--json").out.splitlines()] == ids
    assert len(bide("list", "t").out.splitlines()) == 1 + 100


def test_a_list_can_be_of_one_state(bide: Bide, queue: Queue) -> None:
    [dead] = buried(queue, "t")
    queue.send("t", 1)
    answers = [json.loads(line) for line in bide("list", "t", "--state", "dead", "--json").out.splitlines()]
    assert [each["id"] for each in answers] == [dead]
    assert answers[0].keys() == MESSAGE
    assert (answers[0]["state"], answers[0]["last_error"], answers[0]["attempt"]) == ("dead", "no such order", 1)


def test_an_empty_list_says_so_beside_its_result(bide: Bide, queue: Queue) -> None:
    queue.send("other")
    assert bide("list", "t") == (0, "", "t has no messages.\n")
    assert bide("list", "t", "--state", "dead") == (0, "", "t has no dead messages.\n")


def test_a_list_is_all_or_so_many(bide: Bide, queue: Queue) -> None:
    assert bide("list", "t", "--all", "--limit", "3").code == 2
    assert bide("list", "t", "--limit", "0").code == 2
    queue.send("t")
    assert bide("list", "t", "--after", "nonsense").err.startswith("bide: after is not the mark of a page")


# show, cancel, reschedule


def test_show_tells_everything_by_id_or_key(bide: Bide, queue: Queue) -> None:
    sent = queue.send("t", {"a": ["x"]}, key="k", delay="1h", expires_in="1h", headers={"by": "Ada"})
    by_id, by_key = bide("show", sent.id), bide("show", "t", "--key", "k")
    assert by_id.code == by_key.code == 0
    assert by_id.out.splitlines()[:3] == [f"id        {sent.id}", "topic     t", "state     scheduled"]
    for wanted in ("attempt   0 of 3", "key       k", "priority  normal", "expires   ", "header    by=Ada", '"a": ['):
        assert wanted in by_id.out
    as_json = json.loads(bide("show", sent.id, "--json").out)
    assert as_json.keys() == MESSAGE | {"attempts"}
    assert (as_json["body"], as_json["due_ms"], as_json["headers"]) == ({"a": ["x"]}, sent.due, {"by": "Ada"})


def test_show_tells_each_attempt_that_failed_and_the_last_traceback(bide: Bide, queue: Queue) -> None:
    sent = queue.send("t", max_attempts=2)
    for text in ("first", "sec\x1bond"):
        for delivery in queue.receive("t"):
            try:
                raise ValueError(text)
            except ValueError as error:
                delivery.retry(0, error=error)
    shown = bide("show", sent.id).out.splitlines()
    [first] = [line for line in shown if line.startswith("attempt 1")]
    [second] = [line for line in shown if line.startswith("attempt 2")]
    assert first.endswith(f":{os.getpid()}: ValueError: first")
    assert second.endswith("ValueError: sec\\u001bond")
    assert [line for line in shown if line.startswith("traceback")] == ["traceback   Traceback (most recent call last):"]
    assert shown.index(second) < next(i for i, line in enumerate(shown) if "raise ValueError(text)" in line)
    as_json = json.loads(bide("show", sent.id, "--json").out)["attempts"]
    assert [(each["attempt"], each["error"]) for each in as_json] == [(1, "ValueError: first"), (2, "ValueError: sec\x1bond")]
    assert as_json[0].keys() == {"attempt", "began", "began_ms", "worker", "error", "traceback"}
    # And a list of them can still be sent
    listed = bide("list", "--all", "--json").out
    assert "attempts" not in json.loads(listed)
    assert bide("send", "--from", "-", "--dead", stdin=listed).code == 0


def test_show_tells_which_attempts_were_before_a_requeue(bide: Bide, queue: Queue) -> None:
    sent = queue.send("t", max_attempts=1)
    for text in ("first", "second"):
        for delivery in queue.receive("t"):
            delivery.retry(0, error=text)
        queue.requeue("t", ids=[sent.id])
    shown = [line for line in bide("show", sent.id).out.splitlines() if line.startswith("attempt 1")]
    me = os.getpid()
    assert [line.split(":", 3)[-1] for line in shown] == [f"{me} before it was requeued: first", f"{me}: second"]


def test_show_of_what_is_gone_ends_with_1(bide: Bide, queue: Queue) -> None:
    queue.send("t")
    assert bide("show", "0" * 16) == (1, "", f"bide: Message {'0' * 16} does not exist. It has ended, or was never sent.\n")
    assert bide("show", "t", "--key", "k").code == 1


def test_cancel_says_what_really_happened(bide: Bide, queue: Queue) -> None:
    sent = queue.send("t", key="k")
    assert bide("cancel", "t", "--key", "k").out == "CANCELLED: The message with key 'k' in t will never be delivered.\n"
    assert queue.get(sent) is None
    assert bide("cancel", sent.id) == (4, f"GONE: Message {sent.id} has ended, or was never sent.\n", "")
    running = queue.send("t")
    queue.receive("t")
    assert bide("cancel", running.id) == (3, f"RUNNING: Message {running.id} was not changed, because a worker has it.\n", "")
    assert bide("cancel", running.id, "--json") == (3, '{"result":"running"}\n', "")


def test_cancel_and_reschedule_of_a_dead_letter_say_dead_and_what_to_do(bide: Bide, queue: Queue) -> None:
    [dead] = buried(queue, "order.pack")
    told = (
        f"DEAD: Message {dead} is a dead letter. `bide requeue order.pack {dead}` delivers it again, "
        f"`bide purge order.pack {dead}` deletes it.\n"
    )
    assert bide("cancel", dead) == (6, told, "")
    assert bide("reschedule", dead, "--delay", "1m") == (6, told, "")
    assert bide("cancel", dead, "--json") == (6, '{"result":"dead"}\n', "")
    assert json.loads(bide("reschedule", dead, "--delay", "1m", "--json").out) == {
        "result": "dead",
        "due": None,
        "due_ms": None,
    }
    assert [each.id for each in queue.messages("order.pack", state="dead")] == [dead]


def test_reschedule_says_what_really_happened(bide: Bide, queue: Queue) -> None:
    sent = queue.send("t", delay="1h", key="k")
    moved = bide("reschedule", sent.id, "--at", "2030-01-15T09:00:00Z", "--json")
    assert moved.code == 0
    assert json.loads(moved.out)["due"] == "2030-01-15T09:00:00.000Z"
    assert re.fullmatch(
        r"MOVED: The message with key 'k' in t is due \d.*, in (20m|19m 5\ds)\.\n",
        bide("reschedule", "t", "--key", "k", "--delay", "20m").out,
    )
    queue.reschedule(sent, delay=0)
    queue.receive("t")
    assert bide("reschedule", sent.id, "--delay", "1m").code == 3
    gone = bide("reschedule", "0" * 16, "--delay", "1m", "--json")
    assert (gone.code, json.loads(gone.out)) == (4, {"result": "gone", "due": None, "due_ms": None})


def test_reschedule_needs_one_time(bide: Bide, queue: Queue) -> None:
    assert bide("reschedule", "x").code == 2
    assert bide("reschedule", "x", "--delay", "1m", "--at", "2030-01-15T09:00:00Z").code == 2


@pytest.mark.parametrize(
    ("command", "option", "choices"),
    [
        ("list", "--state", types.State), ("send", "--priority", types.Priority), ("send", "--if-exists", types.IfExists),
    ],
    ids=["state", "priority", "if-exists"],
)  # fmt: skip
def test_the_choices_are_those_of_the_queue(bide: Bide, command: str, option: str, choices: object) -> None:
    refused = bide(command, "t", option, "nonsense")
    assert refused.code == 2
    assert ", ".join(map(repr, get_args(choices))) in refused.err


@pytest.mark.parametrize("command", [["cancel"], ["reschedule", "--delay", "1h"], ["show"]], ids=lambda each: each[0])
def test_who_names_a_key_or_a_topic_is_told_how(bide: Bide, queue: Queue, command: list[str]) -> None:
    queue.send("mail", key="mail3", delay="1h")
    assert "TOPIC --key mail3" in bide(*command, "mail3").err
    assert "mail is a topic" in bide(*command, "mail").err
    assert "--key" not in bide(*command, "0" * 16).err
    assert "--key" not in bide(*command, "mail", "--key", "mail4").err


def test_a_dash_without_a_topic_sends_nothing(bide: Bide, queue: Queue) -> None:
    """It is meant as --from - or --stdin."""
    refused = bide("send", "-")
    assert refused.code == 2
    assert "--from - alone" in refused.err
    assert queue.topics() == []
