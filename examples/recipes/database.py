"""The SQLite file of the recipes. Their tables are beside bide's, so that a change and its message are one commit."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bide import Queue

PATH = os.path.abspath(os.environ.get("RECIPES_DB", "recipes.db"))
URL = f"sqlite:///{PATH}"
TABLES = Path(__file__).with_name("tables.sql")


def prepare(queue: "Queue") -> None:
    """Create the file. bide's tables must come first."""
    queue.stats()
    create_tables()


def create_tables() -> None:
    with closing(sqlite3.connect(PATH, timeout=30)) as connection:
        connection.executescript(TABLES.read_text(encoding="utf-8"))


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """Committed at the end, or rolled back by an exception."""
    with closing(sqlite3.connect(PATH, timeout=30)) as connection, connection:
        connection.execute("begin immediate")  # takes the write lock now; a plain begin could fail later, at a write
        yield connection
