"""A table in PostgreSQL with a column for the due time, and a query that runs every so often."""

import time
from collections.abc import Callable

import psycopg

TABLE = "create table if not exists orders (id bigserial primary key, body text, due timestamptz, done boolean default false)"
INDEX = "create index if not exists orders_due on orders (due) where not done"
DUE = "select id, body from orders where not done and due <= now() order by due limit 1000"


def connect(url: str) -> "psycopg.Connection[tuple[int, str]]":
    database = psycopg.connect(url, autocommit=True)
    database.execute("set client_min_messages to warning")
    database.execute(TABLE)
    database.execute(INDEX)
    return database


def send(database: psycopg.Connection, body: str, delay: float) -> None:
    database.execute("insert into orders (body, due) values (%s, now() + %s * interval '1 second')", [body, delay])


def work(database: psycopg.Connection, handle: Callable[[str], None], period: float = 60.0) -> None:
    while True:
        for number, body in database.execute(DUE).fetchall():
            handle(body)  # another process that looks now does the same
            database.execute("update orders set done = true where id = %s", [number])
        time.sleep(period)
