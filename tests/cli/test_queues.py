"""Where messages live, as the command line is told; and what it never tells: a password."""

import os
from pathlib import Path

import pytest

from bide import Queue
from tests.cli.running import Bide

ELSEWHERE = [
    ["list", "t"], ["show", "x"], ["cancel", "x"], ["reschedule", "x", "--delay", "1s"], ["stats"], ["topics"], ["dead", "t"],
    ["requeue", "t", "--all"], ["purge", "t", "--state", "dead", "--yes"], ["pause", "t"], ["resume", "t"],
]  # fmt: skip


@pytest.mark.parametrize("command", ELSEWHERE, ids=lambda command: command[0])
def test_only_send_makes_a_file(bide: Bide, folder: Path, command: list[str]) -> None:
    ended = bide(*command)
    assert (ended.code, ended.out) == (1, "")
    made = "Your program makes it when it first sends. To name another queue: --url, --url-file or $BIDE_URL."
    assert ended.err == f"bide: There is no queue at {folder}/bide.db yet. {made}\n"
    assert bide(*command, "--url", "sqlite:///typo.db").code == 1
    assert list(folder.iterdir()) == []
    bide("send", "t")
    assert (folder / "bide.db").exists()
    assert bide(*command).code in (0, 1, 4)
    assert "There is no queue" not in bide(*command).err


@pytest.mark.parametrize("command", [["send", "t"], *ELSEWHERE], ids=lambda command: command[0])
def test_what_would_be_gone_with_the_command_is_refused(bide: Bide, command: list[str]) -> None:
    ended = bide(*command, "--url", "memory://shop")
    assert (ended.code, ended.out) == (1, "")
    assert "memory:// are lost when this command ends" in ended.err


def test_the_url_comes_from_an_option_a_file_or_the_environment(
    bide: Bide, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "url").write_text("sqlite:///file.db\nanother line\n")
    monkeypatch.setenv("BIDE_URL", "sqlite:///environment.db")
    bide("send", "t")
    bide("send", "t", "--url-file", "url")
    bide("send", "t", "--url", "sqlite:///option.db")
    assert {name for name in os.listdir(folder) if name.endswith(".db")} == {"environment.db", "file.db", "option.db"}


def test_a_file_with_the_url_may_be_a_pipe(bide: Bide, folder: Path) -> None:
    reads, writes = os.pipe()
    os.write(writes, b"sqlite:///piped.db\n")
    os.close(writes)
    assert bide("send", "t", "--url-file", f"/dev/fd/{reads}").code == 0
    os.close(reads)
    assert (folder / "piped.db").exists()


@pytest.mark.parametrize("content", [None, b"", b"\nsqlite:///late.db\n", b"\xff\xfe", b"nonsense\n"], ids=repr)
def test_a_bad_file_with_the_url_is_refused_with_a_sentence(bide: Bide, folder: Path, content: bytes | None) -> None:
    if content is not None:
        (folder / "url").write_bytes(content)
    ended = bide("send", "t", "--url-file", "url")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("bide: ")
    assert ended.err.count("\n") == 1


def test_a_namespace_is_a_queue_of_its_own(bide: Bide, folder: Path) -> None:
    bide("send", "t", "--namespace", "shop")
    assert bide("topics").err == "There are no topics.\n"
    with Queue(f"sqlite:///{folder}/bide.db", namespace="shop") as queue:
        assert queue.topics() == ["t"]
    assert bide("list", "t", "--namespace", "a b").code == 1


@pytest.mark.parametrize("asked", ["bide", "till"])
@pytest.mark.parametrize("command", [["send", "t"], ["topics"], ["doctor"], ["doctor", "--acl"]], ids=repr)
def test_two_namespaces_are_refused(bide: Bide, command: list[str], asked: str) -> None:
    ended = bide(*command, "--url", "redis://nowhere.invalid?namespace=shop", "--namespace", asked)
    assert (ended.code, ended.out) == (1, "")
    assert "namespace" in ended.err
    assert asked in ended.err


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:s3cret@host/0?timeout=0.1", "redis://:s3cret@host?timeout=0.1", "REDIS://:s3cret@h", "redis://:s3cret\x1b@h",
        "postgresql://u:s3/cret@h/db", "postgres://u:x@s3cret@h/db", "postgres://u:5/s3cret@h/db", "postgres://u:x#s3cret@h/db",
        "postgres://u:x?s3cret@h/db", "s3cret@host", "sqlite://u:s3cret@h/x", "sqlite:///x.db?password=s3cret", "memory://s3cret@x",
    ],
)  # fmt: skip
def test_a_password_is_never_shown(bide: Bide, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "url").write_text(url)
    monkeypatch.setenv("BIDE_URL", url)
    for command in (["send", "t"], ["list", "t"], ["doctor"], ["doctor", "--json"]):
        for where in ([], ["--url", url], ["--url-file", "url"]):
            ended = bide(*command, *where)
            assert ended.code == 1
            assert "s3" not in ended.out + ended.err


@pytest.mark.parametrize("arguments", [["list", "t"], ["stats"], ["send", "t", "1"], []], ids=repr)
def test_a_url_in_the_wrong_place_is_not_told_with_its_password(bide: Bide, arguments: list[str]) -> None:
    for url in ("redis://user:s3cret@host/0", "redis://host?db=1&password=s3cret"):
        ended = bide(*arguments, url, "one too many")
        assert ended.code in (1, 2)
        assert "s3cret" not in ended.out + ended.err
