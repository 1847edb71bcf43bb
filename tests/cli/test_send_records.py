"""`bide list --all --json | bide send --from -`: messages taken from one queue to another, as they were."""

import json
from pathlib import Path
from typing import Any

import pytest

from bide import Queue
from bide.core.times import MAX_DELAY_MS
from tests.cli.running import AtTerminal, Bide, buried

CARRIED = ("topic", "state", "due_ms", "key", "priority", "headers", "expires_ms", "body", "body_base64")


class Plain:
    """A codec of somebody else: bodies are bytes."""

    def encode(self, body: Any, /) -> bytes:
        return bytes(body)

    def decode(self, raw: bytes, /) -> Any:
        return raw


def listed(bide: Bide, *more: str) -> str:
    ended = bide("list", "--all", "--json", *more)
    assert ended.code == 0
    return ended.out


def records(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def carried(out: str) -> list[dict[str, Any]]:
    found = [{name: each[name] for name in CARRIED} for each in records(out)]
    return sorted(found, key=lambda each: (each["topic"], each["due_ms"], str(each["body"])))


@pytest.fixture
def planned(queue: Queue) -> Queue:
    """Messages that are scheduled, of all kinds."""
    queue.send("order.cancel", {"order": 42}, key="order:42", delay="1h", priority="high", headers={"by": "Ada"})
    queue.send("order.cancel", {"text": "ключ ✓\n\u2028"}, delay="2h", expires_in="10m", max_attempts=7)
    queue.send_many("cart.forget", range(20))
    queue.send("far", None, delay="3650d", priority="low")
    with Queue(f"sqlite:///{Path.cwd()}/bide.db", codec=Plain()) as other:
        other.send("raw", b"\xff\x00not JSON", delay="1h")
    for each in queue.messages("cart.forget"):
        queue.reschedule(each.id, delay="30m")
    return queue


def test_messages_go_from_engine_to_engine_as_they_were(
    bide: Bide, planned: Queue, redis_url: str, postgres_url: str, folder: Path
) -> None:
    first = listed(bide)
    for url in (redis_url, postgres_url, f"sqlite:///{folder}/last.db"):
        ended = bide("send", "--from", "-", "--url", url, stdin=listed(bide))
        assert ended == (0, "Sent 24 messages to 4 topics.\n", "")
        assert carried(listed(bide, "--url", url)) == carried(first)
    bide("send", "--from", "-", "--url", f"sqlite:///{folder}/round.db", stdin=listed(bide, "--url", postgres_url))
    assert carried(listed(bide, "--url", f"sqlite:///{folder}/round.db")) == carried(first)


def test_a_message_has_the_attempts_left_that_it_had(bide: Bide, queue: Queue, folder: Path) -> None:
    queue.send("t", 1, max_attempts=5)
    for _ in range(2):
        [taken] = queue.receive("t")
        taken.retry(0, error="no")
    assert bide("send", "--from", "-", "--url", "sqlite:///other.db", stdin=listed(bide)).code == 0
    with Queue(f"sqlite:///{folder}/other.db") as other:
        [info] = other.messages("t")
        assert (info.state, info.attempt, info.max_attempts) == ("ready", 0, 3)
        assert info.headers["bide-attempts"] == "3"  # or its task would decide


def test_leased_messages_and_dead_letters_are_sent_only_if_asked_for(bide: Bide, queue: Queue) -> None:
    buried(queue, "t", 2)
    queue.send("t", "held", max_attempts=1)
    queue.receive("t")
    queue.send("t", "late", expires_in=3600)
    lines = listed(bide)
    ended = bide("send", "--from", "-", "--url", "sqlite:///one.db", stdin=lines)
    assert ended.out == (
        "Sent 1 message to 1 topic.\n"
        "2 left out, because they are dead letters (--dead sends them, too).\n"
        "1 left out, because a worker had them (--leased sends them, too).\n"
    )
    both = bide("send", "--from", "-", "--leased", "--dead", "--url", "sqlite:///two.db", stdin=lines)
    assert both.out == "Sent 4 messages to 1 topic.\n"
    found = records(listed(bide, "--url", "sqlite:///two.db"))
    assert [(each["state"], each["max_attempts"]) for each in found if each["body"] == "held"] == [("ready", 1)]
    assert {each["state"] for each in found} == {"ready"}


def test_an_expired_message_is_left_out(bide: Bide, queue: Queue) -> None:
    queue.send("t", 1, expires_in=3600)
    [record] = records(listed(bide))
    record["expires_ms"] = record["due_ms"] = 1_000
    ended = bide("send", "--from", "-", "--url", "sqlite:///one.db", stdin=json.dumps(record))
    assert ended.out == "Sent 0 messages to 0 topics.\n1 left out, because they have expired.\n"


def test_a_due_time_in_the_past_means_now_and_ids_are_new(bide: Bide, queue: Queue) -> None:
    sent = queue.send("t", 1)
    told = records(bide("send", "--from", "-", "--json", "--url", "sqlite:///one.db", stdin=listed(bide)).out)
    assert [(each["from"], each["outcome"]) for each in told] == [(sent.id, "created")]
    assert told[0]["due_ms"] >= sent.due
    assert list(told[0]) == ["id", "topic", "outcome", "due", "due_ms", "from"]


@pytest.mark.parametrize(
    ("how", "said", "body"),
    [
        ("keep", "1 not sent, because a message has their key.", "there"),
        ("replace", "1 of them replaced a message that had their key.", "here"),
        ("error", "1 not sent, because a message has their key.", "there"),
    ],
)
def test_a_key_that_exists_there_is_kept_or_replaced(
    bide: Bide, queue: Queue, folder: Path, how: str, said: str, body: str
) -> None:
    queue.send("t", "here", key="k", delay="1h")
    with Queue(f"sqlite:///{folder}/other.db") as other:
        other.send("t", "there", key="k", delay="2h")
    ended = bide("send", "--from", "-", "--if-exists", how, "--url", "sqlite:///other.db", stdin=listed(bide))
    assert said in ended.out
    assert [each["body"] for each in records(listed(bide, "--url", "sqlite:///other.db"))] == [body]


def test_the_same_lines_sent_again_add_nothing(bide: Bide, queue: Queue) -> None:
    queue.send_many("t", range(2_500))
    lines = listed(bide)
    some = "".join(lines.splitlines(keepends=True)[:1_500])
    for part in (some, lines, lines):  # as after an interruption
        assert bide("send", "--from", "-", "--url", "sqlite:///one.db", stdin=part).code == 0
    assert len(records(listed(bide, "--url", "sqlite:///one.db"))) == 2_500


def test_a_file_is_sent_with_a_bar(at_terminal: AtTerminal, bide: Bide, queue: Queue, folder: Path) -> None:
    queue.send_many("t", range(2_500))
    (folder / "all.jsonl").write_text(listed(bide))
    ended = at_terminal("send", "--from", "all.jsonl", "--url", "sqlite:///one.db", out_is_file=True).end()
    assert ended.out == "Sent 2,500 messages to 1 topic.\n"
    assert "of 2,500" in ended.err


def line(**changed: Any) -> str:
    record = {"id": "x", "topic": "t", "state": "ready", "due_ms": 1, "attempt": 0, "max_attempts": 3, "body": 1}
    text = json.dumps({name: value for name, value in {**record, **changed}.items() if value != "leave out"})
    return text.replace('"\\udcff"', '"\udcff"')  # a byte that is not UTF-8


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("1", "Expected `object`"), ("{}", "missing required field"), ("oops", "is not a line of `bide list --json`"),
        (line(topic="a b"), "topic"), (line(state="done"), "Invalid enum value"), (line(body="leave out"), "`body`"),
        (line(body_base64="?"), "is not a line"), (line(due_ms=10**30), "Line 2"),
        (line(due_ms=10**15), "<= 253402300799999"), (line(expires_ms=10**20), "expires_ms"),
        (line(expires_ms=-1), "expires_ms"),
        (line(body="\udcff"), "Line 2"), (line(headers={"a": 1}), "Line 2"), (line(key=""), "key"),
        ('{"body":' + "[" * 100_000, "Line 2"), ("x" * (4 * 2**20 + 1), "longer than 4,194,304"),
    ],
    ids=lambda each: each[:40],
)  # fmt: skip
def test_a_line_that_is_no_record_is_named_and_nothing_of_a_file_is_sent(
    bide: Bide, folder: Path, wrong: str, why: str
) -> None:
    (folder / "all.jsonl").write_text(line() + "\n" + wrong + "\n", errors="surrogateescape")
    ended = bide("send", "--from", "all.jsonl")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("bide: Line 2")
    assert why in ended.err
    assert not (folder / "bide.db").exists()


