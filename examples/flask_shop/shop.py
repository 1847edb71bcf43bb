"""The shop's own data: orders and the mail that went out, in the same SQLite file as the queue's messages."""

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
    # IMMEDIATE waits for that lock before the first write. A plain BEGIN could fail later, at a write.
    with closing(sqlite3.connect(PATH, timeout=30, isolation_level="IMMEDIATE")) as connection, connection:
        yield connection


def prepare() -> None:
    """Create the shop's tables. Open the queue first: bide refuses a file that has only tables of others."""
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
    """Pay an open order. Returns False if the order was not open."""
    return _leave_open(db, order, "paid")


def cancel(db: sqlite3.Connection, order: int) -> bool:
    """Cancel an open order. Returns False if the order was not open."""
    return _leave_open(db, order, "cancelled")


def _leave_open(db: sqlite3.Connection, order: int, state: State) -> bool:
    # One statement checks and changes the state. So if a payment and a cancellation come together, exactly one wins.
    return db.execute("update orders set state = ? where id = ? and state = 'open'", (state, order)).rowcount == 1


def post(order: int, about: str) -> None:
    """Stands in for a mail server. The same mail sent twice is stored once, as with a mail service's idempotency key."""
    with transaction() as db:
        db.execute("insert or ignore into mails values (?, ?)", (order, about))


def mails(db: sqlite3.Connection, order: int) -> list[str]:
    return [about for [about] in db.execute("select about from mails where order_id = ? order by rowid", (order,))]
