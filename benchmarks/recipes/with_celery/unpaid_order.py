"""An order that is not paid within 15 minutes is cancelled."""

from benchmarks.recipes.shop import prepare, seconds, transaction
from benchmarks.recipes.with_celery.app import app

PAY_WITHIN = seconds("PAY_WITHIN", 900)


def place(number: int) -> None:
    cancel_unpaid.apply_async([number], countdown=PAY_WITHIN)  # before the commit: else an order might have no task
    with transaction() as db:
        db.execute("insert into orders (number, state) values (?, 'unpaid')", [number])


def pay(number: int) -> bool:
    with transaction() as db:  # the task stays, and will find a paid order
        return db.execute("update orders set state = 'paid' where number = ? and state = 'unpaid'", [number]).rowcount == 1


@app.task(name="order.cancel")
def cancel_unpaid(number: int) -> None:
    with transaction() as db:
        if db.execute("update orders set state = 'cancelled' where number = ? and state = 'unpaid'", [number]).rowcount:
            print(f"order {number} is cancelled")


if __name__ == "__main__":
    prepare()
    place(1)
    place(2)
    print("paid:", pay(1))
