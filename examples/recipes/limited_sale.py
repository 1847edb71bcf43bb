"""A sale opens and closes at set times. Its row says when, to the moment; the messages do the work around it."""

import os
from datetime import UTC, datetime, timedelta

from bide import Queue
from examples.recipes.database import URL, prepare, transaction

queue = Queue(URL)


def announce(sale: int, starts: datetime, ends: datetime, stock: int) -> None:
    with transaction() as db:
        row = [sale, starts.timestamp(), ends.timestamp(), stock]
        db.execute("insert into sales (id, starts, ends, stock, state) values (?, ?, ?, ?, 'planned')", row)
        open_sale.at(starts, key=f"sale:{sale}", connection=db).send(sale)
        close_sale.at(ends, key=f"sale:{sale}", connection=db).send(sale)


def buy(sale: int, customer: str) -> bool:
    """Returns False if it is too early or too late, if nothing is left, or if this customer has one."""
    with transaction() as db:
        # Asks the clock, not the state: so a worker that is late sells nothing after the end.
        left = "update sales set stock = stock - 1 where id = ? and stock > 0 and starts <= ? and ? < ends"
        now = datetime.now(UTC).timestamp()
        bought = db.execute("insert or ignore into purchases values (?, ?)", [sale, customer]).rowcount == 1
        if not bought or db.execute(left, [sale, now, now]).rowcount == 0:
            db.rollback()
            return False
        return True


@queue.task("sale.open")
def open_sale(sale: int) -> None:
    with transaction() as db:
        if db.execute("update sales set state = 'open' where id = ? and state = 'planned'", [sale]).rowcount:
            print(f"sale {sale} is open: put it on the front page")


@queue.task("sale.close")
def close_sale(sale: int) -> None:
    with transaction() as db:
        [left] = db.execute("select stock from sales where id = ?", [sale]).fetchone()
        if db.execute("update sales set state = 'closed', stock = 0 where id = ? and state != 'closed'", [sale]).rowcount:
            print(f"sale {sale} is closed: {left} go back to the shelf")


if __name__ == "__main__":
    prepare(queue)
    length = timedelta(seconds=float(os.environ.get("SALE_LENGTH", "3600")))
    soon = datetime.now(UTC) + length
    announce(1, soon, soon + length, stock=10)
