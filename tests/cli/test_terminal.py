"""At a terminal: colours, bars that move, questions, and lines that fit."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bide import Queue
from tests.cli.running import AtTerminal, buried

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_a_table_is_painted_and_cut_to_the_width(at_terminal: AtTerminal, queue: Queue) -> None:
    sent = queue.send("t", "x" * 500)
    ended = at_terminal("list", "t", columns=100).end()
    lines = CODES.sub("", ended.err).splitlines()
    assert ended.code == 0
    assert COLOUR.search(ended.err)
    assert [line[:16] for line in lines] == ["id".ljust(16), sent.id]
    assert len(lines[1]) <= 100
    assert lines[1].endswith("x…")


def test_a_narrow_screen_has_a_line_for_each_message_without_its_instant(at_terminal: AtTerminal, queue: Queue) -> None:
    queue.send("t", {"order": 42}, key="order:42")
    buried(queue, "t", error="no such order")
    for command in (["list", "t"], ["dead", "t"]):
        narrow = CODES.sub("", at_terminal(*command, columns=80).end().err).splitlines()
        assert max(map(len, narrow)) <= 80 - (24 - 16)  # as much as ids on Redis are longer
        assert "at" not in narrow[0].split()
        wide = CODES.sub("", at_terminal(*command, columns=140).end().err).splitlines()
        assert "at" in wide[0].split()


def make_late(folder: Path) -> None:
    """As if what there is had been due for two minutes."""
    with closing(sqlite3.connect(folder / "bide.db")) as connection, connection:
        connection.execute("update message set due = due - 120000")


def test_what_nobody_takes_is_painted(at_terminal: AtTerminal, queue: Queue, folder: Path) -> None:
    queue.send("t")
    make_late(folder)
    queue.send("soon", delay="1h")
    assert "\x1b[33m" in at_terminal("list", "t").end().err
    assert "\x1b[33m" not in at_terminal("list", "soon").end().err
    for command in ("topics", "stats"):
        assert "\x1b[31m" in at_terminal(command).end().err


def test_the_doctor_breaks_lines_between_words(at_terminal: AtTerminal, queue: Queue, folder: Path) -> None:
    queue.send("t")
    make_late(folder)
    (folder / "bide.db").chmod(0o644)
    whole = CODES.sub("", at_terminal("doctor", columns=250).end().err)
    narrow = CODES.sub("", at_terminal("doctor", columns=60).end().err)
    assert max(len(line) for line in narrow.splitlines() if str(folder) not in line) <= 60
    words = re.compile(r"[a-z]{3,}")
    assert set(words.findall(narrow)) == set(words.findall(whole))


def test_a_long_key_is_cut_where_it_would_push_all_else_away(at_terminal: AtTerminal, queue: Queue) -> None:
    sent = queue.send("t", "x" * 500, key="k" * 200)
    lines = CODES.sub("", at_terminal("list", "t", columns=140).end().err).splitlines()
    assert (len(lines), len(lines[1])) == (2, 140)
    assert "  " + "k" * 39 + "…  " in lines[1]
    assert sent.id in lines[1]


def test_a_wide_letter_counts_twice_where_a_line_is_cut(at_terminal: AtTerminal, queue: Queue) -> None:
    queue.send("t", "日本語" * 100)
    lines = CODES.sub("", at_terminal("list", "t", columns=100).end().err).splitlines()
    assert lines[1].endswith("…")
    assert sum(2 if each in "日本語" else 1 for each in lines[1]) in (99, 100)


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_a_terminal_that_wants_no_colours_gets_none(at_terminal: AtTerminal, queue: Queue, environment: dict[str, str]) -> None:
    queue.send("t", "[red]x[/red]")
    buried(queue, "t")
    for command in (["list", "t"], ["topics"]):
        ended = at_terminal(*command, **environment).end()
        assert ended.code == 0
        assert "\x1b" not in ended.err


def test_markup_and_control_codes_are_shown_as_they_are(at_terminal: AtTerminal, queue: Queue) -> None:
    queue.send("t", "[red]x[/red]\x1b[31m\u202e")
    shown = CODES.sub("", at_terminal("list", "t", columns=200).end().err)
    assert r'"[red]x[/red]\u001b[31m\u202e"' in shown


def test_many_messages_move_a_bar_beside_the_result(at_terminal: AtTerminal, queue: Queue, folder: Path) -> None:
    (folder / "carts.jsonl").write_text("1\n" * 3_000)
    for extra, result in ([], "Sent 3,000 messages to t.\n"), (["--json"], '"outcome":"created"'):
        ended = at_terminal("send", "t", "--from", "carts.jsonl", *extra, out_is_file=True).end()
        assert ended.code == 0
        assert "sending to t" in ended.err
        assert "of 3,000" in ended.err
        assert result in ended.out
        assert "\x1b" not in ended.out
    assert queue.stats("t").ready == 6_000


def test_a_terminal_that_can_not_move_its_cursor_gets_no_bar_and_whole_lines(
    at_terminal: AtTerminal, queue: Queue, folder: Path
) -> None:
    (folder / "carts.jsonl").write_text('"xyz"\n' * 2)
    ended = at_terminal("send", "t", "--from", "carts.jsonl", TERM="dumb").end()
    assert (ended.code, ended.err) == (0, "Sent 2 messages to t.\n")
    assert "…" not in at_terminal("list", "t", columns=40, TERM="dumb").end().err


def test_no_bar_disturbs_json_on_the_same_screen(at_terminal: AtTerminal, queue: Queue, folder: Path) -> None:
    (folder / "carts.jsonl").write_text("1\n" * 2)
    ended = at_terminal("send", "t", "--from", "carts.jsonl", "--json").end()
    assert (ended.code, len(ended.err.splitlines())) == (0, 2)
    assert "\x1b" not in ended.err


def test_requeue_and_purge_of_many_move_a_bar(at_terminal: AtTerminal, queue: Queue) -> None:
    for _ in range(2):
        buried(queue, "t", 1_000)
    requeued = at_terminal("requeue", "t", "--all", out_is_file=True).end()
    assert "requeueing t" in requeued.err
    assert requeued.out == "Requeued 2,000 of 2,000 dead letters of t.\n"
    purged = at_terminal("purge", "t", "--state", "ready", "--yes", out_is_file=True).end()
    assert "purging t" in purged.err
    assert purged.out == "Deleted 2,000 ready messages of t.\n"


def test_purge_asks_with_the_count_and_takes_yes(at_terminal: AtTerminal, queue: Queue) -> None:
    buried(queue, "t", 3)
    terminal = at_terminal("purge", "t", "--state", "dead")
    terminal.until("Permanently delete 3 dead letters of t? [y/N] ")
    assert queue.stats("t").dead == 3
    terminal.type("y\n")
    ended = terminal.end()
    assert (ended.code, queue.stats("t").dead) == (0, 0)
    assert "Deleted 3 dead letters of t." in ended.err


@pytest.mark.parametrize("answer", ["n\n", "\n", "yes please\n", "\x04"], ids=repr)
def test_purge_takes_anything_else_for_no(at_terminal: AtTerminal, queue: Queue, answer: str) -> None:
    buried(queue, "t")
    terminal = at_terminal("purge", "t", "--state", "dead")
    terminal.until("[y/N] ")
    terminal.type(answer)
    ended = terminal.end()
    assert (ended.code, queue.stats("t").dead) == (1, 1)
    assert "Nothing was changed." in ended.err


def test_ctrl_c_at_the_question_drops_nothing(at_terminal: AtTerminal, queue: Queue) -> None:
    buried(queue, "t")
    terminal = at_terminal("purge", "t", "--state", "dead")
    terminal.until("[y/N] ")
    terminal.interrupt()
    assert (terminal.end().code, queue.stats("t").dead) == (130, 1)


def test_the_doctors_advice_is_whole(at_terminal: AtTerminal, folder: Path) -> None:
    (folder / "bide.db").write_bytes(b"not a database, but long enough to look like one" * 100)
    ended = at_terminal("doctor", columns=60).end()
    assert ended.code == 1
    assert "bad:" in ended.err
    assert "…" not in ended.err
