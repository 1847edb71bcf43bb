"""A refund is asked for until the bank has paid it, for three days at most."""

from typing import Any

import dramatiq

from benchmarks.recipes.shop import milliseconds, prepare, transaction
from benchmarks.recipes.with_dramatiq import broker  # noqa: F401

ASK_EVERY = milliseconds("ASK_EVERY", 600)
GIVE_UP_AFTER = milliseconds("GIVE_UP_AFTER", 3 * 86400)


def refund(order: int) -> None:
    follow.send_with_options(args=[order], delay=1000)  # before the commit; a message that finds no refund does nothing
    with transaction() as db:
        db.execute("update orders set state = 'refunding' where number = ? and state = 'paid'", [order])


@dramatiq.actor
def give_up(message: dict[str, Any], retries: dict[str, int]) -> None:
    print(f"order {message['args'][0]}: call the bank ({retries['retries']} times asked)")


@dramatiq.actor(max_retries=GIVE_UP_AFTER // ASK_EVERY, on_retry_exhausted="give_up", time_limit=30_000)
def follow(order: int) -> None:
    with transaction() as db:
        if db.execute("select 1 from orders where number = ? and state = 'refunding'", [order]).fetchone() is None:
            return
    if bank(f"refund-{order}") == "pending":
        raise dramatiq.Retry("pending", delay=ASK_EVERY)  # an error and a pending refund are counted alike
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
