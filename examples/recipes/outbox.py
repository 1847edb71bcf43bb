"""Orders are in PostgreSQL, messages in Redis. With an outbox, an order and its message are one commit all the same."""

import os

import psycopg

from bide import Queue

SHOP = os.environ.get("SHOP_URL", "postgres://localhost:5432/shop")
PAY_WITHIN = os.environ.get("PAY_WITHIN", "15m")
queue = Queue(os.environ.get("BIDE_URL", "redis://localhost:6379/0"), outbox=SHOP)


def place(number: int) -> None:
    with psycopg.connect(SHOP) as db:
        db.execute("insert into orders values (%s, 'unpaid')", [number])
        cancel_unpaid.after(PAY_WITHIN, key=f"order:{number}", connection=db).send(number)


def pay(number: int) -> bool:
    with psycopg.connect(SHOP) as db:
        paid = db.execute("update orders set state = 'paid' where number = %s and state = 'unpaid'", [number]).rowcount == 1
    cancel_unpaid.cancel(key=f"order:{number}")  # after the commit; if it is lost, the row below still knows
    return paid


@queue.task("order.cancel")
def cancel_unpaid(number: int) -> None:
    with psycopg.connect(SHOP) as db:
        if db.execute("update orders set state = 'cancelled' where number = %s and state = 'unpaid'", [number]).rowcount:
            print(f"order {number} is cancelled")


if __name__ == "__main__":
    with psycopg.connect(SHOP) as db:
        db.execute("create table if not exists orders (number bigint primary key, state text not null)")
    place(1)
    place(2)
    print("paid:", pay(1))
