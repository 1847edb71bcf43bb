"""What is printed can be trusted: nothing stored can change a screen, and what a program reads stays as it is."""

import base64
import json
import sqlite3
import time
import unicodedata
from pathlib import Path

import pytest

from bide import Queue
from bide.cli import output
from bide.cli.output import body_text, escaped, json_text, without_passwords
from bide.core import formats
from tests.cli.running import Bide, buried

NASTY = (
    "\x1b[31mred\x1b[0m\x1b]0;title\x07 \x9b2J \x7f \x00 \r\n\t fake  line \u202eright\u2066 \u2028 "
    "[red]x[/red] [link=http://x]y[/link] :boom:"
)


class Raw:
    """Bodies that are no JSON."""

    def encode(self, body: object) -> bytes:
        return b"\xff\x1b[31m\n\xe2\x80\xae"

    def decode(self, raw: bytes) -> object:
        raise ValueError(NASTY)


def assert_plain(text: str) -> None:
    """Only what is plainly visible, and the line breaks that the command itself wrote."""
    for line in text.split("\n"):
        for character in line:
            assert character.isprintable(), f"{character!r} in {line!r}"
            assert unicodedata.category(character) not in ("Cc", "Cf")


@pytest.fixture
def nasty(queue: Queue, folder: Path) -> str:
    """A topic whose name, and a message of it whose every field, holds what must not reach a terminal."""
    queue.send("t", {NASTY: [NASTY]}, headers={NASTY: NASTY}, key="k", delay="1h")
    queue.send("t", NASTY)
    buried(queue, "dead", error=NASTY)
    with sqlite3.connect(folder / "bide.db") as connection:
        connection.execute("update message set key = ? where key is not null", [NASTY])
        connection.execute("insert into topic (space, name, paused) values ('bide', ?, 1)", [NASTY])
    connection.close()
    return queue.messages("t")[1].id


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
def test_nothing_that_is_stored_reaches_the_screen_unescaped(bide: Bide, nasty: str, as_json: list[str]) -> None:
    for command in (["list", "t"], ["show", nasty], ["topics"], ["stats"], ["dead", "dead"], ["list", "dead", "--all"]):
        ended = bide(*command, *as_json)
        assert (ended.code, ended.err) == (0, "")
        assert_plain(ended.out)
        if as_json:
            assert all(json.loads(line) for line in ended.out.splitlines())
        elif command != ["list", "dead", "--all"]:
            assert "fake  line" in ended.out
            assert "[red]x[/red] [link=http://x]y[/link] :boom:" in ended.out


def test_a_row_is_a_line_whatever_is_in_it(bide: Bide, nasty: str) -> None:
    assert len(bide("list", "t").out.splitlines()) == 1 + 2
    assert len(bide("dead", "dead").out.splitlines()) == 1 + 1
    assert len(bide("topics").out.splitlines()) == 1 + 3


def test_json_gives_back_exactly_what_was_stored(bide: Bide, nasty: str) -> None:
    shown = json.loads(bide("show", nasty, "--json").out)
    assert (shown["body"], shown["headers"], shown["key"]) == ({NASTY: [NASTY]}, {NASTY: NASTY}, NASTY)


@pytest.mark.parametrize(
    "wrong", [["list", NASTY], ["show", NASTY], [NASTY], ["list", "t", NASTY], ["list", f"--{NASTY}"], ["send", "t", NASTY]]
)
def test_what_is_wrong_is_said_without_its_control_codes(bide: Bide, queue: Queue, wrong: list[str]) -> None:
    queue.send("t")
    ended = bide(*wrong)
    assert ended.code in (1, 2)
    assert ended.err
    assert_plain(ended.out + ended.err)


def test_a_body_that_is_no_json_is_shown_as_bytes(bide: Bide, folder: Path) -> None:
    with Queue(f"sqlite:///{folder}/bide.db", codec=Raw()) as queue:
        sent = queue.send("t", 1)
    for ended in (bide("list", "t"), bide("show", sent.id)):
        assert r"b'\xff\x1b[31m\n\xe2\x80\xae'" in ended.out
        assert_plain(ended.out)
    shown = json.loads(bide("show", sent.id, "--json").out)
    assert shown["body"] is None
    assert base64.b64decode(shown["body_base64"]) == b"\xff\x1b[31m\n\xe2\x80\xae"


