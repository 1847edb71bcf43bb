"""Orders are in PostgreSQL, messages in Redis. With an outbox, an order and its message are one commit all the same."""

import os
from datetime import UTC, datetime

import dramatiq
import psycopg

from benchmarks.recipes.shop import seconds
from benchmarks.recipes.with_dramatiq import broker  # noqa: F401

SHOP = os.environ.get("SHOP_URL", "postgres://localhost:5432/shop")
PAY_WITHIN = seconds("PAY_WITHIN", 900)


def place(number: int) -> None:
    with psycopg.connect(SHOP) as db:
        db.execute("insert into orders values (%s, 'unpaid')", [number])
        db.execute("insert into outbox (number, due) values (%s, now() + %s * interval '1s')", [number, PAY_WITHIN])


def pay(number: int) -> bool:
    with psycopg.connect(SHOP) as db:
        return db.execute("update orders set state = 'paid' where number = %s and state = 'unpaid'", [number]).rowcount == 1


def relay() -> None:
    """To be called each second, by a process of its own: Dramatiq has no schedules."""
    with psycopg.connect(SHOP) as db:
        some = "delete from outbox where id in (select id from outbox order by id limit 100 for update skip locked)"
        for number, due in db.execute(f"{some} returning number, due").fetchall():
            delay = int((due - datetime.now(UTC)).total_seconds() * 1000)
            cancel_unpaid.send_with_options(args=[number], delay=max(0, delay))  # again after a crash: the order's row knows


@dramatiq.actor
def cancel_unpaid(number: int) -> None:
    with psycopg.connect(SHOP) as db:
        if db.execute("update orders set state = 'cancelled' where number = %s and state = 'unpaid'", [number]).rowcount:
            print(f"order {number} is cancelled")


if __name__ == "__main__":
    with psycopg.connect(SHOP) as db:
        db.execute("create table if not exists orders (number bigint primary key, state text not null)")
        db.execute("create table if not exists outbox (id bigserial primary key, number bigint, due timestamptz)")
    place(1)
    place(2)
    relay()
    print("paid:", pay(1))
