"""A refund is asked for until the bank has paid it, for three days at most."""

import os

from bide import Delivery, Queue, Snooze
from examples.recipes.database import URL, prepare, transaction

queue = Queue(URL)
ASK_EVERY = os.environ.get("ASK_EVERY", "10m")
GIVE_UP_AFTER = os.environ.get("GIVE_UP_AFTER", "3d")


def refund(order: int) -> None:
    with transaction() as db:
        if db.execute("update orders set state = 'refunding' where number = ? and state = 'paid'", [order]).rowcount:
            follow.options(key=f"order:{order}", connection=db).send(order)


def give_up(delivery: Delivery, reason: str) -> None:
    print(f"order {delivery.body['order']}: call the bank ({reason})")


@queue.task("refund.follow", timeout="30s", on_dead=give_up)
def follow(order: int) -> None:
    state = bank(f"refund-{order}")
    if state == "pending":
        raise Snooze(ASK_EVERY, max_wait=GIVE_UP_AFTER)  # counts as no attempt; an error of the bank's does
    with transaction() as db:
        if db.execute("update orders set state = 'refunded' where number = ? and state = 'refunding'", [order]).rowcount:
            print(f"order {order} is refunded")


def bank(reference: str) -> str:
    """Stands in for the bank, which needs a while. The same reference is the same refund, however often it is asked."""
    with transaction() as db:
        db.execute("insert into refunds values (?, 0) on conflict do update set asked = asked + 1", [reference])
        [asked] = db.execute("select asked from refunds where id = ?", [reference]).fetchone()
    return "pending" if asked < 3 else "paid"


if __name__ == "__main__":
    prepare(queue)
    with transaction() as db:
        db.execute("insert into orders (number, state) values (1, 'paid')")
    refund(1)
