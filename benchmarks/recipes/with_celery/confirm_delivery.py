"""A delivery is confirmed by itself after 7 days. The customer may ask for 3 more days, once."""

import time

from benchmarks.recipes.shop import prepare, seconds, transaction
from benchmarks.recipes.with_celery.app import SWEEP, app

CONFIRM_AFTER = seconds("CONFIRM_AFTER", 7 * 86400)
MORE_TIME = seconds("MORE_TIME", 3 * 86400)
app.conf.beat_schedule = {"confirm": {"task": "delivery.confirm", "schedule": SWEEP}}


def delivered(number: int) -> None:
    with transaction() as db:
        row = [number, time.time() + CONFIRM_AFTER]
        db.execute("insert into orders (number, state, due) values (?, 'delivered', ?)", row)


def more_time(number: int) -> bool:
    with transaction() as db:
        may = "update orders set extended = 1, due = due + ? where number = ? and state = 'delivered' and not extended"
        return db.execute(may, [MORE_TIME, number]).rowcount == 1


@app.task(name="delivery.confirm")
def confirm() -> None:
    with transaction() as db:
        due = "update orders set state = 'confirmed' where state = 'delivered' and due <= ? returning number"
        for [number] in db.execute(due, [time.time()]).fetchall():
            print(f"order {number} is confirmed: pay the shop")


if __name__ == "__main__":
    prepare()
    delivered(1)
    delivered(2)
    print("more time:", more_time(1), more_time(1))
