"""A cart gets a reminder after 15 minutes and a second one 15 minutes later. Then it is closed."""

import os

from bide import Queue, current
from examples.recipes.database import URL, prepare, transaction

queue = Queue(URL)
STEP = os.environ.get("REMIND_EVERY", "15m")
WORDS = ("you left something in your cart", "the last one is reserved for 15 minutes more", "your cart is closed")


def leave(cart: int) -> None:
    with transaction() as db:
        db.execute("insert into orders (number, state) values (?, 'cart')", [cart])
        remind.after(STEP, key=f"cart:{cart}", connection=db).send(cart)


def check_out(cart: int) -> bool:
    with transaction() as db:
        remind.cancel(key=f"cart:{cart}", connection=db)  # whichever step it is at
        return db.execute("update orders set state = 'paid' where number = ? and state = 'cart'", [cart]).rowcount == 1


@queue.task("cart.remind")
def remind(cart: int, step: int = 0) -> None:
    with transaction() as db:
        if db.execute("select 1 from orders where number = ? and state = 'cart'", [cart]).fetchone() is None:
            return
        if step == len(WORDS) - 1:
            db.execute("update orders set state = 'closed' where number = ?", [cart])
        else:
            remind.after(STEP, key=f"cart:{cart}", connection=db).send(cart, step + 1)
        if db.execute("insert or ignore into mails values (?)", [f"cart {cart} {step}"]).rowcount:
            print(f"cart {cart}: {WORDS[step]}")
        current().ack(connection=db)  # one commit: no step is left out, and none is taken twice


if __name__ == "__main__":
    prepare(queue)
    leave(1)
    leave(2)
    print("paid:", check_out(2))