def test_a_large_body_is_carried_though_a_send_would_refuse_it(bide: Bide, queue: Queue, folder: Path) -> None:
    with Queue(f"sqlite:///{folder}/bide.db", max_body=2**20) as generous:
        generous.send("t", "x" * 500_000)
    assert bide("send", "--from", "-", "--url", "sqlite:///one.db", stdin=listed(bide)).code == 0
    with Queue(f"sqlite:///{folder}/one.db", max_body=2**20) as other:
        assert [len(each.body) for each in other.receive("t")] == [500_000]


@pytest.mark.parametrize(
    "wrong",
    [
        [], ["--from", "-", "--delay", "1h"], ["--from", "-", "--key", "k"], ["--from", "-", "--text"], ["--json"],
        ["t", "--from", "-", "--dead"], ["t", "1", "--leased"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_options_that_records_have_themselves_are_refused(bide: Bide, folder: Path, wrong: list[str]) -> None:
    ended = bide("send", *wrong, stdin=line())
    assert (ended.code, ended.out) == (2, "")
    assert list(folder.iterdir()) == []


def test_a_life_has_the_longest_length_that_a_send_could_give_it(bide: Bide, queue: Queue) -> None:
    assert bide("send", "--from", "-", stdin=line(expires_ms=253_402_300_799_999)).code == 0
    [stored] = records(listed(bide))
    assert stored["expires_ms"] == stored["due_ms"] + MAX_DELAY_MS


def test_headers_of_bide_itself_leave_those_of_the_sender_their_room(bide: Bide, queue: Queue, folder: Path) -> None:
    size = 8_192 - len("large")
    queue.send("t", 1, delay="1h", key="k", if_exists="later", max_wait="1d", headers={"large": "x" * size})
    [before] = records(listed(bide))
    assert len(before["headers"]) == 2
    ended = bide("send", "--from", "-", "--url", f"sqlite:///{folder}/other.db", stdin=json.dumps(before) + "\n")
    assert ended.code == 0, ended.err
    [after] = records(listed(bide, "--url", f"sqlite:///{folder}/other.db"))
    assert after["headers"] == before["headers"]
    before["headers"]["bide-own"] = "x" * 9_000
    ended = bide("send", "--from", "-", "--url", f"sqlite:///{folder}/third.db", stdin=json.dumps(before) + "\n")
    assert ended.code != 0
    assert "the limit is 8,192" in ended.err
