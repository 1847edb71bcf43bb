"""The commands of the chapter on backup and restore do what it says."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import Queue

PAGE = Path(__file__).parents[2] / "docs" / "sqlite.md"


@pytest.fixture(autouse=True)
def program() -> None:
    if shutil.which("sqlite3") is None:
        if os.environ.get("CI"):
            pytest.fail("the sqlite3 program is missing")
        pytest.skip("the sqlite3 program is missing")


def run(name: str, folder: Path) -> str:
    """The commands under this mark of the page."""
    found = re.search(rf"^<!-- {name} -->\n```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-eu", "-c", found[1]], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def bodies(folder: Path) -> list[Any]:
    with closing(Queue(f"sqlite:///{folder}/shop.db")) as queue:
        return [each.body for each in queue.receive("t", limit=1_000)]


def test_a_copy_of_a_queue_in_use_is_restored_as_it_was(tmp_path: Path) -> None:
    with closing(Queue(f"sqlite:///{tmp_path}/shop.db")) as queue:
        queue.send_many("t", range(3))
        run("backup", tmp_path)
        queue.send("t", "since")
        copy = tmp_path / "shop.db-backup"
        assert copy.stat().st_mode & 0o777 == 0o600
    assert "3" in run("restore", tmp_path)
    assert bodies(tmp_path) == [0, 1, 2]


def test_a_copy_while_another_process_sends_has_a_beginning_of_what_was_sent(tmp_path: Path, start: Callable[..., Any]) -> None:
    child = start(
        """
        import sys, threading
        from bide import Queue
        over = threading.Event()
        threading.Thread(target=lambda: (input(), over.set())).start()
        with Queue(sys.argv[1]) as queue:
            number = 0
            while not over.is_set():
                queue.send("t", number)
                number += 1
                if number == 10:
                    print("sending")
        """,
        f"sqlite:///{tmp_path}/shop.db",
    )
    assert child.line() == "sending"
    run("backup", tmp_path)
    child.tell()
    child.end()
    run("restore", tmp_path)
    restored = bodies(tmp_path)
    assert len(restored) >= 10
    assert restored == list(range(len(restored)))


def test_a_restore_beside_the_log_of_a_killed_process_takes_nothing_of_it(tmp_path: Path, start: Callable[..., Any]) -> None:
    with closing(Queue(f"sqlite:///{tmp_path}/shop.db")) as queue:
        queue.send("t", "before")
    run("backup", tmp_path)
    child = start(
        """
        import sys
        from bide import Queue
        queue = Queue(sys.argv[1])
        queue.send_many("t", range(50))
        print("sent")
        input()
        """,
        f"sqlite:///{tmp_path}/shop.db",
    )
    assert child.line() == "sent"
    child.kill()
    assert (tmp_path / "shop.db-wal").stat().st_size > 0
    run("restore", tmp_path)
    assert bodies(tmp_path) == ["before"]
