"""The shell's completion knows the topics, makes nothing, and never complains."""

import sqlite3
from pathlib import Path

import pytest

from bide import Queue
from bide.cli import queues
from tests.cli.running import Bide, Ended


def completed(bide: Bide, words: str, **environment: str) -> Ended:
    count = str(len(words.split(" ")) - 1)
    return bide(_BIDE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=count, **environment)


def test_a_topic_is_completed_where_a_topic_belongs(bide_process: Bide, queue: Queue) -> None:
    for topic in ("order.cancel", "order.pack", "mail"):
        queue.send(topic)
    for command in ("send", "show", "stats", "purge"):
        ended = completed(bide_process, f"bide {command} ord")
        assert (ended.out.split(), ended.err) == (["order.cancel", "order.pack"], "")


def test_a_topic_is_completed_from_where_the_options_say(bide_process: Bide, queue: Queue, folder: Path) -> None:
    with Queue(f"sqlite:///{folder}/other.db", namespace="shop") as other:
        other.send("parcel")
    where = "--url sqlite:///other.db --namespace shop"
    assert completed(bide_process, f"bide list {where} p").out.split() == ["parcel"]
    assert completed(bide_process, "bide list p", BIDE_URL="sqlite:///other.db").out.split() == []


def test_completion_makes_no_file(bide_process: Bide, folder: Path) -> None:
    assert completed(bide_process, "bide list ").out.split() == []
    assert list(folder.iterdir()) == []


class Given:
    """As much of a context as completion looks at: the options so far."""

    def __init__(self, **params: str) -> None:
        self.params = params


@pytest.mark.parametrize(
    "url", ["nonsense", "redis://:s3cret@h", "sqlite:///broken.db", "sqlite:////no/such/bide.db", "memory://", "\ud800://"]
)
def test_completion_never_complains(folder: Path, capfd: pytest.CaptureFixture[str], url: str) -> None:
    (folder / "broken.db").write_bytes(b"not a database, but long enough to look like one" * 100)
    assert queues.complete_topics(Given(url=url), "") == []  # type: ignore[arg-type]
    assert queues.complete_topics(Given(url=url, url_file="u"), "") == []  # type: ignore[arg-type]
    assert capfd.readouterr() == ("", "")


def test_completion_from_a_broken_file_is_silent(bide_process: Bide, folder: Path) -> None:
    (folder / "bide.db").write_bytes(b"not a database, but long enough to look like one" * 100)
    ended = completed(bide_process, "bide list ")
    assert (ended.out.split(), ended.err) == ([], "")


def test_completion_does_not_wait_for_long(bide: Bide, queue: Queue, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event

    asked, answer = Event(), Event()

    def slow(self: Queue) -> list[str]:
        asked.set()
        answer.wait()
        return ["late"]

    queue.send("t")
    monkeypatch.setattr(Queue, "topics", slow)
    monkeypatch.setattr(queues, "COMPLETION_TIMEOUT", 0.05)
    assert queues.complete_topics(Given(), "") == []  # type: ignore[arg-type]
    answer.set()
    assert asked.wait(30)


def test_a_topic_that_no_terminal_should_see_is_left_out(bide_process: Bide, queue: Queue, folder: Path) -> None:
    queue.send("t")
    with sqlite3.connect(folder / "bide.db") as connection:
        connection.execute("insert into topic (space, name, paused) values ('bide', ?, 1)", ["\x1b[31mred"])
    connection.close()
    assert completed(bide_process, "bide list ").out.split() == ["t"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_each_shell_is_printed(bide_process: Bide, shell: str) -> None:
    ended = bide_process(_BIDE_COMPLETE=f"source_{shell}")
    assert ended.code == 0
    assert "_BIDE_COMPLETE" in ended.out
