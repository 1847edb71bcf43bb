"""A delivery is confirmed by itself after 7 days. The customer may ask for 3 more days, once."""

import time

import dramatiq

from benchmarks.recipes.shop import prepare, seconds, transaction
from benchmarks.recipes.with_dramatiq import broker  # noqa: F401

CONFIRM_AFTER = seconds("CONFIRM_AFTER", 7 * 86400)
MORE_TIME = seconds("MORE_TIME", 3 * 86400)


def delivered(number: int) -> None:
    confirm.send_with_options(args=[number], delay=int(CONFIRM_AFTER * 1000))
    with transaction() as db:
        row = [number, time.time() + CONFIRM_AFTER]
        db.execute("insert into orders (number, state, due) values (?, 'delivered', ?)", row)


def more_time(number: int) -> bool:
    with transaction() as db:
        may = "update orders set extended = 1, due = due + ? where number = ? and state = 'delivered' and not extended"
        return db.execute(may, [MORE_TIME, number]).rowcount == 1


@dramatiq.actor
def confirm(number: int) -> None:
    with transaction() as db:
        row = db.execute("select due from orders where number = ? and state = 'delivered'", [number]).fetchone()
        if row is None:
            return
        if (left := row[0] - time.time()) > 0:  # it was moved: a message can't be
            confirm.send_with_options(args=[number], delay=int(left * 1000) + 1)
        elif db.execute("update orders set state = 'confirmed' where number = ?", [number]).rowcount:
            print(f"order {number} is confirmed: pay the shop")


if __name__ == "__main__":
    prepare()
    delivered(1)
    delivered(2)
    print("more time:", more_time(1), more_time(1))
