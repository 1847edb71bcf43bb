"""However many processes, threads and tasks come to the same gates at once, no gate lets one in too many."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
import pytest

from bide import Queue
from tests.contract.crowd_at_gates import GATES

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = ("async", "sync", "sync")
ROUNDS = 400 if "BIDE_LONG" in os.environ else 40

WRONG = """
select g.{name} from {prefix}gate g
where taken <> (select count(*) from {prefix}gate_place p where p.gate = g.{id})
    + (select count(*) from {prefix}gate_line l where l.gate = g.{id} and l.until is not null)
or waiting <> (select count(*) from {prefix}gate_line l where l.gate = g.{id} and l.until is null)
"""


def crowds(url: str, folder: Path) -> list[int]:
    """How often each of the processes was let in."""
    command = [sys.executable, "-m", "tests.contract.crowd_at_gates", url, str(folder)]
    started = [
        subprocess.Popen([*command, f"p{number}-", colour, str(ROUNDS)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for number, colour in enumerate(PROCESSES)
    ]
    said = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(PROCESSES)
    return [int(each) for each in said]


@contextmanager
def forgetting(url: str) -> Iterator[None]:
    """Meanwhile, gates that are empty are taken for forgotten long ago, one after the other."""
    done = Event()

    def forget() -> None:
        with psycopg.connect(url, autocommit=True) as other:
            while not done.is_set():
                for number in range(GATES):
                    empty = "update bide.gate set next = 0 where name = %s and taken = 0 and waiting = 0"
                    other.execute(empty, [f"g{number}"])

    thread = Thread(target=forget)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.timeout(900)
def test_a_crowd_at_the_gates_of_a_file(tmp_path: Path) -> None:
    assert min(crowds(f"sqlite:///{tmp_path}/bide.db", tmp_path)) > ROUNDS
    with closing(sqlite3.connect(tmp_path / "bide.db")) as file:
        assert file.execute(WRONG.format(prefix="bide_", name="name", id="id")).fetchall() == []
        assert file.execute("select count(*) from bide_gate_place").fetchone() == (0,)


@pytest.mark.always
@pytest.mark.timeout(900)
def test_a_crowd_at_the_gates_of_a_database(postgres_url: str, tmp_path: Path) -> None:
    crowds_of(postgres_url, postgres_url, tmp_path)


@pytest.mark.timeout(900)
def test_a_crowd_at_the_gates_of_a_database_through_pgbouncer(pgbouncer_url: str, postgres_url: str, tmp_path: Path) -> None:
    crowds_of(pgbouncer_url, postgres_url, tmp_path)


def crowds_of(url: str, direct: str, folder: Path) -> None:
    with Queue(direct) as queue:
        queue.stats()  # the tables are there
    with forgetting(direct):
        assert min(crowds(url, folder)) > ROUNDS

    def ask(client: psycopg.Connection[Any], question: str) -> list[Any]:
        return client.execute(question.encode()).fetchall()

    with psycopg.connect(direct) as client:
        assert ask(client, WRONG.format(prefix="bide.", name="name", id="name")) == []
        assert ask(client, "select count(*) from bide.gate_place") == [(0,)]
        assert ask(client, "select deadlocks from pg_stat_database where datname = current_database()") == [(0,)]
