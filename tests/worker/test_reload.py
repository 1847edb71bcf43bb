"""`--reload`: the worker is started anew when a Python file changes, and both end together."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.cli.worker import load
from tests.worker.processes import PATIENCE, Running, Shop, alive, heard, open_shop, until

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


# A watcher that gives its worker as long as it takes.
PATIENT = """
import sys
from bide.cli.app import run
from bide.cli.worker import load

load.STOP_TIMEOUT = 1000.0
sys.exit(run(sys.argv[4:]))
"""


def watched(shop: Shop, *arguments: str, within: tuple[str, ...] = ()) -> tuple[Running, int]:
    """The watcher, and its worker's process."""
    watcher = shop.start("--reload", "--grace", "5s", *arguments, within=within)
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
    assert watcher.stop(number)[0] == 0
    assert not alive(worker)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_to_the_watcher_ends_both_at_once(shop: Shop, number: int) -> None:
    watcher, worker = watched(shop, "--grace", "1000s", within=(sys.executable, "-c", PATIENT))
    shop.queue.send("stuck")
    shop.said("stuck")
    watcher.send(number)
    until(lambda: heard(watcher.pid, number))
    assert alive(worker)

    def ended() -> bool:
        watcher.send(number)
        time.sleep(0.3)
        return not alive(worker)

    until(ended)  # again and again, since two signals that come at once are one
    assert watcher.wait() in (0, 130)


@pytest.mark.parametrize("options", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_the_worker_of_a_watcher_that_was_killed_ends_too(shop: Shop, options: tuple[str, ...]) -> None:
    watcher, worker = watched(shop, *options)
    watcher.send(signal.SIGKILL)
    watcher.wait()
    until(lambda: not alive(worker))


# Starts what the command starts, and hears a signal before it knows of that.
INTERRUPTED = """
import os, signal, subprocess, sys
from bide.cli.app import run

class Popen(subprocess.Popen):
    count = 0

    def _execute_child(self, *arguments, **options):
        super()._execute_child(*arguments, **options)
        print(self.pid, flush=True)
        Popen.count += 1
        if Popen.count == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            open("more.py", "w").close()

subprocess.Popen = Popen
sys.exit(run(["worker", "shop:queue", "--reload"]))
"""


@pytest.mark.parametrize("start", [1, 2])
def test_a_signal_while_the_worker_is_being_started_ends_both(shop: Shop, start: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(start)], cwd=shop.folder, stdout=subprocess.PIPE, check=False, timeout=PATIENCE
    )
    started = [int(line) for line in ended.stdout.split()]
    left = [pid for pid in started if alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert ended.returncode == 0
    assert len(started) == start
    assert not left


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
    assert {str(path.relative_to(tmp_path)) for path in load._times(tmp_path)} == {"a.py", "sub/b.py"}


def test_a_folder_that_may_not_be_read_is_passed_by(tmp_path: Path) -> None:
    """Such as one of a database. Root may read all, so it is somebody else who looks."""
    (tmp_path / "a.py").write_text("")
    (tmp_path / "data").mkdir()
    tmp_path.chmod(0o755)
    (tmp_path / "data").chmod(0)
    look = (
        "import os; from pathlib import Path; from bide.cli.worker import load;"
        "os.getuid() or os.setuid(65534); print(*load._times(Path('.')))"
    )
    seen = subprocess.run([sys.executable, "-c", look], cwd=tmp_path, stdout=subprocess.PIPE, check=True)
    (tmp_path / "data").chmod(0o700)
    assert seen.stdout.split() == [b"a.py"]


def test_a_file_that_is_gone_between_two_looks_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("")
    monkeypatch.setattr(load, "_files", lambda folder: iter([folder / "gone.py", folder / "a.py"]))
    assert set(load._times(tmp_path)) == {tmp_path / "a.py"}
