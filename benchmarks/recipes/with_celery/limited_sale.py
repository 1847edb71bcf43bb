"""A sale opens and closes at set times."""

import os
import time

from benchmarks.recipes.shop import prepare, transaction
from benchmarks.recipes.with_celery.app import SWEEP, app

app.conf.beat_schedule = {"turn": {"task": "sale.turn", "schedule": SWEEP}}


def announce(sale: int, starts: float, ends: float, stock: int) -> None:
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


@app.task(name="sale.turn")
def turn() -> None:
    with transaction() as db:
        now = time.time()
        opened = "update sales set state = 'open' where state = 'planned' and starts <= ? returning id"
        for [sale] in db.execute(opened, [now]).fetchall():
            print(f"sale {sale} is open: put it on the front page")
        closed = "update sales set state = 'closed' where state = 'open' and ends <= ? returning id, stock"
        for sale, left in db.execute(closed, [now]).fetchall():
            db.execute("update sales set stock = 0 where id = ?", [sale])
            print(f"sale {sale} is closed: {left} go back to the shelf")


if __name__ == "__main__":
    prepare()
    length = float(os.environ.get("SALE_LENGTH", "3600"))
    announce(1, time.time() + length, time.time() + 2 * length, stock=10)
