"""A refund is asked for until the bank has paid it, for three days at most."""

from typing import Any

from benchmarks.recipes.shop import prepare, seconds, transaction
from benchmarks.recipes.with_celery.app import app

ASK_EVERY = seconds("ASK_EVERY", 600)
GIVE_UP_AFTER = seconds("GIVE_UP_AFTER", 3 * 86400)


def refund(order: int) -> None:
    follow.apply_async([order], countdown=1)  # before the commit; a task that finds no refund does nothing
    with transaction() as db:
        db.execute("update orders set state = 'refunding' where number = ? and state = 'paid'", [order])


@app.task(name="refund.follow", bind=True, max_retries=int(GIVE_UP_AFTER / ASK_EVERY), soft_time_limit=30)
def follow(self: Any, order: int) -> None:
    with transaction() as db:
        if db.execute("select 1 from orders where number = ? and state = 'refunding'", [order]).fetchone() is None:
            return
    try:
        if bank(f"refund-{order}") == "pending":
            raise self.retry(countdown=ASK_EVERY)  # an error and a pending refund are counted alike
    except OSError as error:
        raise self.retry(countdown=ASK_EVERY, exc=error) from error
    except self.MaxRetriesExceededError as error:
        print(f"order {order}: call the bank ({error})")
        return
    with transaction() as db:
        if db.execute("update orders set state = 'refunded' where number = ? and state = 'refunding'", [order]).rowcount:
            print(f"order {order} is refunded")


def bank(reference: str) -> str:
    with transaction() as db:
        db.execute("insert into refunds values (?, 0) on conflict do update set asked = asked + 1", [reference])
        [asked] = db.execute("select asked from refunds where id = ?", [reference]).fetchone()
    return "pending" if asked < 3 else "paid"


if __name__ == "__main__":
    prepare()
    with transaction() as db:
        db.execute("insert into orders (number, state) values (1, 'paid')")
    refund(1)
