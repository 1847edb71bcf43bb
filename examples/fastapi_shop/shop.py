"""The shop's own data: orders and the mail that went out, in an SQLite file that bide does not use."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Literal

PATH = os.environ.get("SHOP_DB", "fastapi_shop.db")

State = Literal["open", "paid", "cancelled"]


@dataclass(frozen=True)
class Order:
    id: str
    email: str
    state: State


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """Committed at the end, or rolled back by an exception."""
    with closing(sqlite3.connect(PATH, timeout=30)) as connection, connection:
        yield connection


def prepare() -> None:
    with transaction() as db:
        db.execute("create table if not exists orders (id text primary key, email text not null, state text not null)")
        db.execute("create table if not exists mails (order_id text, about text, primary key (order_id, about))")


def add(order: str, email: str) -> None:
    with transaction() as db:
        db.execute("insert into orders values (?, ?, 'open')", (order, email))


def find(order: str) -> Order | None:
    with transaction() as db:
        return _find(db, order)


def pay(order: str) -> Order | None:
    """Pay an open order. Returns the order: paid, or cancelled if the cancellation came first."""
    return _leave_open(order, "paid")


def cancel(order: str) -> Order | None:
    """Cancel an open order. Returns the order: cancelled, or paid if the payment came first."""
    return _leave_open(order, "cancelled")


def _leave_open(order: str, state: State) -> Order | None:
    # One statement checks and changes the state. So if a payment and a cancellation come together, exactly one wins.
    with transaction() as db:
        db.execute("update orders set state = ? where id = ? and state = 'open'", (state, order))
        return _find(db, order)


def _find(db: sqlite3.Connection, order: str) -> Order | None:
    row = db.execute("select id, email, state from orders where id = ?", (order,)).fetchone()
    return None if row is None else Order(*row)


def post(order: str, about: str) -> None:
    """Stands in for a mail server. The same mail sent twice is stored once, as with a mail service's idempotency key."""
    with transaction() as db:
        db.execute("insert or ignore into mails values (?, ?)", (order, about))


def mails(order: str) -> list[str]:
    with transaction() as db:
        return [about for [about] in db.execute("select about from mails where order_id = ? order by rowid", (order,))]
