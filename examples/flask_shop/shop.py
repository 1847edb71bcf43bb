"""The shop's own data: orders and the mail that went out, in the SQLite file in which the queue keeps its messages too."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Literal

PATH = os.path.abspath(os.environ.get("SHOP_DB", "flask_shop.db"))

State = Literal["open", "paid", "cancelled"]


@dataclass(frozen=True)
class Order:
    id: int
    email: str
    state: State


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """Committed at the end, or rolled back by an exception. Keep it short: it holds the file's write lock."""
    # IMMEDIATE takes that lock at the first write, and waits for it. A plain BEGIN could fail half-way.
    with closing(sqlite3.connect(PATH, timeout=30, isolation_level="IMMEDIATE")) as connection, connection:
        yield connection


def prepare() -> None:
    """Make the tables. The queue must have been here first: it takes an empty file only."""
    with transaction() as db:
        db.execute("create table if not exists orders (id integer primary key, email text not null, state text not null)")
        db.execute("create table if not exists mails (order_id integer, about text, primary key (order_id, about))")


def add(db: sqlite3.Connection, email: str) -> int:
    order = db.execute("insert into orders (email, state) values (?, 'open')", (email,)).lastrowid
    assert order is not None
    return order


def find(db: sqlite3.Connection, order: int) -> Order | None:
    row = db.execute("select id, email, state from orders where id = ?", (order,)).fetchone()
    return None if row is None else Order(*row)


def pay(db: sqlite3.Connection, order: int) -> bool:
    """Whether it was open until now."""
    return _leave_open(db, order, "paid")


def cancel(db: sqlite3.Connection, order: int) -> bool:
    """Whether it was open until now."""
    return _leave_open(db, order, "cancelled")


def _leave_open(db: sqlite3.Connection, order: int, state: State) -> bool:
    # One statement checks and changes, so of a payment and a cancellation at the same moment exactly one wins.
    return db.execute("update orders set state = ? where id = ? and state = 'open'", (state, order)).rowcount == 1


def post(order: int, about: str) -> None:
    """What the mail server would do. The same mail twice is one mail, as with the idempotency key of a mail service."""
    with transaction() as db:
        db.execute("insert or ignore into mails values (?, ?)", (order, about))


def mails(db: sqlite3.Connection, order: int) -> list[str]:
    return [about for [about] in db.execute("select about from mails where order_id = ? order by rowid", (order,))]
