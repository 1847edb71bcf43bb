"""`--reload`: the worker is started anew when a Python file changes, and both end together."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.cli.worker import reload
from tests.worker.processes import Running, Shop, alive, open_shop, until

HANDLERS = """
say("born")

@queue.task("mail")
async def mail():
    say("mail", {version})

@queue.task("stuck")
def stuck():
    say("stuck")
    time.sleep(1000)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        made.write(HANDLERS.replace("{version}", "1"))
        yield made


def watched(shop: Shop, *arguments: str) -> tuple[Running, int]:
    """The watcher, and its worker's process."""
    watcher = shop.start("--reload", "--grace", "5s", *arguments)
    shop.queue.send("mail")
    [line] = shop.said("mail", 1)
    watcher.children()
    return watcher, line.pid


def test_a_changed_file_brings_the_new_handler(shop: Shop) -> None:
    watcher, first = watched(shop)
    shop.write(HANDLERS.replace("{version}", "2") + "\n@queue.task('new')\ndef new(): say('new')\n")
    shop.queue.send("new")
    [line] = shop.said("new")
    assert line.pid != first
    assert not alive(first)
    assert "shop.py changed: restarting" in watcher.err
    assert watcher.stop()[0] == 0
    assert not alive(line.pid)


def test_a_new_file_and_one_that_is_gone_are_changes_too(shop: Shop) -> None:
    watcher, _ = watched(shop)
    (shop.folder / "more.py").write_text("")
    watcher.until("more.py changed")
    shop.said("born", count=2)
    (shop.folder / "more.py").unlink()
    shop.said("born", count=3)
    assert watcher.stop()[0] == 0


def test_a_syntax_error_does_not_end_the_watcher(shop: Shop) -> None:
    watcher, first = watched(shop)
    shop.write("def broken(:\n")
    watcher.until("SyntaxError")
    until(lambda: not alive(first))
    shop.write(HANDLERS.replace("{version}", "3"))
    shop.queue.send("mail")
    shop.said("mail", 3)
    assert watcher.stop()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_watcher_ends_both(shop: Shop, number: int) -> None:
    watcher, worker = watched(shop)
    code, took = watcher.stop(number)
    assert code == 0
    assert took < 4
    assert not alive(worker)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_to_the_watcher_ends_both_at_once(shop: Shop, number: int) -> None:
    watcher, worker = watched(shop)
    shop.queue.send("stuck")
    shop.said("stuck")
    watcher.send(number)
    time.sleep(0.3)  # so that they are two
    assert alive(worker)
    code, took = watcher.stop(number)
    assert took < 2
    assert not alive(worker)
    assert code in (0, 130)


def test_its_processes_are_started_anew_too(shop: Shop) -> None:
    watcher, first = watched(shop, "--processes", "2")
    shop.write(HANDLERS.replace("{version}", "2"))
    until(lambda: not alive(first), lambda: watcher.err)
    shop.queue.send("mail")
    shop.said("mail", 2)
    assert watcher.stop()[0] == 0


def test_files_of_environments_and_hidden_folders_are_passed_by(tmp_path: Path) -> None:
    for name in ("a.py", "sub/b.py", ".git/c.py", "env/pyvenv.cfg", "env/lib/d.py", "node_modules/e.py", "f.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert {str(path.relative_to(tmp_path)) for path in reload._times(tmp_path)} == {"a.py", "sub/b.py"}


def test_a_file_that_is_gone_between_two_looks_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("")
    monkeypatch.setattr(reload, "_files", lambda folder: iter([folder / "gone.py", folder / "a.py"]))
    assert set(reload._times(tmp_path)) == {tmp_path / "a.py"}