def test_piped_output_is_plain_and_whole(bide_process: Bide, queue: Queue) -> None:
    sent = queue.send("t", "x" * 500, key="k" * 200)
    for environment in ({}, {"FORCE_COLOR": "1"}, {"COLUMNS": "40"}, {"NO_COLOR": "1"}):
        ended = bide_process("list", "t", **environment)
        assert (ended.code, ended.err) == (0, "")
        assert "\x1b" not in ended.out
        [row] = [line for line in ended.out.splitlines() if sent.id in line]
        assert "x" * 500 in row
        assert "k" * 200 in row
        assert not set(ended.out) & set("│─━┃╭╮╰╯…")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_letters_that_the_encoding_lacks_are_escaped(bide_process: Bide, queue: Queue, encoding: str) -> None:
    sent = queue.send("t", "é→😀", headers={"to": "Zoë"})
    as_json = bide_process("show", sent.id, "--json", PYTHONIOENCODING="utf-8" if encoding == "utf-8" else "ascii")
    assert json.loads(as_json.out)["body"] == "é→😀"
    assert ("é→😀" in as_json.out) is (encoding == "utf-8")
    ended = bide_process("list", "t", PYTHONIOENCODING="ascii" if encoding == "latin-1" else encoding)
    assert (ended.code, ended.err) == (0, "")
    assert ("é→😀" in ended.out) is (encoding == "utf-8")


def test_columns_stay_aligned_whatever_the_width_of_letters(bide: Bide, queue: Queue) -> None:
    for key in ("short", "日本語日本語日本語", "a-longer-key"):
        queue.send("t", "body", key=key)
    rows = bide("list", "t").out.splitlines()[1:]
    cells = [sum(2 if unicodedata.east_asian_width(each) == "W" else 1 for each in row[: row.index('"body"')]) for row in rows]
    assert len(set(cells)) == 1


def test_the_parts_escape_and_redact() -> None:
    assert escaped("plain é 日本 😀") == "plain é 日本 😀"
    assert escaped("a\x1b\u202e\U000e0001") == "a\\u001b\\u202e\\udb40\\udc01"
    assert json.loads(json_text(NASTY, ascii_only=True)) == json.loads(json_text(NASTY)) == NASTY
    assert body_text(b"\x00") == r"b'\x00'"
    assert without_passwords("no redis://u:p@h/0 or a://b@c@d here") == "no redis://…@h/0 or a://…@d here"


@pytest.mark.parametrize(
    ("zone", "shown"),
    [("UTC0", "2030-01-01 00:00:00+00"), ("XST-5:30", "2030-01-01 05:30:00+05:30"), ("XST+3", "2029-12-31 21:00:00-03")],
)
def test_instants_are_told_with_their_timezone(monkeypatch: pytest.MonkeyPatch, zone: str, shown: str) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        assert output.local(1_893_456_000_007) == shown
    time.tzset()


def test_sizes_are_told_to_three_digits() -> None:
    sizes = {0: "0 bytes", 999: "999 bytes", 1_000: "0.98 KiB", 1_024: "1.00 KiB", 12_700: "12.4 KiB", 2**20: "1.00 MiB",
             150 * 2**20: "150 MiB", 10**9: "954 MiB", 5 * 2**50: "5,120 TiB"}  # fmt: skip
    assert {count: formats.size(count) for count in sizes} == sizes


def test_times_are_told_in_their_two_largest_units() -> None:
    relative = {
        0: "now", 400: "now", -400: "now", 600: "in 1s", 59_400: "in 59s", 59_600: "in 1m", 843_000: "in 14m 3s",
        3_600_000: "in 1h", 3_605_000: "in 1h", 90_000_000: "in 1d 1h", -3_000: "3s ago", -86_400_000: "1d ago",
    }  # fmt: skip
    assert {ms: output.relative(1_000_000_000_000 + ms, 1_000_000_000_000) for ms in relative} == relative
    assert formats.iso(1_893_456_000_007) == "2030-01-01T00:00:00.007Z"
