"""A sale opens and closes at set times."""

import os
import time

import dramatiq

from benchmarks.recipes.shop import prepare, transaction
from benchmarks.recipes.with_dramatiq import broker  # noqa: F401


def announce(sale: int, starts: float, ends: float, stock: int) -> None:
    open_sale.send_with_options(args=[sale], delay=int((starts - time.time()) * 1000))
    close_sale.send_with_options(args=[sale], delay=int((ends - time.time()) * 1000))
    with transaction() as db:
        row = [sale, starts, ends, stock]
        db.execute("insert into sales (id, starts, ends, stock, state) values (?, ?, ?, ?, 'planned')", row)


def buy(sale: int, customer: str) -> bool:
    with transaction() as db:
        left = "update sales set stock = stock - 1 where id = ? and stock > 0 and starts <= ? and ? < ends"
        now = time.time()
        bought = db.execute("insert or ignore into purchases values (?, ?)", [sale, customer]).rowcount == 1
        if not bought or db.execute(left, [sale, now, now]).rowcount == 0:
            db.rollback()
            return False
        return True


@dramatiq.actor
def open_sale(sale: int) -> None:
    with transaction() as db:
        if db.execute("update sales set state = 'open' where id = ? and state = 'planned'", [sale]).rowcount:
            print(f"sale {sale} is open: put it on the front page")


@dramatiq.actor
def close_sale(sale: int) -> None:
    with transaction() as db:
        [left] = db.execute("select stock from sales where id = ?", [sale]).fetchone()
        if db.execute("update sales set state = 'closed', stock = 0 where id = ? and state != 'closed'", [sale]).rowcount:
            print(f"sale {sale} is closed: {left} go back to the shelf")


if __name__ == "__main__":
    prepare()
    length = float(os.environ.get("SALE_LENGTH", "3600"))
    announce(1, time.time() + length, time.time() + 2 * length, stock=10)
