"""An order that is not paid within 15 minutes is cancelled."""

import dramatiq

from benchmarks.recipes.shop import milliseconds, prepare, transaction
from benchmarks.recipes.with_dramatiq import broker  # noqa: F401

PAY_WITHIN = milliseconds("PAY_WITHIN", 900)


def place(number: int) -> None:
    cancel_unpaid.send_with_options(args=[number], delay=PAY_WITHIN)  # before the commit: else an order might have no task
    with transaction() as db:
        db.execute("insert into orders (number, state) values (?, 'unpaid')", [number])


def pay(number: int) -> bool:
    with transaction() as db:  # the task stays, and will find a paid order
        return db.execute("update orders set state = 'paid' where number = ? and state = 'unpaid'", [number]).rowcount == 1


@dramatiq.actor
def cancel_unpaid(number: int) -> None:
    with transaction() as db:
        if db.execute("update orders set state = 'cancelled' where number = ? and state = 'unpaid'", [number]).rowcount:
            print(f"order {number} is cancelled")


if __name__ == "__main__":
    prepare()
    place(1)
    place(2)
    print("paid:", pay(1))
