"""`bide doctor` on an SQLite file: it tells, and changes nothing."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from bide import Finding, ManualClock, Queue
from bide.engines.sqlite import file
from bide.queue.workers import Process, Work, key, report


def found(path: Path) -> dict[str, Finding]:
    return {each.name: each for each in Queue(f"sqlite:///{path}").examine()}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "bide", "doctor", *arguments], capture_output=True, text=True, check=False)


def test_a_healthy_file_is_described(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    with Queue(f"sqlite:///{path}") as queue:
        queue.send_many("t", range(3))
        queue.send("t", 1, delay="1h")
        queue.receive("t")
        seen = found(path)
    assert seen["file"].value == str(path)
    assert seen["messages"].value == "3 pending, 1 leased, 0 dead"
    assert seen["journal_mode"].value == "wal"
    assert (seen["mode"].value, seen["layout"].value) == ("0600", f"{len(file.MIGRATIONS)} of {len(file.MIGRATIONS)}")
    assert {"size", "free", "wal", "synchronous", "sqlite", "oldest overdue"} <= seen.keys()
    assert all(each.level != "bad" for each in seen.values())


def test_what_nobody_receives_is_told(tmp_path: Path) -> None:
    path, clock = tmp_path / "bide.db", ManualClock()
    with Queue(f"sqlite:///{path}", clock=clock) as queue:
        queue.send("t", 1)
        clock.advance(3_600)
        seen = {each.name: each for each in queue.examine()}
    assert seen["oldest overdue"] == Finding("oldest overdue", "1h", "warn", "nobody receives it: is a worker running?")


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    assert "made on first use" in found(path)["state"].value
    assert os.listdir(tmp_path) == []


def test_a_file_of_another_program_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    path.write_bytes(b"not a database, but long enough to look like one" * 100)
    assert found(path)["state"].level == "bad"
    done = run("--url", f"sqlite:///{path}")
    assert done.returncode == 1
    assert "bad:" in done.stdout


def test_a_table_that_can_not_be_read_hides_no_other_finding(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    with Queue(f"sqlite:///{path}") as queue:
        queue.send("t", 1)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("alter table message rename to elsewhere")
    seen = found(path)
    assert (seen["messages"].level, "no such table: message" in seen["messages"].value) == ("bad", True)
    assert seen["engine time"].level == "ok"


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_a_file_that_others_can_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    with Queue(f"sqlite:///{path}") as queue:
        queue.send("t", 1)
    path.chmod(0o644)
    assert found(path)["mode"].level == "warn"


def test_the_command_prints_a_table_or_json(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bide.db"
    with Queue(url) as queue:
        queue.send("t", 1)
    plain, as_json = run("--url", url), run("--url", url, "--json")
    assert plain.returncode == as_json.returncode == 0
    assert "1 pending" in plain.stdout
    assert "\x1b" not in plain.stdout
    assert {each["name"] for each in json.loads(as_json.stdout)} >= {"file", "messages"}


def test_what_workers_tell_of_themselves_is_no_message_of_the_user(tmp_path: Path) -> None:
    path, clock = tmp_path / "bide.db", ManualClock()
    with Queue(f"sqlite:///{path}", clock=clock) as queue:
        process = Process("a", 1, "1", ["mail"], 0)
        queue.session.engine().put([report(key("a:1"), process, Work({}, 0, 0, []))])
        clock.advance(7_200)
        queue.send("mail", 1, delay="1h")
        seen = {each.name: each for each in queue.examine()}
    assert seen["messages"].value == "1 pending, 0 leased, 0 dead"
    assert seen["oldest overdue"].value == "none"
