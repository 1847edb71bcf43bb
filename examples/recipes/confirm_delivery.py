"""A delivery is confirmed by itself after 7 days. The customer may ask for 3 more days, once."""

import os

from bide import Queue
from examples.recipes.database import URL, prepare, transaction

queue = Queue(URL)
CONFIRM_AFTER = os.environ.get("CONFIRM_AFTER", "7d")
MORE_TIME = os.environ.get("MORE_TIME", "3d")


def delivered(number: int) -> None:
    with transaction() as db:
        db.execute("insert into orders (number, state) values (?, 'delivered')", [number])
        confirm.after(CONFIRM_AFTER, key=f"order:{number}", connection=db).send(number)


def more_time(number: int) -> bool:
    """Returns False if she has asked before, or if it is too late."""
    with transaction() as db:
        may = "update orders set extended = 1 where number = ? and state = 'delivered' and not extended"
        if db.execute(may, [number]).rowcount == 0:
            return False
        # MOVED is the only true result. RUNNING: the order is being confirmed at this moment.
        return bool(confirm.reschedule(key=f"order:{number}", by=MORE_TIME, connection=db))


@queue.task("delivery.confirm")
def confirm(number: int) -> None:
    with transaction() as db:
        if db.execute("update orders set state = 'confirmed' where number = ? and state = 'delivered'", [number]).rowcount:
            print(f"order {number} is confirmed: pay the shop")


if __name__ == "__main__":
    prepare(queue)
    delivered(1)
    delivered(2)
    print("more time:", more_time(1), more_time(1))
