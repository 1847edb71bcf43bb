"""An order that is not paid within 15 minutes is cancelled."""

import os

from bide import Queue
from examples.recipes.database import URL, prepare, transaction

queue = Queue(URL)
PAY_WITHIN = os.environ.get("PAY_WITHIN", "15m")


def place(number: int) -> None:
    with transaction() as db:  # the order and its message are one commit
        db.execute("insert into orders (number, state) values (?, 'unpaid')", [number])
        cancel_unpaid.after(PAY_WITHIN, key=f"order:{number}", connection=db).send(number)


def pay(number: int) -> bool:
    """Returns False if the order was cancelled a moment ago: then don't take the money."""
    with transaction() as db:  # the payment and the end of the message are one commit, too
        paid = db.execute("update orders set state = 'paid' where number = ? and state = 'unpaid'", [number]).rowcount == 1
        cancel_unpaid.cancel(key=f"order:{number}", connection=db)
        return paid


@queue.task("order.cancel")
def cancel_unpaid(number: int) -> None:
    with transaction() as db:
        # The row decides: if a payment comes at this moment, one of the two finds the order unpaid.
        if db.execute("update orders set state = 'cancelled' where number = ? and state = 'unpaid'", [number]).rowcount:
            print(f"order {number} is cancelled")


if __name__ == "__main__":
    prepare(queue)
    place(1)
    place(2)
    print("paid:", pay(1))
